"""The results of a sweep: one small file from which tables and figures can be drawn again."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from caesura.analysis.defaults import with_defaults
from caesura.config import flat
from caesura.config.phrasing import nearest
from caesura.config.yamlfile import read_override
from caesura.data.files import read_json, write_whole
from caesura.errors import InputError
from caesura.experiments.outcome import Status, rounded
from caesura.experiments.provenance import digest
from caesura.experiments.sweep_grid import SEED, Setting, at, brief_value, short_name, shown
from caesura.segmenters.figures import LIVE, Figure
from caesura.training.journal import renamed

SWEEP = "sweep.json"
FORMAT = 2  # 1 lacks the values of keys that only other runs vary
POINTS = 120  # of a curve, at most
LOGGED = 250  # lines of training between validations: enough for 12,000 updates

# Numbers at the start and at each validation, besides the segmenter's figures.
FOLLOWED = (
    *("sentences", "seconds", "segment_length", "target_length", "longest_segment", "bleu", "chrf"),
    *("output_segment_length", "longest_output_segment", "output_live"),
)
# Numbers that training logs between validations, besides the segmenter's figures. Cross-entropy is in nats
# Per target symbol. The loss is minimised: smoothed, normalized as configured, with all its terms.
IN_TRAINING = ("segment_length", "output_segment_length", "output_live", "cross_entropy", "loss")


@dataclass(frozen=True)
class Shown:
    """How a figure that segmenters name is shown; tables are drawn without the models."""

    heading: str
    unit: str
    definition: str
    format: str
    headline: bool = False

    @classmethod
    def of(cls, figure: Figure) -> Shown:
        """The display of a figure, from its definition."""
        return cls(figure.heading, figure.unit, figure.definition, figure.format, figure.headline)


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    name: str
    config: str  # its name
    digest: str  # of its whole config, files by name
    settings: dict[str, Any]  # the values that vary in the sweep, and all others that differ from `base`
    seed: int
    beside: bool  # a baseline
    status: Status
    reason: str  # the rule that ended it, or the message of its failure
    updates: int
    sentences: int
    epochs: int
    seconds: float  # of training, validations included; past the budget where the last one was long
    parallel: int  # runs that shared the machine, at most
    budget: float | None = None  # seconds of training that it might take; None: not known, or to its own end
    base: str = ""  # the key in the sweep's `configs` of the rest of its config; "": not known
    alike: str = ""  # the digest of its config without the seed; "": not known
    parameters: int | None = None
    device: str | None = None
    milliseconds: float | None = None  # per update, validations left out
    curve: dict[str, list[float | None]] = field(default_factory=dict)  # FOLLOWED, and figures
    training: dict[str, list[float | None]] = field(default_factory=dict)  # sentences, IN_TRAINING, figures
    measured: list[str] = field(default_factory=list)  # the names of its measures
    best: int | None = None  # the place in the curve of the model that was kept
    test: dict[str, float] | None = None  # scores on the test set
    boundaries: dict[str, dict[str, float]] = field(default_factory=dict)  # by reference
    coordination: dict[str, dict[str, float] | None] = field(default_factory=dict)  # source, target
    moved: dict[str, float] = field(default_factory=dict)  # fidelity and flips
    examples: list[str] = field(default_factory=list)  # sentences as it cuts them

    @property
    def group(self) -> str:
        """The name without its seed."""
        return self.name.removesuffix(f" seed={self.seed}")

    def column(self, name: str) -> list[float]:
        """One column of the curve, nan where nothing is known."""
        return [math.nan if value is None else value for value in self.curve.get(name, ())]

    def first(self, name: str) -> float | None:
        """The value of a column at the start."""
        return next(iter(self.curve.get(name, ())), None)

    def last(self, name: str) -> float | None:
        """The value of a column at the last validation; None before the first."""
        values = self.curve.get(name, ())
        return values[-1] if len(values) > 1 else None

    def at_best(self, name: str) -> float | None:
        """The value of a column at the validation whose model was kept."""
        return None if self.best is None or name not in self.curve else self.curve[name][self.best]

    def logged(self, name: str) -> list[tuple[float, float]]:
        """The training log of a column: (sentences seen, value)."""
        pairs = zip(self.training.get("sentences", ()), self.training.get(name, ()), strict=False)
        return [(x, y) for x, y in pairs if x is not None and y is not None]

    def last_logged(self, name: str) -> float | None:
        """The last value of a column in the training log."""
        return next((y for _, y in reversed(self.logged(name))), None)


@dataclass(frozen=True)
class Sweep:
    """All runs, and their common facts."""

    over: list[str]  # the keys that vary, the first one colours the figures
    budget: float | None  # seconds of training per run
    signatures: list[str]  # of the scores
    configs: dict[str, dict[str, Any]]  # resolved ones, by their digests, that the settings are laid over
    runs: list[SweepRun]
    made: list[str] = field(default_factory=list)  # calls, versions and devices
    figures: dict[str, Shown] = field(default_factory=dict)  # figures of the runs' segmenters

    @property
    def shown(self) -> dict[str, Shown]:
        """How to show the figures that some run has."""
        figures = {LIVE.name: Shown.of(LIVE)} | self.figures  # earlier versions kept that one alone
        return {name: look for name, look in figures.items() if any(name in run.curve for run in self.runs)}

    def value(self, run: SweepRun, key: str) -> Any:
        """The value of a key in a run; None where it has none or it is not known, and for baselines.

        Of a part of the model, only the options that differ from their defaults.
        """
        return None if run.beside else brief_value(self.config(run), key)

    def config(self, run: SweepRun) -> dict[str, Any]:
        """The resolved config of a run, as far as it was kept, with defaults of later options."""
        tree = copy.deepcopy(self.configs.get(run.base, {}))
        for key, value in (*run.settings.items(), (SEED, run.seed)):
            *section, last = key.split(".")
            place = tree
            for part in section:
                if not isinstance(place.get(part), dict):
                    place[part] = {}
                place = place[part]
            place[last] = value
        return with_defaults(tree)


def curve(
    start: Mapping[str, Any] | None,
    validations: Sequence[Mapping[str, Any]],
    figures: Iterable[str] = (),
    most: int = POINTS,
) -> tuple[dict[str, list[float | None]], int | None]:
    """The columns of FOLLOWED and `figures`, thinned to `most` points, and the place of the best model."""
    if start is None:
        return {}, None
    points: list[Mapping[str, Any]] = [{"sentences": 0, "seconds": 0.0, **start}, *validations]
    verdicts = [i for i, point in enumerate(points) if point.get("verdict") == "best"]
    best = verdicts[-1] if verdicts else None
    kept = list(range(len(points)))
    if len(points) > most:
        even = {round(i * (len(points) - 1) / (most - 2)) for i in range(most - 1)}
        kept = sorted(even if best is None else even | {best})
    columns = {name: [finite(points[i].get(name)) for i in kept] for name in (*FOLLOWED, *figures)}
    filled = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    return filled, None if best is None else kept.index(best)


def training_curve(
    records: Iterable[Mapping[str, Any]], figures: Iterable[str] = (), most: int = LOGGED
) -> dict[str, list[float | None]]:
    """The log of training text, IN_TRAINING and `figures`, each value at the middle of its sentences.

    At most that many points, as even as they can be on a logarithmic scale of sentences.
    """
    names = *IN_TRAINING, *figures
    logged = [r for r in records if r["kind"] == "train" and any(name in r for name in names)]
    ends = [0, *(r["sentences"] for r in logged)]
    middles = [(a + b) / 2 for a, b in pairwise(ends)]
    kept = list(range(len(logged)))
    if len(logged) > most:
        low, high = math.log(middles[0]), math.log(middles[-1])
        places = [math.exp(low + (high - low) * i / (most - 1)) for i in range(most)]
        kept = sorted({min(kept, key=lambda i: abs(middles[i] - x)) for x in places})
    columns = {name: [finite(logged[i].get(name)) for i in kept] for name in names}
    filled = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    return {"sentences": [round(middles[i]) for i in kept], **filled} if filled else {}


def finite(value: Any) -> float | None:
    """A number as results keep it; None for one that is not finite, and for everything else."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return rounded(value) if number and math.isfinite(value) else None


