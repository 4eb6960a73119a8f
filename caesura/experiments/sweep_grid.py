"""Which runs a sweep has: a grid or a list of settings, times seeds, checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from caesura.analysis.defaults import without_defaults
from caesura.components import resolve
from caesura.config import Config, load_config, yamlfile
from caesura.config.phrasing import IN_QUOTES, in_shell
from caesura.errors import InputError
from caesura.training.prepare import text_settings

SEED = "training.seed"
SHORT = {"halting_bias": "b_h", "epsilon": "eps"}  # as the paper writes them
BLANKS = {'=""': "=nothing", '=" "': "=space", r'="\t"': "=tab"}  # values in names and folders
LONGEST = 100  # characters of a name that is a folder's as well
# Words between which two underscores can stand for the space: no name is mistaken for another.
_WORD = r"[a-z0-9](?:_?[a-z0-9.+=-])*"
_PLAIN = re.compile(rf"{_WORD}(?: {_WORD})*")
# A value of --over: in quotes, or up to a comma outside brackets.
_VALUE = re.compile(
    r"""\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?=,|$)|(?:[^,\[\]{}]|\[[^\]]*\]|\{[^}]*\})+"""
)


@dataclass(frozen=True)
class Setting:
    """One `key=value`, and where it was written."""

    key: str
    text: str  # the value, as YAML
    origin: str  # such as `--over model.segmenter.tau=0.1`, or a file and line

    def __str__(self) -> str:
        return f"{self.key}={self.text}"


@dataclass(frozen=True)
class Point:
    """One run of a sweep: its config, the changes to it, and its name."""

    name: str  # such as `tau=0.03 b_h=-2 seed=1`; unique in a sweep
    path: Path  # of the config
    changes: tuple[str, ...]  # as for --set
    values: Mapping[str, Any]  # of the keys that vary, as the resolved config has them
    seed: int
    config: Config  # resolved
    beside: bool = False  # a baseline: not of the grid

    @property
    def folder(self) -> str:
        """The name as that of a folder on any disk; the same whatever else is in the sweep."""
        if _PLAIN.fullmatch(self.name) and len(self.name) <= LONGEST:
            return self.name.replace(" ", "__")
        mark = hashlib.blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        spelled = re.sub("|".join(map(re.escape, BLANKS)), lambda match: BLANKS[match[0]], self.name)
        safe = re.sub(r"[^a-z0-9._+=-]+", "-", spelled.lower())[:LONGEST].strip("-.")
        return f"{safe}-{mark}".lstrip("-")


@dataclass(frozen=True)
class Plan:
    """The runs that a sweep asks for."""

    config: Path
    rows: Sequence[
        tuple[str, Sequence[Setting]]
    ] = ()  # a name or "", and the settings of a place of the grid
    common: Sequence[str] = ()  # --set, for all runs
    seeds: Sequence[int] | None = None  # None: the config's
    beside: Sequence[Path] = ()
    data: Path | None = None  # a folder with the text of all; None: each config's


def parse_over(text: str) -> list[Setting]:
    """The settings of one `--over KEY=V1,V2,...`; a value with commas stands in brackets or quotes."""
    key, equals, values = text.partition("=")
    texts = [value.strip() for value in _VALUE.findall(values)]
    lost = _VALUE.sub("", values).count(",") >= len(texts)  # a value between two commas, or at an end
    if not key.strip() or not equals or lost or not all(texts):
        advice = "write it as KEY=V1,V2, such as model.segmenter.tau=0,0.1"
        if key.strip() and equals:
            advice += f'; a blank as --over \'{key.strip()}=" "\', and no text as ""'
        raise InputError(f"--over {text}: {advice}")
    return [Setting(key.strip(), value, f"--over {key.strip()}={value}") for value in texts]


def cross(dimensions: Sequence[Sequence[Setting]]) -> list[tuple[str, Sequence[Setting]]]:
    """Every combination of one setting per dimension, the last one changing fastest."""
    keys = [dimension[0].key for dimension in dimensions]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--over {key}: given twice; put all its values into one")
    return [("", row) for row in product(*dimensions)] if dimensions else []


def read_rows(path: Path) -> list[tuple[str, Sequence[Setting]]]:
    """The members of a YAML list: `- {settings: {model.segmenter.tau: 0.1}}`, with a name if you like.

    One whose settings have lists of values stands for all their combinations.
    """
    source = yamlfile.read_list(path, "members")
    rows: list[tuple[str, Sequence[Setting]]] = []
    for number, row in enumerate(source.tree["members"]):
        at = ("members", str(number))
        if not isinstance(row, dict) or not isinstance(row.get("settings"), dict):
            source.fault(at, "should be {settings: {KEY: VALUE, ...}}, with a name if you like")
            continue
        for key in row.keys() - {"name", "settings"}:
            source.fault((*at, key), "unknown key; a member has settings and may have a name")
        if not isinstance(name := row.get("name", ""), str) or not re.fullmatch(r"(\w[\w .+=-]*)?", name):
            source.fault((*at, "name"), "may hold letters, digits, spaces and . _ + = - only")
        dimensions = []
        for key, value in row["settings"].items():
            place = source.places[(*at, "settings", key)]
            if value == []:
                source.fault((*at, "settings", key), "no values; an empty list as a value is written [[]]")
            texts = [
                json.dumps(v, ensure_ascii=False) for v in (value if isinstance(value, list) else [value])
            ]
            dimensions.append([Setting(key, text, f"{place.file}:{place.line}") for text in texts])
        grid = [*product(*dimensions)]
        if name and len(grid) != 1:
            source.fault((*at, "name"), f"of {len(grid)} combinations; leave it out")
        rows += [(str(name), settings) for settings in grid]
    yamlfile.refuse(source.problems)
    return rows


def points(plan: Plan) -> list[Point]:
    """All runs, each with a config that can be built; equal ones are refused."""
    varied = list(dict.fromkeys(setting.key for _, row in plan.rows for setting in row))
    if SEED in varied:
        raise InputError(f"{SEED}: give the seeds as --seeds 1,2,3")
    result: list[Point] = []
    for name, row in plan.rows or [("", ())]:
        for config, changes in _seeded(plan, plan.config, row):
            tree = config.model_dump(mode="json")
            values = {key: at(tree, key) for key in varied}
            keys = [key for key in varied if key in {setting.key for setting in row}]
            named = {key: brief_value(tree, key) for key in keys}
            label = name or " ".join(f"{short_name(key)}={shown(value)}" for key, value in named.items())
            result.append(_point(label or config.name, plan.config, changes, values, config))
    for path in plan.beside:
        for config, changes in _seeded(plan, path, ()):
            result.append(_point(config.name, path, changes, {}, config, beside=True))
    _refuse_equals(result)
    return result


def _seeded(plan: Plan, path: Path, row: Sequence[Setting]) -> Iterator[tuple[Config, tuple[str, ...]]]:
    """The checked config of each seed, and the settings that lead to it from the file."""
    try:
        first, changes = _built(plan, path, row)
    except InputError as problem:
        raise InputError(_explained(str(problem), plan, path, row)) from None
    for seed in plan.seeds or (first.training.seed,):
        training = first.training.model_copy(update={"seed": seed})
        yield first.model_copy(update={"training": training}), (*changes, f"{SEED}={seed}")


def _built(plan: Plan, path: Path, row: Sequence[Setting]) -> tuple[Config, tuple[str, ...]]:
    text = () if plan.data is None else (*text_settings(plan.data, load_config(path, plan.common)),)
    changes = (*text, *plan.common, *map(str, row))
    return resolve(load_config(path, changes)), changes


def _explained(message: str, plan: Plan, path: Path, row: Sequence[Setting]) -> str:
    """The error message for a config, with the place where the setting was written."""
    for setting in row:
        option, origin = f"--set {setting}: ", setting.origin
        named = "" if origin.startswith("--over ") else f"{setting.key}: "
        ranged = not named and option in message and re.fullmatch(r"[^:]+:[^:]+(:log)?", setting.text)
        if ranged and "--search N" not in message:
            message += ". A range is for --search N, which draws N settings from it"
        message = message.replace(option, f"{origin}: {named}")
        if named:  # of a file, where no shell takes quotes away
            message = message.replace(in_shell(setting.key, setting.text), IN_QUOTES)
    if path != plan.config and "--set " in message:
        advice = "--set is for baselines too; for the swept config alone: --over KEY=VALUE"
        message = f"{path}: {message} ({advice})"
    crossed = len(row) > 1 and all(setting.origin.startswith("--over ") for setting in row)
    if crossed and all(_works_elsewhere(plan, setting) for setting in row):
        message += ". A grid has every combination; --list FILE trains those that it names"
    return message


def _works_elsewhere(plan: Plan, setting: Setting) -> bool:
    """Whether some place of the grid can have a setting."""
    for _, row in plan.rows:
        if setting in row:
            with suppress(InputError):
                _built(plan, plan.config, row)
                return True
    return False


def _point(
    name: str, path: Path, changes: tuple[str, ...], values: Mapping[str, Any], config: Config,
    beside: bool = False,
) -> Point:  # fmt: skip
    seed = config.training.seed
    return Point(f"{name} seed={seed}", path, changes, values, seed, config, beside)


def _refuse_equals(points: Iterable[Point]) -> None:
    """Refuse runs that are equal, or would share a name."""
    configs: dict[str, str] = {}
    folders: dict[str, str] = {}
    for point in points:
        same = configs.setdefault(point.config.model_copy(update={"name": ""}).dump(), point.name)
        if same != point.name or folders.get(point.folder):
            one, other = (same, point.name) if same != point.name else (folders[point.folder], point.name)
            what = "is given twice" if one == other else f"is the same run as {one}"
            raise InputError(f"{other}: {what}; leave one of them out")
        folders[point.folder] = point.name


def at(tree: dict[str, Any], key: str) -> Any:
    """The value of a tree at a dotted key; None where there is none."""
    value: Any = tree
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def brief_value(tree: dict[str, Any], key: str) -> Any:
    """The value for readers: for a part of the model, only options that differ from their defaults."""
    value = at(tree, key)
    return at(without_defaults(tree), key) if isinstance(value, dict) and "type" in value else value


def short_name(key: str) -> str:
    """A dotted key as it stands in names, whatever else varies: some sections go without saying."""
    *section, last = key.split(".")
    if section[:2] == ["model", "segmenter"]:  # cutter.k, rate.target
        section = section[2:]
    elif section[:2] == ["model", "decoder"]:
        section = section[1:]
    elif section == ["training"]:
        section = []
    return ".".join([*section, SHORT.get(last, last)])


def shown(value: Any) -> str:
    """A value as it stands in a name: equal ones read the same; a part as `cif` or `fixed(k=4)`."""
    if isinstance(value, dict) and "type" in value:
        options = ",".join(f"{key}={shown(option)}" for key, option in value.items() if key != "type")
        return f"{value['type']}({options})" if options else shown(value["type"])
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, str):
        plain = value.isprintable() and value.strip() == value != "" and '"' not in value
        return value if plain else json.dumps(value, ensure_ascii=not value.isprintable())
    return yamlfile.show(value, limit=1000)
