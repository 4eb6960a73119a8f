"""A search in place of a grid: Optuna proposes settings and maximises the best BLEU on dev."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.data.files import read_json, write_whole
from caesura.data.held import make_folder
from caesura.errors import InputError, missing_extra
from caesura.experiments.sweep_grid import Setting, parse_over

TRIALS = "trials.json"
DIGITS = 4  # of a drawn number
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER}):({_NUMBER})(:log)?")

Trial = dict[str, str]  # key: value as YAML


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, whole ones where both ends are."""

    key: str
    low: float
    high: float
    log: bool
    whole: bool


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    key: str
    values: tuple[str, ...]


Dimension = Range | Choice


def parse_dimension(text: str) -> Dimension:
    """`KEY=low:high`, `KEY=low:high:log`, or `KEY=V1,V2,...`."""
    key, _, values = text.partition("=")
    match = _RANGE.fullmatch(values.strip())
    if not match:
        if ":" in values:
            raise InputError(f"--over {text}: write a range as low:high or low:high:log")
        return Choice(key.strip(), tuple(setting.text for setting in parse_over(text)))
    low, high, log = float(match[1]), float(match[2]), bool(match[3])
    if not low < high or not math.isfinite(high - low):
        raise InputError(f"--over {text}: the first number of a range should be the smaller one")
    if log and low <= 0:
        raise InputError(f"--over {text}: a range on a logarithmic scale begins above 0")
    whole = all(re.fullmatch(r"[-+]?\d+", end) for end in match.groups()[:2])
    return Range(key.strip(), low, high, log, whole)


def ends(dimensions: Sequence[Dimension]) -> list[Sequence[Setting]]:
    """The values that can be checked before anything is drawn: the ends of ranges, and all choices."""
    result: list[Sequence[Setting]] = []
    for dimension in dimensions:
        values: Sequence[str] = (
            dimension.values
            if isinstance(dimension, Choice)
            else [_text(dimension, value) for value in (dimension.low, dimension.high)]
        )
        result.append([_setting(dimension.key, value) for value in values])
    return result


def row(trial: Trial) -> tuple[str, Sequence[Setting]]:
    """The settings of a trial."""
    return "", [_setting(key, value) for key, value in trial.items()]


def _setting(key: str, value: str) -> Setting:
    return Setting(key, value, f"--over {key}={value}")


def _text(dimension: Range, value: float) -> str:
    """A number of a range in few digits, still inside of it."""
    if dimension.whole:
        return str(round(value))
    near = float(f"{value:.{DIGITS}g}")
    return json.dumps(near if dimension.low <= near <= dimension.high else value)


def read_trials(out: Path, dimensions: Sequence[Dimension]) -> list[Trial]:
    """The trials that earlier calls have drawn from the same space."""
    path = out / TRIALS
    if not path.exists():
        return []
    try:
        content = read_json(path)
        space, trials = content["space"], content["trials"]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: damaged ({problem}); remove it or choose another --out") from problem
    if space != (expected := _space(dimensions)):
        before, after = (
            {d["key"]: _written(d) for d in listed_dimensions} for listed_dimensions in (space, expected)
        )
        keys = [key for key in before | after if before.get(key) != after.get(key)]
        listed = "; ".join(f"{key}: {before.get(key, 'none')} -> {after.get(key, 'none')}" for key in keys)
        order = "in another order" if not keys else listed
        raise InputError(
            f"{path}: drawn from other ranges ({order}); give the same --over, or choose another --out"
        )
    return trials


def _written(dimension: dict[str, Any]) -> str:
    """A dimension of a space, from --over."""
    if "values" in dimension:
        return ",".join(dimension["values"])
    return f"{dimension['low']:g}:{dimension['high']:g}{':log' if dimension['log'] else ''}"


def save_trials(out: Path, dimensions: Sequence[Dimension], trials: Sequence[Trial]) -> None:
    """Keep the drawn trials before they are trained."""
    make_folder(out)
    write_whole(out / TRIALS, json.dumps({"space": _space(dimensions), "trials": trials}, indent=1))


def _space(dimensions: Sequence[Dimension]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(vars(dimension))) for dimension in dimensions]


def propose(
    dimensions: Sequence[Dimension], trials: Sequence[Trial], scores: Sequence[float | None], count: int
) -> list[Trial]:
    """Up to `count` new trials, given the scores of earlier ones (None: failed); none twice.

    The draw depends on the arguments alone, so a resumed search goes the same way.
    """
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=1 + len(trials))
    )
    space = {dimension.key: _distribution(optuna, dimension) for dimension in dimensions}
    for trial, score in zip(trials, scores, strict=True):
        state = optuna.trial.TrialState.FAIL if score is None else optuna.trial.TrialState.COMPLETE
        values = {d.key: _value(d, trial[d.key]) for d in dimensions}
        facts = {"params": values, "distributions": space, "state": state, "value": score}
        study.add_trial(optuna.trial.create_trial(**facts))
    proposed: list[Trial] = []
    for _ in range(20 * count):  # a small space is soon exhausted
        if len(proposed) == count:
            break
        drawn: Mapping[str, Any] = study.ask(space).params
        trial = {d.key: _text(d, drawn[d.key]) if isinstance(d, Range) else drawn[d.key] for d in dimensions}
        if trial not in (*trials, *proposed):
            proposed.append(trial)
    return proposed


def _distribution(optuna: Any, dimension: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(dimension, Choice):
        return kinds.CategoricalDistribution(dimension.values)
    if dimension.whole:
        return kinds.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return kinds.FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _value(dimension: Dimension, text: str) -> Any:
    if isinstance(dimension, Choice):
        return text
    return int(text) if dimension.whole else float(text)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as problem:
        raise missing_extra("--search", "search") from problem
    return optuna