def save(sweep: Sweep, path: Path) -> None:
    """Write a sweep, one run per line."""
    head = {"format": FORMAT, **{key: value for key, value in vars(sweep).items() if key != "runs"}}
    head["figures"] = {name: asdict(shown) for name, shown in sweep.figures.items()}
    facts = [{k: v for k, v in asdict(run).items() if v not in (None, {}, [], "")} for run in sweep.runs]
    lines = [json.dumps(run, ensure_ascii=False) for run in facts]
    top = json.dumps(head, ensure_ascii=False, indent=1).removesuffix("\n}")
    write_whole(path, top + ',\n "runs": [\n' + ",\n".join(lines) + "\n]}\n")


def load(path: Path) -> Sweep:
    """Read a sweep that `save` wrote."""
    try:
        tree = read_json(path)
        if (version := tree.pop("format")) not in (1, FORMAT):
            raise InputError(f"{path}: from another version; this one reads formats 1 and {FORMAT}")
        for run in tree["runs"] if version == 1 else ():
            run["measured"] = [
                name for name, key in (("test", "test"), ("cuts", "coordination")) if key in run
            ]
        runs = [_result(run) for run in tree.pop("runs")]
        shown = {name: Shown(**look) for name, look in tree.pop("figures", {}).items()}
        sweep = _marked_anew(Sweep(**tree, runs=runs, figures=shown))
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror}") from problem
    except ValueError as problem:
        raise InputError(f"{path}: not JSON, as the {SWEEP} of a sweep is") from problem
    except (TypeError, KeyError, AttributeError) as problem:
        raise InputError(f"{path}: JSON, but not the {SWEEP} of a sweep") from problem
    return sweep


