"""`caesura sweep`: trainings that differ in a few settings, under one budget, as tables and figures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from caesura.analysis.plots import save as save_figure
from caesura.data.files import checksum, refuse_unwritable, write_beside
from caesura.data.held import make_folder
from caesura.errors import InputError
from caesura.experiments import sweep_search as search
from caesura.experiments.fleet import Limits, Watcher, check_members, run_fleet
from caesura.experiments.outcome import (
    TEST,
    Measure,
    Member,
    Outcome,
    figures_of,
    further,
    milliseconds,
    read_outcome,
    stands,
)
from caesura.experiments.provenance import described, digest, made_by
from caesura.experiments.sweep_figures import figures
from caesura.experiments.sweep_grid import Plan, Point, at, cross, parse_over, points, read_rows, shown
from caesura.experiments.sweep_results import (
    SWEEP,
    Result,
    Shown,
    Sweep,
    chosen,
    curve,
    differences,
    load,
    merge,
    rounded,
    save,
    seedless,
    told_apart,
    training_curve,
)
from caesura.experiments.sweep_tables import groups_table, markdown, runs_table
from caesura.training.checkpoint import Progress
from caesura.training.journal import read_records
from caesura.training.lock import hold

RUNS = "runs"


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    config: Path
    out: Path
    over: Sequence[str] = ()
    listed: Path | None = None
    common: Sequence[str] = ()
    seeds: Sequence[int] | None = None
    beside: Sequence[Path] = ()
    gold: str | None = None
    test: bool = True  # evaluate each on the test set
    trials: int | None = None  # of a search; None: a grid or a list
    data: Path | None = None  # a folder with the text of all
    limits: Limits = Limits()  # noqa: RUF009  frozen


def run_sweep(request: Request, watcher: Watcher) -> bool:
    """Train what is not trained yet, measure it, write everything; False where something failed.

    Whatever ends it, tables and figures of what there is are written; the same request goes on from there.
    """
    measures = (*((TEST,) if request.test else ()), cuts_measure(request.gold))
    if request.trials is not None:
        searched = _Search(request, measures)
        with hold(request.out, watcher.say):
            return searched.run(watcher)
    found = points(_plan(request, _rows(request)))
    check_members(_members(found, request.out))
    _refuse_others(request.out, found)
    over = list(dict.fromkeys(key for point in found for key in point.values))
    with hold(request.out, watcher.say):
        try:
            _train(request, found, over, measures, watcher, request.limits)
        finally:
            sweep = write(request, found, over, measures)
            draw(sweep, request.out)
    return _good(request, found)


def _good(request: Request, found: Sequence[Point]) -> bool:
    return not any(member.failure.exists() for member in _members(found, request.out))


def _train(
    request: Request,
    found: Sequence[Point],
    over: Sequence[str],
    measures: Sequence[Measure],
    watcher: Watcher,
    limits: Limits,
) -> bool:
    """Train and measure; sweep.json is written whenever a run is through, for whoever kills us."""

    def settled() -> None:
        write(request, found, over, measures)

    before = _before(request.out)
    members = []
    for point, member in zip(found, _members(found, request.out), strict=True):
        run = _known(before, point)
        if not (run and stands(as_outcome(run, member), limits.budget, measures, watcher.say)):
            members.append(member)
    return run_fleet(members, limits, watcher, measures, settled)


def _before(out: Path) -> Sweep:
    path = out / SWEEP
    return load(path) if path.exists() else Sweep([], None, [], {}, [])


def _refuse_others(out: Path, found: Sequence[Point]) -> None:
    """Refuse to replace what sweep.json has of a run by one of the same name and another config."""
    before = _before(out)
    kept = {(run.config, run.name): run for run in before.runs if run.sentences and run.status != "failed"}
    for point in found:
        run, tree = kept.get((point.config.name, point.name)), described(point.config)
        if run is None or run.digest == digest(tree):
            continue
        old = before.config(run)
        changes = [f"{key}: {shown(at(old, key))} -> {shown(v)}" for key, v in differences(old, tree).items()]
        listed = f" ({'; '.join(changes)})" if run.base in before.configs else ""
        raise InputError(
            f"{out / SWEEP}: {run.name} was trained with another config{listed}; "
            "undo that or choose another --out"
        )


def _known(before: Sweep, point: Point) -> Result | None:
    """What an earlier call has kept of a run."""
    mark = digest(described(point.config))
    return next((run for run in before.runs if (run.digest, run.name) == (mark, point.name)), None)


def cuts_measure(gold: str | None) -> Measure:
    """Where each trained model cuts; measured again where the gold is another one."""
    name = "cuts" if gold is None else f"cuts-{checksum(gold)[:8]}"
    option = () if gold is None else ("--gold", gold)
    command = "caesura.experiments.cuts"
    return Measure(name, lambda member: (command, str(member.folder), *option), "measuring its cuts")


def _rows(request: Request) -> Any:
    alone = not request.beside and len(request.seeds or ()) < 2
    if request.listed is None and not request.over and alone:
        raise InputError(
            f"{request.config}: nothing to sweep over; give --over KEY=V1,V2, --list FILE, --seeds 1,2 "
            "or --beside CONFIG; `caesura train` trains one model"
        )
    if request.listed is None:
        return cross([parse_over(text) for text in request.over])
    if request.over:
        raise InputError("--over makes a grid and --list names its members; choose one")
    return read_rows(request.listed)


def _plan(request: Request, rows: Any) -> Plan:
    return Plan(request.config, rows, request.common, request.seeds, request.beside, request.data)


def _members(found: Sequence[Point], out: Path) -> list[Member]:
    return [Member(p.name, p.path, p.changes, out / RUNS / p.folder) for p in found]


def write(
    request: Request, found: Sequence[Point], over: Sequence[str], measures: Sequence[Measure]
) -> Sweep:
    """Write sweep.json, and read it back; runs that an earlier request has left there stay."""
    limits, before = request.limits, _before(request.out)
    read = [*dict.fromkeys((TEST, *measures))]  # with --no-test, what was tested before stays
    outcomes = [read_outcome(m, limits.budget, read) for m in _members(found, request.out)]
    bases = {point.config.name: described(point.config) for point in reversed(found)}
    runs = []
    for point, outcome in zip(found, outcomes, strict=True):
        known = _known(before, point)
        ahead = known and further(as_outcome(known, outcome.member), outcome, measures)
        runs.append(known if known and ahead else collect(point, outcome, bases[point.config.name]))
    said = [text for outcome in outcomes for text in _signatures(outcome)]
    own = {(run.config, run.name) for run in runs}
    left = [run for run in before.runs if (run.config, run.name) not in own]
    configs = before.configs | {digest(base): base for base in bases.values()}
    sweep = Sweep(
        over=list(dict.fromkeys([*over, *before.over])),
        budget=limits.budget if not left or before.budget == limits.budget else None,
        signatures=list(dict.fromkeys([*said, *before.signatures])),
        configs={key: configs[key] for key in {run.base: 0 for run in runs + left} if key in configs},
        runs=runs + left,
        made=list(dict.fromkeys([*before.made, *made_by([outcome.made for outcome in outcomes])])),
        figures=before.figures | {f.name: Shown.of(f) for p in found for f in figures_of(p.config)},
    )
    save(sweep, request.out / SWEEP)
    return load(request.out / SWEEP)


def as_outcome(run: Result, member: Member) -> Outcome:
    """What an earlier call has kept of a run, perhaps elsewhere."""
    progress = Progress(run.updates, run.epochs, sentences=run.sentences, seconds=run.seconds)
    best = [] if run.best is None else [{"verdict": "best"}]
    measured: dict[str, dict[str, Any]] = {name: {} for name in run.measured}
    budget = run.budget
    if budget is None and run.status == "budget":  # kept by an earlier version: what it took, rounded
        budget = run.seconds + 0.1
    facts = (run.status, run.reason, progress, run.parallel, None, best, measured)
    return Outcome(member, *facts, budget, kept=SWEEP)


def collect(point: Point, outcome: Outcome, base: dict[str, Any]) -> Result:
    """What is kept of a run; of its config, what differs from `base`."""
    progress, start = outcome.progress, outcome.start or {}
    records = read_records(outcome.member.folder)
    own = [figure.name for figure in figures_of(point.config)]
    found, best = curve(outcome.start, outcome.validations, own)
    tested = outcome.measured.get("test", {}).get("scores")
    cuts: dict[str, Any] = next((v for k, v in outcome.measured.items() if k.startswith("cuts")), {})
    return Result(
        name=point.name,
        config=point.config.name,
        digest=digest(described(point.config)),
        settings={**differences(base, described(point.config)), **point.values},
        base=digest(base),
        alike=digest(seedless(described(point.config))),
        seed=point.seed,
        beside=point.beside,
        status=outcome.status,
        reason=outcome.reason,
        updates=progress.update,
        sentences=progress.sentences,
        epochs=progress.epoch,
        seconds=round(progress.seconds, 1),
        budget=outcome.budget,
        parallel=outcome.side_by_side,
        parameters=start.get("parameters"),
        device=start.get("device"),
        milliseconds=milliseconds(records),
        curve=found,
        training=training_curve(records, own),
        best=best,
        measured=[*outcome.measured],
        test={key: _number(tested[key]) for key in ("bleu", "chrf", "chrf_bigram", "exact")}
        if tested
        else None,
        boundaries={name: _numbers(row) for name, row in cuts.get("boundaries", {}).items()},
        coordination={side: row and _numbers(row) for side, row in cuts.get("coordination", {}).items()},
    )


def _number(value: Any) -> float:
    return rounded(value) or 0.0


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {key: number for key, value in row.items() if (number := rounded(value)) is not None}


def _signatures(outcome: Outcome) -> list[str]:
    last = outcome.validations[-1].get("signatures", {}) if outcome.validations else {}
    tested = outcome.measured.get("test", {}).get("scores", {}).get("signatures", {})
    return [*last.values(), *tested.values()]


def draw(sweep: Sweep, out: Path) -> list[Path]:
    """Write the tables and figures of a sweep; the files."""
    sweep = told_apart(sweep)
    texts = {
        "table.md": markdown(sweep),
        "table.csv": runs_table(sweep).csv(),
        "groups.csv": groups_table(sweep).csv(),
    }
    make_folder(out)
    written = [out / name for name in texts]
    for path, text in zip(written, texts.values(), strict=True):
        with write_beside(path) as file:
            file.write(text.encode())
    for name, figure in figures(sweep).items():
        written += save_figure(figure, out / "figures" / name)
    return written


def redraw(files: Sequence[Path], out: Path, over: Sequence[str]) -> list[Path]:
    """Draw committed results again, those of several files together.

    Given `over`, as for a grid: only runs with these values, looking as in a sweep over those keys.
    """
    sweep = merge([load(file) for file in files])
    if over:
        sweep = chosen(sweep, [parse_over(text) for text in over])
    with refuse_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    return draw(sweep, out)


def _rest(limits: Limits, elapsed: float) -> Limits:
    """The limits of the rest of a call."""
    left = None if limits.time_limit is None else max(0.0, limits.time_limit - elapsed)
    return replace(limits, time_limit=left)


class _Search:
    """A sweep whose settings are drawn, a round of `parallel` trials at a time."""

    def __init__(self, request: Request, measures: Sequence[Measure]) -> None:
        if request.listed is not None:
            raise InputError("--search draws from --over and --list names its members; choose one")
        if not request.over:
            raise InputError("--search: nothing to search over; --over model.segmenter.tau=0.01:1:log")
        self.request, self.measures = request, measures
        self.dimensions = [search.parse_dimension(text) for text in request.over]
        self.over = [dimension.key for dimension in self.dimensions]
        for row in cross(search.ends(self.dimensions)):
            check_members(_members(points(_plan(request, [row])), request.out))
        self.trials: list[search.Trial] = []
        search.propose(self.dimensions, [], [], 0)  # the extra is there

    def run(self, watcher: Watcher) -> bool:
        """Draw and train until there are as many trials as wanted, or nothing new is left to draw."""
        request, wanted = self.request, self.request.trials or 0
        self.trials = search.read_trials(request.out, self.dimensions)
        found = points(_plan(request, [search.row(trial) for trial in self.trials])) if self.trials else []
        _refuse_others(request.out, found)
        began = time.monotonic()
        try:
            while True:
                rows = [search.row(trial) for trial in self.trials]
                found = points(_plan(request, rows)) if rows else []
                limits = _rest(request.limits, time.monotonic() - began)
                if found and not _train(request, found, self.over, self.measures, watcher, limits):
                    break
                more = min(request.limits.parallel, wanted - len(self.trials))
                drawn = search.propose(self.dimensions, self.trials, self._scores(found), max(more, 0))
                if not drawn:
                    break
                self.trials += drawn
                search.save_trials(request.out, self.dimensions, self.trials)
        finally:
            sweep = write(request, found, self.over, self.measures)
            draw(sweep, request.out)
        return _good(request, found)

    def _scores(self, found: Sequence[Point]) -> list[float | None]:
        """The best BLEU of each trial, a mean over its seeds; None where one of them has none."""
        runs = {run.name: run for run in write(self.request, found, self.over, self.measures).runs}
        groups: dict[str, list[float]] = {}
        for run in (runs[point.name] for point in found if not point.beside):
            best = run.at_best("bleu")
            groups.setdefault(run.group, []).append(math.nan if best is None else best)
        means = [fmean(scores) for scores in groups.values()]
        return [None if math.isnan(mean) else mean for mean in means]
