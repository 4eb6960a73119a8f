"""The models that are shown: loaded once, and again if their folder has new weights."""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from caesura.analysis.lines import readable
from caesura.config.cookbook import find_model
from caesura.data.batching import collate
from caesura.data.entropy import EntropyModelCuts, NgramCuts
from caesura.data.files import checksum
from caesura.data.tensors import Kinds, load_tensors
from caesura.errors import InputError
from caesura.explorer.refused import Refused
from caesura.inference import Translator
from caesura.model_folder import WEIGHTS, expect_weights
from caesura.training.checkpoint import CHECKPOINTS, MODEL, list_checkpoints
from caesura.training.journal import METRICS
from caesura.training.lock import is_held

TRIES = 5  # to load weights that are replaced while they are read
PAUSE = 2.0  # seconds before a folder that could not be loaded is tried again

T = TypeVar("T")
Stamp = tuple[int, int, int] | None  # of a file: what changes when it is replaced; None: it is not there


@dataclass(frozen=True)
class Loaded:
    """A model as it was read from its folder; what threads made of it goes with it."""

    model: Translator
    version: str  # digest of the weights
    update: int | None = None  # of the checkpoint that they are from; None: they are the best ones
    copies: dict[int, Translator] = field(default_factory=dict, compare=False, repr=False)  # by thread

    def copy(self) -> Translator:
        """A copy for the calling thread alone, the same each time: threads share the weights only."""
        thread = threading.get_ident()
        if thread not in self.copies:
            self.copies[thread] = _copied(self.model)
        return self.copies[thread]


class Slot:
    """One folder: its newest model, or why there is none."""

    def __init__(self, name: str, folder: Path, settings: Sequence[str] = ()) -> None:
        self.name, self.folder = name, folder
        self._settings, self._lock = settings, threading.Lock()
        self.latest: Loaded | None = None  # what was read last, whatever the folder has now
        self._stamp: Stamp = None
        self._tried: tuple[Stamp, float, str] | None = None  # a failure: of what, when and why
        self.load()

    @property
    def running(self) -> bool:
        """Whether a training writes into the folder."""
        return is_held(self.folder)

    @property
    def has_history(self) -> bool:
        """Whether there is a log of the training."""
        return (self.folder / METRICS).is_file()

    def load(self) -> None:
        """Read the model; if a training has not saved one yet, leave it for later."""
        if _stamp(self.folder / WEIGHTS) is None and (self.running or self.has_history):
            return
        self._read()

    def current(self) -> Loaded:
        """The model that the folder holds now; Refused if there is none.

        While one thread reads new weights, the others use the old ones, or refuse if there are none.
        """
        stamp = self._newest()[1]
        if stamp is None:
            raise Refused(*self._absence())
        if stamp == self._stamp and self.latest is not None:
            return self.latest
        before = self.latest
        if not self._lock.acquire(blocking=False):
            if before is None:
                raise Refused(503, f"{self.name} is being loaded; try again in a moment")
            return before
        try:
            return self._renewed()
        finally:
            self._lock.release()

    def _renewed(self) -> Loaded:
        stamp = self._newest()[1]
        if stamp is None:
            raise Refused(*self._absence())
        if stamp != self._stamp or self.latest is None:
            if self._tried and self._tried[0] == stamp and time.monotonic() - self._tried[1] < PAUSE:
                raise Refused(503, self._tried[2])
            try:
                self._read()
            except (InputError, OSError) as problem:
                self._tried = stamp, time.monotonic(), f"{self.name} cannot be reloaded: {problem}"
                raise Refused(503, self._tried[2]) from problem
        assert self.latest is not None
        return self.latest

    def _absence(self) -> tuple[int, str]:
        if not self.folder.is_dir():
            return 410, f"the folder of {self.name} was deleted or moved"
        if self.latest is None:
            return 503, f"the training of {self.name} has not reached its first validation yet"
        return 410, f"the weights of {self.name} were deleted: its folder no longer has {WEIGHTS}"

    def _newest(self) -> tuple[Path, Stamp]:
        """The weights to show: while a training runs, its last checkpoint; else the best ones."""
        best = self.folder / WEIGHTS
        stamp = _stamp(best)
        if stamp is not None and self.running:
            for path in reversed(list_checkpoints(self.folder / CHECKPOINTS)):
                if path.stem.isdecimal() and (later := _stamp(path)):  # else it was deleted meanwhile
                    return path, later
        return best, stamp

    def _read(self) -> None:
        for turn in range(1, TRIES + 1):
            path, stamp = self._newest()
            try:
                loaded = self._loaded(path)
            except (InputError, OSError):
                if turn == TRIES or stamp == self._newest()[1]:
                    raise
                continue  # it was replaced or deleted meanwhile
            if stamp == self._newest()[1]:  # else it was replaced meanwhile
                break
        for parameter in loaded.model.parameters():
            parameter.requires_grad_(False)  # nothing learns here, and threads share them
        self.latest, self._stamp, self._tried = loaded, stamp, None

    def _loaded(self, path: Path) -> Loaded:
        """The model, with the weights of a file of its folder."""
        model = Translator.from_pretrained(self.folder, settings=self._settings)
        update = None if path.name == WEIGHTS else int(path.stem)
        if update is not None:
            _take_weights(model, path)
        return Loaded(model, checksum(path)[:16], update)


