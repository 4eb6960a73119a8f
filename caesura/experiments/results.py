"""What a recipe's systems came to: tables with the paper's rows beneath ours, and short logs."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.analysis.tables import Cell, Column, Table
from caesura.data.files import write_beside
from caesura.errors import InputError
from caesura.experiments.outcome import TEST, Member, Outcome, further, read_outcome
from caesura.experiments.recipe import Paper, System
from caesura.model_folder import WEIGHTS
from caesura.terminal import duration
from caesura.training.checkpoint import Progress
from caesura.training.journal import read_records, renamed

SCORES = ("bleu", "chrf", "chrf_bigram")
METRICS_BYTES = 30_000  # of a log that is kept
REASON = 160  # characters of a failure that a table shows
FALLEN = 0.9  # of the best BLEU on dev: what ends below it is told


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
    """The mean and the deviation of what is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Result:
    """A system and what became of its trainings."""

    system: System
    outcomes: dict[int, Outcome]  # by seed

    def figure(self, name: str) -> Spread | None:
        """One of FIGURES over the seeds that it is of."""
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
        """The seed that did best on dev; of those that are through, where any is."""
        return _best(self.outcomes.values())

    @property
    def at_hand(self) -> Outcome | None:
        """The best of those whose weights are there."""
        there = [o for o in self.outcomes.values() if not o.kept and (o.member.folder / WEIGHTS).exists()]
        return _best(there)

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        means = {name: self.figure(name) for name in FIGURES}
        return {
            "name": self.system.name,
            "title": self.system.title,
            "figures": {name: vars(found) for name, found in means.items() if found is not None},
            "paper": self.system.paper and self.system.paper.model_dump(exclude_none=True),
            "seeds": {seed: outcome.record() for seed, outcome in self.outcomes.items()},
        }


def _best(outcomes: Iterable[Outcome]) -> Outcome | None:
    found = [outcome for outcome in outcomes if outcome.best]
    found = [outcome for outcome in found if outcome.trained] or found
    return max(found, key=lambda outcome: (outcome.best or {})["bleu"], default=None)


