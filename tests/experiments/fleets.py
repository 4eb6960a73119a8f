"""Small fleets, and what they say."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.program import write_config, write_corpus

from caesura.experiments.outcome import Member

QUICK = ("training.updates=12", "training.validation_freq=100")
ENDLESS = ("training.updates=100000000", "training.validation_freq=200")


class Heard:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.validations: list[tuple[str, dict[str, Any]]] = []
        self.lines: list[dict[str, str]] = []

    def say(self, text: str) -> None:
        self.messages.append(text)

    def validation(self, name: str, record: dict[str, Any]) -> None:
        self.validations.append((name, record))

    def running(self, lines: dict[str, str]) -> None:
        self.lines.append(lines)


def write_text(folder: Path) -> None:
    """A corpus whose test set is its dev set."""
    write_corpus(folder, digits=5)
    for language in ("de", "en"):
        (folder / f"test.{language}").write_bytes((folder / f"dev.{language}").read_bytes())


def member(folder: Path, name: str, *settings: str, system: str = "word") -> Member:
    """A member whose text and config are in `folder`, and which is trained below it."""
    if not (folder / "test.de").exists():
        write_text(folder)
    config = write_config(folder / f"{system}.yaml", system)
    test = (f"data.test.src={folder}/test.de", f"data.test.trg={folder}/test.en")
    return Member(name, config, (*test, *settings), folder / "runs" / name)


def interrupt_once(number: int) -> Callable[..., None]:
    """Sends this process a signal at the first call alone: later ones find nobody who handles it."""
    numbers = [number]

    def interrupt(*_: object) -> None:
        if numbers:
            os.kill(os.getpid(), numbers.pop())

    return interrupt


def wait_for(happened: Callable[[], object]) -> None:
    """Until it has, for five minutes at most."""
    deadline = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
