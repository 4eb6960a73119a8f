"""Results of a recipe's systems over seeds, and the short logs that are kept of their trainings."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.analysis.agreement import ALONE
from caesura.data.files import JSON_BYTES, JSON_VALUES, check_values, read_at_most, write_whole
from caesura.data.held import make_folder
from caesura.errors import InputError
from caesura.experiments.outcome import CUTS, Member, Outcome, milliseconds, rounded, unpacked
from caesura.experiments.recipe import RecipeSystem
from caesura.model_folder import WEIGHTS
from caesura.training.checkpoint import Progress
from caesura.training.journal import read_records, renamed

METRICS_BYTES = 30_000  # per kept log, without its packed parts


@dataclass(frozen=True)
class Spread:
    """A figure over seeds."""

    mean: float
    deviation: float | None  # the sample's standard deviation; None for one seed
    count: int

    def show(self, form: str) -> str:
        """22.31 ± 0.25."""
        shown = format(self.mean, form)
        return shown if self.deviation is None else f"{shown} ± {format(self.deviation, form)}"


def spread(values: Iterable[float | None]) -> Spread | None:
    """The mean and the deviation of the numbers; None if there are none."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return Spread(
        statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, len(numbers)
    )


@dataclass(frozen=True)
class SystemResult:
    """A system and the outcomes of its trainings."""

    system: RecipeSystem
    outcomes: dict[int, Outcome]  # by seed

    def figure(self, name: str) -> Spread | None:
        """One of FIGURES over the seeds that have it."""
        return spread(map(FIGURES[name], self.timed if name in TIMES else self.counted))

    @property
    def counted(self) -> list[Outcome]:
        """The outcomes that a row averages: the tested, before there are any the validated, or else all."""
        all_of = [*self.outcomes.values()]
        tested = [outcome for outcome in all_of if "test" in outcome.measured]
        return tested or [outcome for outcome in all_of if outcome.best] or all_of

    @property
    def timed(self) -> list[Outcome]:
        """The outcomes whose times a row averages: the counted that ran alone, or else all."""
        ran = [outcome for outcome in self.counted if outcome.progress.seconds]
        return [outcome for outcome in ran if outcome.side_by_side == 1] or ran

    @property
    def together(self) -> int:
        """How many processes ran at once, at most, while its times were taken."""
        return max((outcome.side_by_side for outcome in self.timed), default=1)

    @property
    def best(self) -> Outcome | None:
        """The seed that did best on dev, among the finished ones if there are any."""
        return _best(self.outcomes.values())

    @property
    def at_hand(self) -> Outcome | None:
        """The best seed whose weights are in its folder."""
        with_weights = [
            o for o in self.outcomes.values() if not o.kept and (o.member.folder / WEIGHTS).exists()
        ]
        return _best(with_weights)

    def record(self) -> dict[str, Any]:
        """The system and its outcomes, for JSON."""
        means = {name: self.figure(name) for name in FIGURES}
        return {
            "name": self.system.name,
            "title": self.system.title,
            "figures": {name: vars(spread) for name, spread in means.items() if spread is not None},
            "paper": self.system.paper and self.system.paper.model_dump(exclude_none=True),
            "seeds": {seed: outcome.record(packed=False) for seed, outcome in self.outcomes.items()},
        }


def by_table(results: Iterable[SystemResult]) -> dict[str, list[SystemResult]]:
    """The results of each table, by its name."""
    tables: dict[str, list[SystemResult]] = {}
    for result in results:
        tables.setdefault(result.system.table, []).append(result)
    return tables


def _best(outcomes: Iterable[Outcome]) -> Outcome | None:
    candidates = [outcome for outcome in outcomes if outcome.best]
    candidates = [outcome for outcome in candidates if outcome.trained] or candidates
    return max(candidates, key=lambda outcome: (outcome.best or {})["bleu"], default=None)