def _result(run: dict[str, Any]) -> SweepRun:
    columns = {key: renamed(run[key]) for key in ("curve", "training") if key in run}
    return SweepRun(**{"reason": "", "settings": {}} | run | columns)


def _marked_anew(sweep: Sweep) -> Sweep:
    """The sweep with this version's digests of its configs; unchanged where the configs are not known."""
    whole = {key: tree for key, tree in sweep.configs.items() if {"data", "model", "training"} <= {*tree}}
    keys = {key: digest(tree) for key, tree in whole.items()}
    runs = [_marked(sweep, run, keys[run.base]) if run.base in keys else run for run in sweep.runs]
    return replace(sweep, runs=runs, configs={keys.get(k, k): tree for k, tree in sweep.configs.items()})


def _marked(sweep: Sweep, run: SweepRun, base: str) -> SweepRun:
    tree = sweep.config(run)
    return replace(run, digest=digest(tree), alike=digest(seedless(tree)), base=base)


def seedless(tree: dict[str, Any]) -> dict[str, Any]:
    """A config without its seed."""
    return tree | {"training": {key: v for key, v in tree["training"].items() if key != "seed"}}


def refuse_sweep(path: Path) -> None:
    """Refuse results where a config is wanted."""
    if path.suffix != ".json":
        return
    try:
        load(path)
    except InputError:
        return  # as a config it will be refused, or is one
    raise InputError(
        f"{path}: the results of a sweep, not a config; to draw them again, did you mean --draw?"
    )


def merge(sweeps: Sequence[Sweep]) -> Sweep:
    """Several stints as one; of a run that is in more than one, the state that has seen most sentences."""
    runs: dict[tuple[str, str], SweepRun] = {}
    for run in (run for sweep in sweeps for run in sweep.runs):
        key = run.digest, run.name
        if key not in runs or run.sentences >= runs[key].sentences:
            runs[key] = run
    budgets = {sweep.budget for sweep in sweeps}
    return Sweep(
        over=list(dict.fromkeys(key for sweep in sweeps for key in sweep.over)),
        budget=budgets.pop() if len(budgets) == 1 else None,
        signatures=list(dict.fromkeys(text for sweep in sweeps for text in sweep.signatures)),
        configs={key: config for sweep in sweeps for key, config in sweep.configs.items()},
        runs=list(runs.values()),
        made=list(dict.fromkeys(text for sweep in sweeps for text in sweep.made)),
        figures={name: shown for sweep in sweeps for name, shown in sweep.figures.items()},
    )


