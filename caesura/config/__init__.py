"""The configuration of a run: YAML in and out, every mistake named with its file, line and remedy."""

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator

from caesura.config import cookbook, yamlfile
from caesura.config.phrasing import problems
from caesura.config.sections import RETIRED, Component, Model, Testing, Training, tokenizer_of
from caesura.config.text import (
    AlignmentCuts,
    Data,
    EntropyCuts,
    FileCuts,
    Files,
    RuleCuts,
    Section,
    Side,
    SymbolCuts,
)
from caesura.config.yamlfile import Key, Place, Source, place_of, show
from caesura.errors import InputError, out_of_memory

__all__ = [
    "AlignmentCuts",
    "Component",
    "Config",
    "Data",
    "EntropyCuts",
    "FileCuts",
    "Files",
    "RuleCuts",
    "Section",
    "Side",
    "SymbolCuts",
    "Testing",
    "Training",
    "differences",
    "flat",
    "load_config",
]

MAX_BASES = 4


class Config(Section):
    """A whole run: data, model, training, testing."""

    name: str = Field(pattern=r"^\w[\w .+-]*$", description="what the run is called, in folders and tables")
    data: Data = Field(description="the text")
    model: Model = Field(description="the translator")
    training: Training = Field(default=Training(), description="how it is trained")
    testing: Testing = Field(default=Testing(), description="how it translates and is scored")
    _places: dict[Key, Place] = PrivateAttr(default_factory=dict)
    _replaced: dict[Key, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _tokenizer_by_language(cls, tree: Any) -> Any:
        match tree:
            case {"data": {"trg": {"lang": str(lang)}}}:
                named = tree.get("testing") or {}
                if isinstance(named, dict) and tokenizer_of(lang) != "13a":
                    return {**tree, "testing": {"bleu_tokenize": tokenizer_of(lang), **named}}
        return tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.model_dump() == other.model_dump()

    def dump(self) -> str:
        """The resolved config as YAML, defaults written out; `load_config` reads it back as an equal one."""
        return yamlfile.dump(self.model_dump(mode="json"))

    @property
    def imitates(self) -> bool:
        """Whether the segmenter learns `data.cuts`, and is not given them."""
        return self.model.segmenter.imitation is not None

    @property
    def recipe(self) -> str | None:
        """The name of the recipe that comes with the program, where it was read from that."""
        return cookbook.own_name(place_of(self._places, ()).file)

    def error(self, key: str, message: str) -> InputError:
        """An InputError about a dotted key, with the file and line where it (or its section) was written."""
        path = tuple(key.split("."))
        return InputError(place_of(self._places, path).says(path, message))

    def check(
        self,
        section: str,
        values: Mapping[str, Any],
        options: type[BaseModel],
        given: Container[str] = (),
        name: str = "",
    ) -> BaseModel:
        """What the user wrote in a section, as `options`; `given` are keys that the program sets.

        `name` is the type of the component that the section describes.
        """
        path = tuple(section.split("."))
        try:
            return options.model_validate(values)
        except ValidationError as invalid:
            wrong = problems(invalid, options, self._places, path, given, whole=Config)
            missing = [problem for problem in wrong if problem.message == "missing"]
            if missing and path in self._replaced:
                keys = " and ".join(".".join(problem.key) for problem in missing)
                old, kind = self._replaced[path], (*path, "type")
                message = f"{name} does not inherit options from {old}; give {keys} as well"
                wrong = [p for p in wrong if p not in missing]
                wrong.append(yamlfile.Problem(place_of(self._places, kind), kind, message))
            yamlfile.refuse(wrong)
            raise

    @contextmanager
    def blame(self, section: str) -> Iterator[None]:
        """Makes a constructor's error one about `section`, or the key in it that the message starts with."""
        try:
            yield
        except (ValueError, OverflowError, RuntimeError, MemoryError) as problem:  # torch's: RuntimeErrors
            if out_of_memory(problem):
                raise self.error(
                    section, "takes more memory than there is; choose smaller sizes"
                ) from problem
            message = str(problem).partition("\n")[0]
            word, _, rest = message.partition(" ")
            if rest and (*section.split("."), *word.split(".")) in self._places:
                raise self.error(f"{section}.{word}", rest) from problem
            raise self.error(section, message) from problem


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = (), bases: bool = True) -> Config:
    """Reads and checks a config, with its `base` below and `overrides` such as training.seed=2 on top.

    Without `bases` a `base` is refused: a model folder's config is whole, and reads no other file.
    """
    if bases and not Path(path).exists():
        raise InputError(f"{path}: No such file; `caesura recipes` lists configs to start from")
    if Path(path).is_dir():
        raise InputError(f"{path}: is a directory; {_config_in(Path(path))}")
    source = _read_with_bases(Path(path), 0 if bases else None)
    layer = Source({}, {}, [])
    for override in overrides:
        layer = layer.under(_name_parts(yamlfile.read_override(override)))
    source = source.under(layer)
    for key in source.places.keys() & RETIRED.keys() if bases else ():
        source.fault(key, RETIRED[key])
    _resolve_paths(source)
    try:
        config = Config.model_validate(source.tree)
    except ValidationError as invalid:
        broken = {problem.key for problem in source.problems}  # what could not be read is not judged as well
        wrong = problems(invalid, Config, source.places, whole=Config)
        wrong = [p for p in wrong if not any(p.key[: n + 1] in broken for n in range(len(p.key)))]
        yamlfile.refuse(source.problems + wrong)
    yamlfile.refuse(source.problems)
    config._places, config._replaced = source.places, source.replaced
    return config


