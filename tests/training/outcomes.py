"""Short runs that can be stopped, and what they leave, for comparing them."""

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cli.program import write_config

from caesura.config import Config, load_config
from caesura.errors import Interrupted
from caesura.inference import Translator
from caesura.output import Output
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress
from caesura.training.loop import train
from caesura.training.validation import Validation

DROPOUT = ("model.encoder.dropout=0.3", "model.decoder.dropout=0.3")


class Listener:
    """A reporter that keeps what it is told, and sends this process a signal at the updates in `stops`."""

    def __init__(self, *stops: int) -> None:
        self.stops = stops
        self.messages: list[str] = []
        self.rates: list[float] = []
        self.validations: list[Validation] = []
        self.examples: list[Sequence[tuple[str, Output, str]]] = []

    def say(self, text: str) -> None:
        self.messages.append(text)

    def working(self, what: str, done: int, total: int = 0) -> None:
        pass

    def update(self, progress: Progress, loss: float | None) -> None:
        self.rates.append(progress.learning_rate)
        if progress.update in self.stops:
            ask_to_end()

    def validation(self, validation: Validation, examples: Sequence[tuple[str, Output, str]]) -> None:
        self.validations.append(validation)
        self.examples.append(examples)


@contextmanager
def in_batch(number: int, do: Callable[[], None]) -> Iterator[None]:
    """Inside it something is done in one batch of dev lines; those measured before training count too."""
    fitted, count = Translator._fitted, itertools.count(1)

    def disturbed(self: Translator, *given: Any) -> list[Any]:
        if next(count) == number:
            do()
        return fitted(self, *given)

    with mock.patch.object(Translator, "_fitted", disturbed):
        yield


def ask_to_end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def configured(corpus: Path, system: str = "word", *settings: str) -> Config:
    """Batches of 10 from 45 sentences: 5 updates per epoch; a validation every 4 updates."""
    bounds = ("training.updates=14", "training.validation_freq=35", "training.keep_last=1")
    return load_config(write_config(corpus / f"{system}.yaml", system), (*bounds, *settings))


def run(config: Config, folder: Path, *stops: int) -> Listener:
    """Train to the end, called again after each stop."""
    listener = Listener(*stops)
    for _ in stops:
        with pytest.raises(Interrupted):
            train(config, folder, listener)
    assert train(config, folder, listener) == "finished"
    return listener


def stopped(config: Config, folder: Path, update: int) -> Listener:
    """Train until after this update, where a signal stops it."""
    listener = Listener(update)
    with pytest.raises(Interrupted):
        train(config, folder, listener)
    return listener


def records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """The lines of a run's log of these kinds; by default all."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if not kinds or record["kind"] in kinds]


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def tensors(path: Path) -> bytes:
    """What follows the header of a file, which has times and checksums."""
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves that has to be the same in an equal run: everything but times."""
    header, *rows = [line.split("\t") for line in (folder / "validations.tsv").read_text().splitlines()]
    checkpoint = list_checkpoints(folder / "checkpoints")[-1]
    progress = without_times(vars(read_progress(checkpoint)))
    del progress["journal"]  # sizes in bytes, of times too
    return {
        "metrics": [without_times(record) for record in records(folder)],
        "validations": [without_times(dict(zip(header, row, strict=True))) for row in rows],
        "progress": progress,
        "state": tensors(checkpoint),
        "best": tensors(folder / "model.safetensors"),
        "kept": {path.name: tensors(path) for path in (folder / "best").glob("*")},
    }


def check_resumed(config: Config, folder: Path, *stops: int) -> Path:
    """That a run with these stops equals one without, whose folder it returns."""
    run(config, folder / "whole")
    run(config, folder / "stopped", *stops)
    assert outcome(folder / "stopped") == outcome(folder / "whole")
    return folder / "whole"