def _tested(metric: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.measured["test"]["scores"][metric] if "test" in outcome.measured else None


def _at_best(key: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.best.get(key) if outcome.best else None


def _at_start(key: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.start[key] if outcome.start else None


def _of_cuts(*path: str) -> Callable[[Outcome], float | None]:
    """A number in the measurements of cuts; None where there is none, such as for cuts that do not learn."""

    def find(outcome: Outcome) -> float | None:
        value: Any = outcome.measured.get(CUTS.name)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, int | float) else None

    return find


def _of_gold(kind: str) -> Callable[[Outcome], float | None]:
    """A score against gold segments, of the gold's own text where there is one."""

    def find(outcome: Outcome) -> float | None:
        tables = (outcome.measured.get(CUTS.name) or {}).get("boundaries") or {}
        gold = [name for name in tables if not name.startswith("white space")]
        alone = [name for name in gold if name.endswith(ALONE)] or gold
        return tables[alone[0]].get(kind) if alone else None

    return find


def _unseen(outcome: Outcome) -> dict[str, Any]:
    """The scores of the test lines that are not in the training text; empty where all are so."""
    test = outcome.measured.get("test") or {}
    part = test.get("unseen") or {}
    return part if part and part["sentences"] < test["scores"]["sentences"] else {}


def _decoding(outcome: Outcome) -> float | None:
    """Seconds per sentence of the test set, with its beam."""
    test = outcome.measured.get("test") or {}
    return test["seconds"] / test["scores"]["sentences"] if "seconds" in test else None


def _pairs(start: dict[str, Any]) -> int | None:
    """The number of training pairs, as the corpus reported it."""
    match = re.search(r"(\d+) kept", start["training"])
    return None if match is None else int(match[1])


FIGURES: dict[str, Callable[[Outcome], float | None]] = {
    "bleu": _tested("bleu"),
    "chrf": _tested("chrf"),
    "chrf_bigram": _tested("chrf_bigram"),
    "unseen_bleu": lambda outcome: _unseen(outcome).get("bleu"),
    "unseen_chrf": lambda outcome: _unseen(outcome).get("chrf"),
    "unseen": lambda outcome: _unseen(outcome).get("sentences"),
    "dev_bleu": _at_best("bleu"),
    "dev_chrf": _at_best("chrf"),
    "parameters": _at_start("parameters"),
    "pairs": lambda outcome: _pairs(outcome.start) if outcome.start else None,
    "target_length": _at_best("target_length"),
    "segment_length": _at_best("segment_length"),
    "longest_segment": _at_best("longest_segment"),
    "segment_length_at_start": _at_start("segment_length"),
    "fidelity": _of_cuts("fidelity", "cosine"),
    "fidelity_error": _of_cuts("fidelity", "cosine_error"),
    "flip_gain": _of_cuts("flips", "best"),
    "greedy_gain": _of_cuts("flips", "greedy"),
    "boundary_f1": _of_cuts("boundaries", "white space", "f1"),
    "boundary_chance": _of_cuts("boundaries", "white space", "chance"),
    "either_f1": _of_cuts("boundaries", "white space, either side", "f1"),
    "either_chance": _of_cuts("boundaries", "white space, either side", "chance"),
    "gold_f1": _of_gold("f1"),
    "gold_chance": _of_gold("chance"),
    "surprisal": _of_cuts("surprisal", "enrichment"),
    "decoding": _decoding,
    "milliseconds": lambda outcome: outcome.milliseconds,
    "seconds_to_best": _at_best("seconds"),
    "seconds": lambda outcome: outcome.progress.seconds or None,
    "updates": lambda outcome: outcome.progress.update or None,
    "epochs": lambda outcome: outcome.progress.epoch if outcome.progress.update else None,
}
TIMES = ("decoding", "milliseconds", "seconds_to_best", "seconds")


def compact_metrics(outcome: Outcome) -> str:
    """A training's log without examples, and with as many of its training lines as fit."""
    left_out = {"examples", "signatures", "boundaries"}
    records = read_records(outcome.member.folder)
    kept = [{k: rounded(v) for k, v in r.items() if k not in left_out and v is not None} for r in records]
    lines = [json.dumps(record, ensure_ascii=False) for record in kept]
    config = {key: value for key, value in outcome.made.items() if key == "config"}
    end = {"kind": "end", **outcome.record(), **config}
    short = json.dumps(end | {"measured": unpacked(outcome.measured)}, ensure_ascii=False)
    training = [i for i, record in enumerate(kept) if record["kind"] == "train"]
    others = {*range(len(lines))} - {*training}
    room = METRICS_BYTES - len(short.encode()) - sum(len(lines[i].encode()) + 1 for i in others)
    every = 1
    while (shown := training[every - 1 :: every]) and sum(len(lines[i]) + 1 for i in shown) > room:
        every += 1
    kept_lines = [*(lines[i] for i in sorted(others | {*shown})), json.dumps(end, ensure_ascii=False)]
    return "".join(f"{line}\n" for line in kept_lines)


def keep_metrics(out: Path, results: Sequence[SystemResult]) -> None:
    """Write metrics/NAME.jsonl for every training that has begun."""
    make_folder(out / "metrics")
    for result in results:
        for outcome in result.outcomes.values():
            if outcome.start is not None and not outcome.kept:
                write_whole(kept_metrics(out, outcome.member), compact_metrics(outcome))


def kept_metrics(out: Path, member: Member) -> Path:
    """Where a member's log is kept."""
    return out / "metrics" / f"{member.folder.name}.jsonl"


def read_kept(out: Path, member: Member) -> Outcome | None:
    """The outcome of a member from its kept log; its folder may be gone, as on another machine."""
    path = kept_metrics(out, member)
    if not path.exists():
        return None
    try:
        check_values(content := read_at_most(path, JSON_BYTES), JSON_VALUES)
        *way, end = (renamed(json.loads(line)) for line in content.splitlines())
        start = {k: v for r in way if r["kind"] == "start" for k, v in r.items()} | (end["start"] or {})
        validations = [r for r in way if r["kind"] == "validation"]
        if validations:  # the log is rounded, its last line is not
            validations[-1]["segment_length"] = end["last_segment_length"]
            next(v for v in reversed(validations) if v["verdict"] == "best").update(renamed(end["best"]))
        finished = end["reason"] if end["status"] == "finished" else ""
        counters = {"update": end["updates"], "epoch": end["epochs"], "sentences": end["sentences"]}
        progress = Progress(**counters, seconds=end["seconds"], finished=finished)
        provenance = {key: end[key] for key in ("digest", "settings", "beam", "by")}
        provenance |= {"config": end["config"]} if "config" in end else {}  # which earlier versions lack
        facts = (end["status"], end["reason"], progress, end["side_by_side"], start, validations)
        pace = end["milliseconds"] if "milliseconds" in end else milliseconds(way)
        return Outcome(
            member, *facts, end["measured"], end["budget"], provenance, f"metrics/{path.name}", pace
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        StopIteration,
        RecursionError,
    ) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise InputError(
            f"{path}: is not whole ({reason}); bring it back, or remove it and its row"
        ) from problem