def _config_in(folder: Path) -> str:
    """What to name in place of a folder."""
    configs = sorted(folder.glob("*.yaml"))
    return f"name a config, such as {configs[0]}" if configs else "name a config, a .yaml file"


def differences(old: Config, new: Config) -> list[str]:
    """The keys in which two configs differ, as `training.seed: 1 -> 2`."""
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    keys = [key for key in {**before, **after} if before.get(key, ...) != after.get(key, ...)]

    def side(values: dict[str, Any], key: str) -> str:
        return show(values[key], limit=1000) if key in values else "(absent)"

    return [f"{key}: {side(before, key)} -> {side(after, key)}" for key in keys]


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A tree by dotted keys."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return values


def _read_with_bases(path: Path, depth: int | None) -> Source:
    """A file laid over the one that its `base` names, and so on; no base is allowed where `depth` is None."""
    source = yamlfile.read_file(path)
    _name_parts(source)
    base = source.tree.pop("base", None)
    if ("base",) not in source.places:
        return source
    if not isinstance(base, str) or not base:
        source.fault(("base",), f"{show(base)} is not a file name")
        return source
    place = source.places["base",]
    if depth is None:
        raise InputError(place.says(("base",), "the config of a model folder is whole and has no base"))
    if depth == MAX_BASES:
        raise InputError(place.says(("base",), f"more than {MAX_BASES} files deep; do they go in a circle?"))
    if not (path.parent / base).is_file():
        raise InputError(place.says(("base",), f"no file {show(base)} in {path.parent}"))
    return _read_with_bases(path.parent / base, depth + 1).under(source)


def _name_parts(source: Source) -> Source:
    """A segmenter with a reader has type parts; it replaces a segmenter of another type in the base."""
    model = source.tree.get("model")
    segmenter = model.get("segmenter") if isinstance(model, dict) else None
    if isinstance(segmenter, dict) and "reader" in segmenter:
        segmenter.setdefault("type", "parts")
    return source


def _resolve_paths(source: Source) -> None:
    def resolve(owner: dict[str, Any], key: Key) -> None:
        if (value := owner.get(key[-1])) and isinstance(value, str):
            owner[key[-1]] = place_of(source.places, key).resolve(value)

    data = source.tree.get("data")
    if isinstance(data, dict):
        for name in ("train", "dev", "test"):
            resolve(data, ("data", name))
            if isinstance(files := data.get(name), dict):
                resolve(files, ("data", name, "src"))
                resolve(files, ("data", name, "trg"))
            if isinstance(cuts := data.get("cuts"), dict):
                resolve(cuts, ("data", "cuts", name))