def _tested(metric: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.measured["test"]["scores"][metric] if "test" in outcome.measured else None


def _at_best(key: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.best[key] if outcome.best else None


def _at_start(key: str) -> Callable[[Outcome], float | None]:
    return lambda outcome: outcome.start[key] if outcome.start else None


def _pairs(start: dict[str, Any]) -> int | None:
    """Those that were trained on, as the corpus reported them."""
    found = re.search(r"(\d+) kept", start["training"])
    return None if found is None else int(found[1])


FIGURES: dict[str, Callable[[Outcome], float | None]] = {
    "bleu": _tested("bleu"),
    "chrf": _tested("chrf"),
    "chrf_bigram": _tested("chrf_bigram"),
    "dev_bleu": _at_best("bleu"),
    "dev_chrf": _at_best("chrf"),
    "parameters": _at_start("parameters"),
    "pairs": lambda outcome: _pairs(outcome.start) if outcome.start else None,
    "segment_length": _at_best("segment_length"),
    "longest_segment": _at_best("longest_segment"),
    "segment_length_at_start": _at_start("segment_length"),
    "seconds_to_best": _at_best("seconds"),
    "seconds": lambda outcome: outcome.progress.seconds or None,
    "updates": lambda outcome: outcome.progress.update or None,
    "epochs": lambda outcome: outcome.progress.epoch if outcome.progress.update else None,
}
TIMES = ("seconds_to_best", "seconds")


def comparison_table(name: str, title: str, results: Sequence[Result]) -> Table:
    """Ours, one row per system, with the paper's row beneath each that it has."""
    heads = ["BLEU", "chrF2", "BLEU, dev", "parameters", "pairs", "segments (longest)", "to best", "trained"]
    columns = [Column("system"), Column("seeds", "d"), *(Column(head, "s") for head in heads)]
    columns.append(Column("ended by"))
    each = len(budgets(results)) > 1
    if each:
        columns.append(Column("budget"))
    rows: list[list[Cell]] = []
    for result in results:
        given: list[Cell] = [", ".join(map(duration, budgets([result])))] if each else []
        rows.append([result.system.title, *_ours(result), *given])
        if (paper := result.system.paper) is not None:
            rows.append([f"the paper's {paper.system or ''}".strip(), *_papers(paper), *([None] * each)])
    return Table(name, title, columns, rows)


def budgets(results: Sequence[Result]) -> list[float]:
    """The budgets that were given, each once, the smallest first."""
    given = {outcome.budget for result in results for outcome in result.outcomes.values()}
    return sorted(budget for budget in given if budget is not None)


def _ours(result: Result) -> list[Cell]:
    def shown(name: str, form: str) -> str:
        found = result.figure(name)
        return "" if found is None else found.show(form)

    parameters = result.figure("parameters")
    tested = result.figure("bleu")
    longest = max((o.best["longest_segment"] for o in result.counted if o.best), default=None)
    return [
        tested.count if tested else sum(outcome.best is not None for outcome in result.counted),
        shown("bleu", ".2f"),
        shown("chrf", ".2f"),
        shown("dev_bleu", ".2f"),
        "" if parameters is None else _millions(parameters.mean),
        shown("pairs", ",.0f").partition(" ± 0")[0],
        "" if longest is None else _segments(shown("segment_length", ".2f"), longest),
        time_shown(result, "seconds_to_best"),
        time_shown(result, "seconds"),
        endings(result),
    ]


def _papers(paper: Paper) -> list[Cell]:
    return [
        None,
        None if paper.bleu is None else f"{paper.bleu:.2f}",
        None if paper.chrf is None else f"{100 * paper.chrf:.0f}",
        None,
        None if paper.parameters is None else _millions(paper.parameters),
        None,
        None
        if paper.segment_length is None
        else _segments(f"{paper.segment_length:.2f}", paper.longest_segment),
        None,
        paper.training_time,
        None,
    ]


def _segments(mean: str, longest: int | None) -> str:
    return mean if longest is None else f"{mean} ({longest})"


def _millions(parameters: float) -> str:
    return f"{parameters / 1e6:.1f}M" if parameters >= 1e5 else f"{parameters:,.0f}"


def time_shown(result: Result, name: str) -> str:
    """The mean over seeds, with a star where none had the machine to itself."""
    found = result.figure(name)
    return "" if found is None else duration(found.mean) + "*" * (result.together > 1)


def timing(results: Sequence[Result]) -> list[str]:
    """Which seeds the times are of, where not of all, and what the star means, where there is one."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.timed and result.together == 1 < max(o.side_by_side for o in result.counted):
            seeds = [str(seed) for seed, outcome in result.outcomes.items() if outcome in result.timed]
            groups.setdefault(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}", []).append(result)
    told = [f"{', '.join(r.system.title for r in some)}: {seeds}" for seeds, some in groups.items()]
    if [*groups.values()] == [[*results]]:
        told = [*groups]
    notes = [f"Times are of the seeds that ran alone ({'; '.join(told)})."] if told else []
    if (together := max(result.together for result in results)) > 1:
        notes.append(f"* up to {together} processes ran side by side, which makes each slower.")
    return notes


def endings(result: Result) -> str:
    """What ended each seed's training, alike ones together."""
    found: dict[str, list[int]] = {}
    for seed, outcome in result.outcomes.items():
        found.setdefault(ending(outcome), []).append(seed)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"seed {', '.join(map(str, seeds))}: {text}" for text, seeds in found.items())


def ending(outcome: Outcome) -> str:
    """What ended a training, in a few words."""
    if outcome.status == "failed":
        reason = outcome.reason
        return "failed: " + (reason if len(reason) <= REASON else reason[: REASON - 3] + "...")
    named = {"budget": "its budget", "stopped": "not done yet", "finished": outcome.reason}
    text = named.get(outcome.status, outcome.status)
    return text if outcome.best or outcome.status == "not run" else f"{text}, before a validation"


def fallen(results: Sequence[Result]) -> list[str]:
    """Those that were well below their best when training ended, which a row of the best does not show."""
    notes = []
    for result in results:
        for seed, outcome in result.outcomes.items():
            best, last = outcome.best, outcome.validations[-1] if outcome.validations else None
            if best and last and last["bleu"] < FALLEN * best["bleu"]:
                ends = f"{last['bleu']:.2f} BLEU on dev and segments of {last['segment_length']:.2f}"
                was = f"{best['bleu']:.2f} and {best['segment_length']:.2f} at its best, which is shown"
                notes.append(f"{result.system.title}, seed {seed}, ended at {ends}; {was}.")
    return notes


def signatures(results: Sequence[Result]) -> list[str]:
    """Those of all test scores, each once."""
    scores = [
        o.measured["test"]["scores"] for r in results for o in r.outcomes.values() if "test" in o.measured
    ]
    return list(dict.fromkeys(s["signatures"][metric] for metric in SCORES for s in scores))


def seeds_table(results: Sequence[Result]) -> Table:
    """Every training, and the paper's rows, as numbers: the CSV."""
    columns = [Column(head) for head in ("table", "system", "by", "seed", "status", "reason")]
    columns += [Column(name, "g") for name in FIGURES]
    columns += [Column("side_by_side", "d"), Column("training_time")]
    rows: list[list[Cell]] = []
    for result in results:
        system = result.system
        for seed, outcome in result.outcomes.items():
            figures = [figure(outcome) for figure in FIGURES.values()]
            about: list[Cell] = [system.table, system.row, "ours", seed, outcome.status, outcome.reason]
            rows.append([*about, *figures, outcome.side_by_side, None])
        if (paper := system.paper) is not None:
            known = paper.model_dump()
            known["chrf"] = None if paper.chrf is None else round(100 * paper.chrf, 1)
            figures = [known.get(name) for name in FIGURES]
            rows.append(
                [system.table, system.row, "paper", None, None, None, *figures, None, paper.training_time]
            )
    return Table("seeds", "every training", columns, rows)


def compact_metrics(outcome: Outcome) -> str:
    """A training's log without examples, and with as many of its training lines as fit."""
    left_out = {"examples", "signatures", "boundaries"}
    records = read_records(outcome.member.folder)
    kept = [{k: rounded(v) for k, v in r.items() if k not in left_out and v is not None} for r in records]
    lines = [json.dumps(record, ensure_ascii=False) for record in kept]
    end = json.dumps({"kind": "end", **outcome.record()}, ensure_ascii=False)
    training = [i for i, record in enumerate(kept) if record["kind"] == "train"]
    others = {*range(len(lines))} - {*training}
    room = METRICS_BYTES - len(end.encode()) - sum(len(lines[i].encode()) + 1 for i in others)
    every = 1
    while (shown := training[every - 1 :: every]) and sum(len(lines[i]) + 1 for i in shown) > room:
        every += 1
    return "".join(f"{line}\n" for line in [*(lines[i] for i in sorted(others | {*shown})), end])


def rounded(value: Any) -> Any:
    """As the logs that are kept have it."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def keep_metrics(out: Path, results: Sequence[Result]) -> None:
    """Write metrics/NAME.jsonl of all that have begun."""
    (out / "metrics").mkdir(exist_ok=True)
    for result in results:
        for outcome in result.outcomes.values():
            if outcome.start is not None and not outcome.kept:
                with write_beside(kept_metrics(out, outcome.member)) as file:
                    file.write(compact_metrics(outcome).encode())


def kept_metrics(out: Path, member: Member) -> Path:
    """Where a member's log is kept."""
    return out / "metrics" / f"{member.folder.name}.jsonl"


def read_member(out: Path, member: Member) -> Outcome:
    """By its folder, or the log that was kept where that is gone or not as far, as when trained again."""
    path, found = kept_metrics(out, member), read_outcome(member, None, (TEST,))
    if path.exists() and not (found.trained and TEST.name in found.measured):
        kept = read_kept(path, member)
        return kept if further(kept, found, (TEST,)) else found
    return found


def read_kept(path: Path, member: Member) -> Outcome:
    """What the log that was kept of a member tells of it, whose folder is gone, as on another machine."""
    try:
        *way, end = (renamed(json.loads(line)) for line in path.read_bytes().splitlines())
        start = {k: v for r in way if r["kind"] == "start" for k, v in r.items()} | (end["start"] or {})
        validations = [r for r in way if r["kind"] == "validation"]
        if validations:  # the log is rounded; what it ends with is not
            validations[-1]["segment_length"] = end["last_segment_length"]
            next(v for v in reversed(validations) if v["verdict"] == "best").update(renamed(end["best"]))
        finished = end["reason"] if end["status"] == "finished" else ""
        counters = {"update": end["updates"], "epoch": end["epochs"], "sentences": end["sentences"]}
        progress = Progress(**counters, seconds=end["seconds"], finished=finished)
        made = {key: end[key] for key in ("digest", "settings", "beam", "by")}
        facts = (end["status"], end["reason"], progress, end["side_by_side"], start, validations)
        return Outcome(member, *facts, end["measured"], end["budget"], made, f"metrics/{path.name}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise InputError(
            f"{path}: is not whole ({reason}); bring it back, or remove it and its row"
        ) from problem
