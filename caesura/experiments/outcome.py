"""The outcome of a training of an experiment, read from its folder alone, so that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch

from caesura.components import build_parts
from caesura.config import Config, load_config
from caesura.data.files import checksum, read_json, read_tail
from caesura.data.vocabulary import SPECIALS
from caesura.errors import InputError
from caesura.model_folder import WEIGHTS
from caesura.segmenters.figures import Figure
from caesura.training.checkpoint import Progress, newest_progress
from caesura.training.journal import read_records
from caesura.visible import one_line

Status = Literal["not run", "finished", "budget", "stopped", "failed"]
# Keys of the best validation that are not kept; all others are, the segmenter's figures among them.
LEFT_OUT = ("kind", "epoch", "learning_rate", "verdict", "boundaries", "examples", "headline", "notices")
_FIGURES: dict[str, tuple[Figure, ...]] = {}
STRETCH = 50  # updates: shorter ones, at the start, do not show how long an update takes
_ROUNDING = 1e-3  # seconds by which a training that has spent its budget may seem to be below it


@dataclass(frozen=True)
class Member:
    """One training of an experiment; its output is beside its folder, as FOLDER.log."""

    name: str
    config: Path
    settings: tuple[str, ...]  # such as training.seed=2, over the config
    folder: Path

    @property
    def log(self) -> Path:
        """The file with all its output."""
        return Path(f"{self.folder}.log")

    @property
    def failure(self) -> Path:
        """A file with the reason of its failure, until it is tried again."""
        return Path(f"{self.folder}.failed")

    @property
    def company(self) -> Path:
        """A file with how many processes ran at once, at most, while it trained."""
        return Path(f"{self.folder}.beside")

    @property
    def allowance(self) -> Path:
        """A file with the seconds of training that it was given, where it was given a budget."""
        return Path(f"{self.folder}.budget")

    @property
    def provenance(self) -> Path:
        """A file with its config, calls, versions and devices."""
        return Path(f"{self.folder}.made")

    def read_provenance(self) -> dict[str, Any]:
        """The content of that file; empty if it cannot be read."""
        try:
            return dict(read_json(self.provenance))
        except (OSError, ValueError, TypeError):
            return {}

    def load(self) -> Config:
        """Its config, as training will see it."""
        return load_config(self.config, self.settings)


@dataclass(frozen=True)
class Measure:
    """A measurement of each trained model, by a command that prints one line of JSON.

    The result is kept as NAME.json in the model folder, with the checksum of the measured weights.
    """

    name: str
    command: Callable[[Member], Sequence[str] | None]  # of `python -m`; None: nothing to measure
    doing: str = "measuring"  # the message while it runs

    def path(self, member: Member) -> Path:
        """Where the result is kept."""
        return member.folder / f"{self.name}.json"

    def read(self, member: Member) -> dict[str, Any] | None:
        """The result for the current weights; None if there is none."""
        try:
            result = read_json(self.path(member))
            return result if result["weights"] == weights_checksum(member.folder) else None
        except (OSError, InputError, ValueError, KeyError, TypeError):
            return None


def figures_of(config: Config) -> tuple[Figure, ...]:
    """The figures that the segmenter of a config reports."""
    key = config.model.model_dump_json() + config.data.model_dump_json()
    if key not in _FIGURES:
        with torch.device("meta"):  # shapes without memory
            _FIGURES[key] = build_parts(config, len(SPECIALS) + 1, len(SPECIALS) + 1)[0].figures
    return _FIGURES[key]


def weights_checksum(folder: Path) -> str:
    """The checksum of a model folder's weights."""
    path = folder / WEIGHTS
    facts = path.stat()
    return _checksum(path, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@lru_cache
def _checksum(path: Path, *_: int) -> str:
    return checksum(path)


def _evaluation(member: Member, *options: str) -> Sequence[str] | None:
    config = member.load()
    if config.data.test is None:
        return None
    return "caesura.cli", "evaluate", str(member.folder), "--json", *options, "--device", _device(config)


def _analysis(member: Member, *options: str) -> Sequence[str]:
    words = "caesura.cli", "analyze", str(member.folder), "--json", *options
    return *words, "--device", _device(member.load())


def _robust(member: Member) -> Sequence[str] | None:
    return None if member.load().data.test is None else _analysis(member, "--only", "robust")


def _device(config: Config) -> str:
    """The device of measurements: the same as in training."""
    return "cpu" if config.training.device == "cpu" else "auto"


def cuts_of_dev(gold: str | None = None) -> Measure:
    """Fidelity, flips and where cuts fall, on the dev set; with `gold`, against these segments too."""
    options = "--only", "cuts", "--moved", "60", *(() if gold is None else ("--gold", gold))
    return Measure("cuts", lambda member: _analysis(member, *options), "measuring its cuts")


TEST = Measure("test", _evaluation, "testing")  # scores on the config's test set, with its beam
DETAILED = Measure("test", lambda member: _evaluation(member, "--details"), "testing")
CUTS = cuts_of_dev()
ROBUST = Measure("robust", _robust, "translating with noise and several beams")
INSIDE = Measure("inside", lambda m: _analysis(m, "--only", "inside", "--sample", "200"), "looking inside")
PACKED = {"test": "units", "cuts": "cuts"}  # by measure, what is long and only compared with others


@dataclass(frozen=True)
class Outcome:
    """The progress of a member and its measurements."""

    member: Member
    status: Status
    reason: str  # the stopping rule that ended it, or the message of its failure
    progress: Progress  # counters and seconds of training; zeros where it has not begun
    side_by_side: int  # how many processes ran at once, at most, while it trained
    start: dict[str, Any] | None  # the first record of its log: segments before training, parameters
    validations: list[dict[str, Any]]  # records of its log, without examples
    measured: dict[str, dict[str, Any]]  # by the names of measures; none that are out of date
    budget: float | None = None  # seconds of training that it may take
    made: dict[str, Any] = field(default_factory=dict)  # its config, calls, versions and devices
    kept: str = ""  # the file that it was read from; "": its folder
    milliseconds: float | None = None  # per update, validations left out

    @property
    def best(self) -> dict[str, Any] | None:
        """The validation at which the weights were saved."""
        return next((v for v in reversed(self.validations) if v["verdict"] == "best"), None)

    @property
    def trained(self) -> bool:
        """Whether its training has ended, by a stopping rule or with its budget."""
        return bool(self.progress.finished) or self.status in ("finished", "budget")

    def record(self, packed: bool = True) -> dict[str, Any]:
        """Everything except the curve, for JSON; short without the `packed` parts."""
        best, start, progress = self.best or {}, self.start or {}, self.progress
        began = ["segment_length", "parameters", "src_vocabulary", "trg_vocabulary", "training", "symbols"]
        began.append("device")
        return {
            "name": self.member.name,
            **{key: value for key, value in self.made.items() if key != "config"},
            "status": self.status,
            "reason": self.reason,
            "seconds": round(progress.seconds, 2),
            "budget": self.budget,
            "side_by_side": self.side_by_side,
            "updates": progress.update,
            "milliseconds": self.milliseconds,
            "sentences": progress.sentences,
            "epochs": progress.epoch,
            "start": {key: start[key] for key in began if key in start} or None,
            "best": {key: value for key, value in best.items() if key not in LEFT_OUT} or None,
            "last_segment_length": self.validations[-1]["segment_length"] if self.validations else None,
            "measured": self.measured if packed else unpacked(self.measured),
        }


def unpacked(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Measurements without their packed parts."""
    return {
        name: {key: value for key, value in result.items() if key != PACKED.get(name)}
        for name, result in measured.items()
    }


def read_outcome(member: Member, budget: float | None = None, measures: Sequence[Measure] = ()) -> Outcome:
    """The outcome of a member, from its folder.

    The budget is the one that it was given, unless another is given now; a training that has spent its budget
    goes on only with a larger one.
    """
    progress = newest_progress(member.folder / "checkpoints")
    budget = _allowed(member, progress, budget)
    records = read_records(member.folder)
    status: Status = "stopped"
    reason = ""
    if member.failure.exists():
        status, reason = "failed", one_line(read_tail(member.failure).strip())
    elif progress is None:
        status = "not run"
    elif progress.finished:
        status, reason = "finished", progress.finished
    elif _spent(progress, budget):
        status = "budget"
    results = {measure.name: measure.read(member) for measure in measures}
    return Outcome(
        member,
        status,
        reason,
        progress or Progress(),
        int(_number(member.company) or 1),
        next((r for r in records if r["kind"] == "start"), None),
        [{k: v for k, v in r.items() if k != "examples"} for r in records if r["kind"] == "validation"],
        {name: value for name, value in results.items() if value is not None},
        budget,
        member.read_provenance(),
        milliseconds=milliseconds(records),
    )


def milliseconds(records: Iterable[Mapping[str, Any]]) -> float | None:
    """The median time of an update, over stretches of the log without a validation; None without any."""
    before: Mapping[str, Any] | None = None
    times = []
    for record in records:
        if record["kind"] == "validation":
            before = None
        elif record["kind"] == "train" and "seconds" in record:
            if before is not None and (updates := record["update"] - before["update"]) >= STRETCH:
                times.append(1000 * (record["seconds"] - before["seconds"]) / updates)
            before = record
    return rounded(median(times)) if times else None


def rounded(value: Any) -> Any:
    """A number as results keep it."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _allowed(member: Member, progress: Progress | None, budget: float | None) -> float | None:
    allowance = _number(member.allowance)
    if allowance is None or budget is None:
        return allowance if budget is None else budget
    return max(allowance, budget) if progress is not None and _spent(progress, allowance) else budget


def _spent(progress: Progress, budget: float | None) -> bool:
    """Whether nothing is left of it; a last validation, off the clock, belongs to it."""
    over = budget is not None and progress.seconds >= budget - _ROUNDING
    return over and not progress.since_validation


def _number(path: Path) -> float | None:
    """The number in a file; None if there is none."""
    try:
        return float(read_tail(path, 100))
    except (OSError, ValueError):
        return None