def _stamp(path: Path) -> Stamp:
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _take_weights(model: Translator, checkpoint: Path) -> None:
    """Give a model the weights of a checkpoint."""

    def expect(kinds: Kinds) -> None:
        expect_weights(model, _weights_of(kinds), checkpoint)

    tensors, _ = load_tensors(checkpoint, expect)
    model.load_state_dict(_weights_of(tensors))


def _weights_of(tensors: Mapping[str, T]) -> dict[str, T]:
    """Of what a checkpoint holds, the weights by their names in the model."""
    return {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}


class Shelf:
    """All models, by name."""

    def __init__(self, folders: Sequence[Path], settings: Sequence[str] = ()) -> None:
        homes = [find_model(folder) for folder in folders]
        if len({os.path.realpath(folder) for folder in homes}) < len(homes):
            raise InputError("explore: a model folder is named twice")
        names = short_names(homes)
        self.slots = {name: Slot(name, folder, settings) for name, folder in zip(names, homes, strict=True)}

    def slot(self, name: str) -> Slot:
        """The folder of this name."""
        if name not in self.slots:
            raise Refused(
                404, f"there is no model with this name; there are {', '.join(self.slots)}", "model"
            )
        return self.slots[name]

    def entropy(self, model: Translator) -> EntropyModelCuts | None:
        """What cuts text by entropy: the model's own part, else another model's; None: no model has one."""
        slots = [slot.latest.model for slot in self.slots.values() if slot.latest is not None]
        sources = (other.cuts for other in (model, *slots))
        return next((source for source in sources if isinstance(source, EntropyModelCuts)), None)

    @contextmanager
    def borrow(self, name: str, rate: float | None = None, texts: Sequence[str] = ()) -> Iterator[Loaded]:
        """The model for the calling thread alone, at its own `rate` for `texts`."""
        loaded = self.slot(name).current()
        model = loaded.copy()
        with _at_rate(model, rate, texts):
            yield replace(loaded, model=model)


def live_rate(model: Translator) -> float | None:
    """The characters per segment of a model whose rate can be changed at once; None: it cannot."""
    control, cuts = model.segmenter.control, model.cuts
    if control is not None and (control.by == "scaling" or model.segmenter.settles):
        return control.target.value.item()
    movable = isinstance(cuts, NgramCuts) and not cuts.rise and model.segmenter.needs_given()
    return model.target_length if movable else None


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many before it as make all names different."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = [readable("/".join(part[-length:])) for part in parts]
        if len({*names}) == len(names):
            return names
    return [readable(str(folder)) for folder in folders]


def _copied(model: Translator) -> Translator:
    """Modules and buffers of its own; weights, vocabularies and cuts are shared."""
    shared = [*model.parameters(), model.config, model.src_vocabulary, model.trg_vocabulary]
    shared += [] if model.cuts is None else [model.cuts]
    return copy.deepcopy(model, {id(part): part for part in shared})


@contextmanager
def _at_rate(model: Translator, rate: float | None, texts: Sequence[str]) -> Iterator[None]:
    if rate is None:
        yield
        return
    if live_rate(model) is None:
        raise Refused(422, "the rate of this model cannot be changed without training", "rate")
    control, cuts = model.segmenter.control, model.cuts
    if isinstance(cuts, NgramCuts):
        try:
            model.cuts = _threshold_at(cuts, rate)
            yield
        finally:
            model.cuts = cuts
        return
    assert control is not None
    before, numbers = control.rate, [*model.segmenter.buffers()]
    values = [number.clone() for number in numbers]
    try:
        control.rate = replace(before, target=rate)  # bounds how many segments there is room for
        control.target.value.fill_(rate)
        _settle(model, texts)
        yield
    finally:
        control.rate = before
        for number, value in zip(numbers, values, strict=True):
            number.copy_(value)


def _settle(model: Translator, texts: Sequence[str]) -> None:
    """If the model cuts by a threshold, choose the one that gives these texts the rate."""
    rows = [ids for text in texts if (ids := model.src_vocabulary.encode(text))]
    if rows and model.segmenter.settles:
        batch = collate([(ids, None) for ids in rows]).to(model.device)
        model.segmenter.settle([(batch.src, batch.src_lengths, None)])


def _threshold_at(cuts: NgramCuts, rate: float) -> NgramCuts | None:
    try:
        return cuts.at(round(rate, 2))  # so that thresholds recur
    except ValueError as problem:  # longer than the lines of the training text
        raise Refused(422, f"rate: {problem}", "rate") from problem
