"""`caesura sweep`: trainings that differ in a few settings, under one budget, as tables and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from caesura.analysis.plots import save as save_figure
from caesura.data.files import checksum, refuse_unwritable, write_whole
from caesura.data.held import make_folder
from caesura.errors import InputError
from caesura.experiments import sweep_search as search
from caesura.experiments.engine import Experiment
from caesura.experiments.fleet import Limits, Watcher, check_members
from caesura.experiments.outcome import TEST, Measure, Member, Outcome, figures_of
from caesura.experiments.provenance import described, digest, made_by, new_values, tree_changes
from caesura.experiments.sweep_figures import figures
from caesura.experiments.sweep_grid import Plan, Point, cross, parse_over, points, read_rows
from caesura.experiments.sweep_results import (
    SWEEP,
    Shown,
    Sweep,
    SweepRun,
    chosen,
    curve,
    distinguished,
    finite,
    load,
    merge,
    save,
    seedless,
    training_curve,
)
from caesura.experiments.sweep_tables import groups_table, markdown, runs_table
from caesura.training.checkpoint import Progress
from caesura.training.journal import read_records
from caesura.training.lock import hold

RUNS = "runs"
FEW = 4  # names of runs in a sentence
SCORES = "bleu", "chrf", "chrf_bigram", "exact"  # on the test set, that are kept


@dataclass(frozen=True, kw_only=True)
class Request(Plan):
    """The sweep that the command line asks for; its rows come from there, or are drawn."""

    out: Path
    over: Sequence[str] = ()
    listed: Path | None = None
    gold: str | None = None
    test: bool = True  # evaluate each on the test set
    moved: int = 0  # sentences whose cuts are moved, for gradient fidelity and flips
    trials: int | None = None  # of a search; None: a grid or a list
    limits: Limits = Limits()  # noqa: RUF009  frozen


def run_sweep(request: Request, watcher: Watcher) -> bool:
    """Train and measure all runs, write everything; False where something failed.

    However it ends, tables and figures of the runs so far are written; the same request goes on from there.
    """
    experiment = (GridSweep if request.trials is None else SearchSweep)(request)
    with hold(request.out, watcher.say):
        experiment.run(experiment.begin(watcher.say), request.limits, watcher)
    return not any(member.failure.exists() for member in experiment.points)


def cuts_measure(gold: str | None, moved: int = 0) -> Measure:
    """Where each trained model cuts; measured again if the gold differs or the call asks for more."""
    name = "cuts" if gold is None else f"cuts-{checksum(gold)[:8]}"
    option = () if gold is None else ("--gold", gold)
    if moved:
        name, option = f"{name}-moved-{moved}", (*option, "--moved", str(moved))
    command = "caesura.experiments.cuts"
    return Measure(name, lambda member: (command, str(member.folder), *option), "measuring its cuts")


class GridSweep(Experiment):
    """A sweep over a grid or a list, whose results are in sweep.json."""

    def __init__(self, request: Request) -> None:
        measures = (*((TEST,) if request.test else ()), cuts_measure(request.gold, request.moved))
        super().__init__(request.out, measures, request.limits.budget)
        self.request, self.before = request, read_sweep(request.out)
        self.points: dict[Member, Point] = {}
        self.over: list[str] = []
        self.prepare()

    def prepare(self) -> None:
        """Refuse, before anything is written, runs that cannot be trained."""
        self.plan(_rows(self.request))
        self.over = list(dict.fromkeys(key for point in self.points.values() for key in point.values))
        self.check([*self.points])

    def begin(self, say: Callable[[str], None]) -> list[Member]:
        """The first members, when the folder is held; says how earlier calls differ."""
        others = self.left(self.before)
        if others:
            few = ", ".join(run.name for run in others[:FEW])
            more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
            say(f"{SWEEP} has {few}{more} from another grid; they stay in its tables")
        if changed := self._changed(others):
            say(f"those were trained with other settings than these: {'; '.join(changed)}")
        return [*self.points]

    def left(self, before: Sweep) -> list[SweepRun]:
        """The runs of earlier calls that this one does not ask for."""
        asked_for = {(point.config.name, point.name) for point in self.points.values()}
        return [run for run in before.runs if (run.config, run.name) not in asked_for]

    def _changed(self, others: Sequence[SweepRun]) -> list[str]:
        """The settings in which runs of earlier calls differ, besides the keys that the grids vary."""
        trees = {p.config.name: described(p.config) for p in self.points.values()}
        varied = tuple(f"{key}." for key in (*self.over, *self.before.over))
        by_key: dict[str, str] = {}
        for run in others:
            if run.config in trees and run.base in self.before.configs:
                for change in tree_changes(self.before.config(run), trees[run.config]):
                    by_key.setdefault(f"{change.partition(':')[0]}.", change)
        return [change for key, change in by_key.items() if not key.startswith(varied)]

    def plan(self, rows: Any) -> list[Member]:
        """The members that the settings of `rows` make, with baselines and seeds."""
        runs, planned = self.out / RUNS, points(replace(self.request, rows=rows))
        self.points = {Member(p.name, p.path, p.changes, runs / p.folder): p for p in planned}
        return [*self.points]

    def run_before(self, point: Point) -> SweepRun | None:
        """The run for sweep.json."""
        key = (point.config.name, point.name)
        return next((run for run in self.before.runs if (run.config, run.name) == key), None)

    def kept(self, member: Member) -> Outcome | None:
        """The outcome in sweep.json."""
        run = self.run_before(self.points[member])
        return None if run is None else as_outcome(run, member, self.before)

    def write(self, drawn: bool = False) -> None:
        """Write sweep.json, and read it back as `before`; the runs of earlier requests stay."""
        budget, before, planned = self.budget, read_sweep(self.out), [*self.points.values()]
        self.before = before
        outcomes = [self.outcome(member) for member in self.points]
        bases = {point.config.name: described(point.config) for point in reversed(planned)}
        runs = []
        for point, outcome in zip(planned, outcomes, strict=True):
            kept = self.run_before(point) if outcome.kept else None
            runs.append(kept or collect(point, outcome, bases[point.config.name]))
        signatures = [text for outcome in outcomes for text in _signatures(outcome)]
        others = self.left(before)
        configs = before.configs | {digest(base): base for base in bases.values()}
        sweep = Sweep(
            over=list(dict.fromkeys([*self.over, *before.over])),
            budget=budget if not others or before.budget == budget else None,
            signatures=list(dict.fromkeys([*signatures, *before.signatures])),
            configs={key: configs[key] for key in {run.base: 0 for run in runs + others} if key in configs},
            runs=runs + others,
            made=list(dict.fromkeys([*before.made, *made_by([outcome.made for outcome in outcomes])])),
            figures=before.figures | {f.name: Shown.of(f) for p in planned for f in figures_of(p.config)},
        )
        save(sweep, self.out / SWEEP)
        self.before = load(self.out / SWEEP)
        if drawn:
            draw(self.before, self.out)


def read_sweep(out: Path) -> Sweep:
    """The sweep that earlier calls have kept in a folder."""
    path = out / SWEEP
    return load(path) if path.exists() else Sweep([], None, [], {}, [])


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


def as_outcome(run: SweepRun, member: Member, sweep: Sweep) -> Outcome:
    """The outcome of a run that an earlier call has kept, perhaps elsewhere."""
    progress = Progress(run.updates, run.epochs, sentences=run.sentences, seconds=run.seconds)
    best = [] if run.best is None else [{"verdict": "best"}]
    measured: dict[str, dict[str, Any]] = {name: {} for name in run.measured}
    budget = run.budget
    if budget is None and run.status == "budget":  # kept by an earlier version: its time, rounded
        budget = run.seconds + 0.1
    facts = (run.status, run.reason, progress, run.parallel, None, best, measured)
    provenance = {"digest": run.digest} | ({"config": sweep.config(run)} if run.base in sweep.configs else {})
    return Outcome(member, *facts, budget, provenance, SWEEP)


def collect(point: Point, outcome: Outcome, base: dict[str, Any]) -> SweepRun:
    """The record of a run; of its config, the differences from `base`."""
    record, start, tree = outcome.record(), outcome.start or {}, described(point.config)
    figures = [figure.name for figure in figures_of(point.config)]
    points, best = curve(outcome.start, outcome.validations, figures)
    tested = outcome.measured.get("test", {}).get("scores")
    cuts: dict[str, Any] = next((v for k, v in outcome.measured.items() if k.startswith("cuts")), {})
    return SweepRun(
        name=point.name,
        config=point.config.name,
        digest=digest(tree),
        settings={**new_values(base, tree), **point.values},
        base=digest(base),
        alike=digest(seedless(tree)),
        seed=point.seed,
        beside=point.beside,
        **{key: record[key] for key in ("status", "reason", "updates", "sentences", "epochs", "budget")},
        seconds=round(outcome.progress.seconds, 1),
        parallel=outcome.side_by_side,
        parameters=start.get("parameters"),
        device=start.get("device"),
        milliseconds=outcome.milliseconds,
        curve=points,
        training=training_curve(read_records(outcome.member.folder), figures),
        best=best,
        measured=[*outcome.measured],
        test=tested and {key: finite(tested[key]) or 0.0 for key in SCORES},
        boundaries={name: _numbers(row) for name, row in cuts.get("boundaries", {}).items()},
        moved=_moves(cuts.get("moved")),
        examples=cuts.get("examples", []),
        coordination={side: row and _numbers(row) for side, row in cuts.get("coordination", {}).items()},
    )


def _moves(moved: dict[str, Any] | None) -> dict[str, float]:
    """The numbers of fidelity and flips that are kept."""
    gradient, flips = (moved or {}).get("fidelity") or {}, (moved or {}).get("flips") or {}
    numbers = {key: gradient.get(key) for key in ("cosine", "cosine_error", "norm_ratio")}
    numbers |= {key: flips.get(key) for key in ("best", "greedy", "hardening", "agreeing")}
    return _numbers(numbers)


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {key: number for key, value in row.items() if (number := finite(value)) is not None}


def _signatures(outcome: Outcome) -> list[str]:
    last = outcome.validations[-1].get("signatures", {}) if outcome.validations else {}
    tested = outcome.measured.get("test", {}).get("scores", {}).get("signatures", {})
    return [*last.values(), *tested.values()]


def draw(sweep: Sweep, out: Path) -> list[Path]:
    """Write the tables and figures of a sweep; the files."""
    sweep = distinguished(sweep)
    texts = {
        "table.md": markdown(sweep),
        "table.csv": runs_table(sweep).csv(),
        "groups.csv": groups_table(sweep).csv(),
    }
    make_folder(out)
    for name, text in texts.items():
        write_whole(out / name, text)
    written = [out / name for name in texts]
    for name, figure in figures(sweep).items():
        written += save_figure(figure, out / "figures" / name)
    return written


def redraw(files: Sequence[Path], out: Path, over: Sequence[str]) -> list[Path]:
    """Draw committed results again, several files together.

    Given `over`, as for a grid: only runs with these values, with the looks of a sweep over those keys.
    """
    sweep = merge([load(file) for file in files])
    if over:
        sweep = chosen(sweep, [parse_over(text) for text in over])
    with refuse_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
    return draw(sweep, out)


class SearchSweep(GridSweep):
    """A sweep whose settings are drawn, a round of `parallel` trials at a time."""

    def prepare(self) -> None:
        """Refuse ranges with an end that cannot be trained."""
        if self.request.listed is not None:
            raise InputError("--search draws from --over and --list names its members; choose one")
        if not self.request.over:
            raise InputError("--search: nothing to search over; --over model.segmenter.tau=0.01:1:log")
        self.dimensions = [search.parse_dimension(text) for text in self.request.over]
        self.over = [dimension.key for dimension in self.dimensions]
        for row in cross(search.ends(self.dimensions)):
            check_members(self.plan([row]))
        self.points, self.trials = {}, list[search.Trial]()
        search.propose(self.dimensions, [], [], 0)  # the extra is there

    def begin(self, say: Callable[[str], None]) -> list[Member]:
        """The members of the trials that earlier calls have drawn."""
        self.trials = search.read_trials(self.out, self.dimensions)
        if self.trials:
            self.check(self.plan([search.row(trial) for trial in self.trials]))
        return super().begin(say)

    def more(self) -> Sequence[Member]:
        """All members after one more round; none if there are enough, or if there is nothing new to draw."""
        missing = (self.request.trials or 0) - len(self.trials)
        count = max(0, min(self.request.limits.parallel, missing))
        drawn = search.propose(self.dimensions, self.trials, self._scores(), count)
        if not drawn:
            return ()
        self.trials += drawn
        search.save_trials(self.out, self.dimensions, self.trials)
        members = self.plan([search.row(trial) for trial in self.trials])
        self.check(members)
        return members

    def _scores(self) -> list[float | None]:
        """The best BLEU of each trial, a mean over its seeds; None where one of them has none."""
        self.write()
        runs = {run.name: run for run in self.before.runs}
        groups: dict[str, list[float]] = {}
        for run in (runs[point.name] for point in self.points.values() if not point.beside):
            best = run.at_best("bleu")
            groups.setdefault(run.group, []).append(math.nan if best is None else best)
        means = [fmean(scores) for scores in groups.values()]
        return [None if math.isnan(mean) else mean for mean in means]