def chosen(sweep: Sweep, dimensions: Sequence[Sequence[Setting]]) -> Sweep:
    """The runs with the values of the dimensions, named and ordered by them, and the baselines."""
    values_by_key = {
        row[0].key: [shown(at(read_override(str(s)).tree, s.key)) for s in row] for row in dimensions
    }
    placed = []
    for run in (run for run in sweep.runs if not run.beside):
        values = {key: shown(sweep.value(run, key)) for key in values_by_key}
        if all(value in values_by_key[key] for key, value in values.items()):
            text = " ".join(f"{short_name(key)}={value}" for key, value in values.items())
            places = [values_by_key[key].index(value) for key, value in values.items()]
            placed.append((places, replace(run, name=f"{text} seed={run.seed}")))
    runs = [run for _, run in sorted(placed, key=lambda pair: pair[0])]
    if not runs:
        text = " ".join(f"--over {row[0].key}={','.join(s.text for s in row)}" for row in dimensions)
        raise InputError(f"{text}: {_why_none(sweep, values_by_key)}")
    return replace(sweep, over=[*values_by_key], runs=[*runs, *(run for run in sweep.runs if run.beside)])


def _why_none(sweep: Sweep, values_by_key: Mapping[str, Sequence[str]]) -> str:
    """Why no run has these values: the key does not exist, or the values do not, or not together."""
    runs = [run for run in sweep.runs if not run.beside]
    keys = list(dict.fromkeys(key for run in runs for key in flat(sweep.config(run))))
    values = {key: list(dict.fromkeys(shown(sweep.value(run, key)) for run in runs)) for key in values_by_key}
    for key in values_by_key:
        if key not in keys and all(sweep.value(run, key) is None for run in runs):
            last = key.rpartition(".")[2]
            alike = [k for k in keys if last in (k.rpartition(".")[2], short_name(k))]
            if not alike:
                section = key.removesuffix(last)
                near = nearest(last, [k.removeprefix(section) for k in keys if k.startswith(section)])
                alike = [section + near] if near else []
            return f"no run has the key {key}" + (f"; did you mean {' or '.join(alike)}?" if alike else "")
    others = [key for key in values_by_key if not {*values_by_key[key]} & {*values[key]}]
    if not others:
        return "no run has these values together"
    listed = " and ".join(f"{key}={','.join(values[key])}" for key in others)
    return f"no run has these values; there are {listed}"


def distinguished(sweep: Sweep) -> Sweep:
    """The sweep with longer names where runs of different configs share one, as in two studies."""
    groups: dict[str, list[SweepRun]] = {}
    for run in sweep.runs:
        groups.setdefault(run.group, []).append(run)
    labels: dict[tuple[str, str], str] = {}
    for group, runs in groups.items():
        if len({run.alike for run in runs}) > 1 or len({run.seed for run in runs}) < len(runs):
            labels |= {(group, digest): label for digest, label in _labels(sweep, runs).items()}
    named = [
        replace(run, name=f"{run.group} {label} seed={run.seed}")
        if (label := labels.get((run.group, run.digest)))
        else run
        for run in sweep.runs
    ]
    return replace(sweep, runs=named)


def _labels(sweep: Sweep, runs: Sequence[SweepRun]) -> dict[str, str]:
    """By digest, labels for runs of one name: the names of their configs, their settings, or the digests."""
    trees = [flat(sweep.config(run)) for run in runs]
    keys = [key for key in dict.fromkeys(key for tree in trees for key in tree) if key != SEED]
    varied = [key for key in keys if any(tree.get(key) != trees[0].get(key) for tree in trees)]
    settings = [
        " ".join(f"{short_name(key)}={shown(tree[key])}" for key in varied if tree.get(key) is not None)
        for tree in trees
    ]
    kinds = [run.alike or run.digest for run in runs]
    for labels in ([run.config for run in runs], settings):
        if len({*labels}) == len({*kinds}) == len({*zip(labels, kinds, strict=True)}):
            return {run.digest: label for run, label in zip(runs, labels, strict=True)}
    return {run.digest: run.alike or run.digest for run in runs}
