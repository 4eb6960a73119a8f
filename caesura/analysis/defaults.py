"""Configs with and without the keys that have their default values.

The defaults are read where they are written: in the sections of a config, and in the constructors of the
parts of a model. A tree is a config as JSON; one that is not valid, such as with a part that is not
registered, stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from caesura.components import check_options
from caesura.config import Config
from caesura.decoders.base import DECODERS
from caesura.encoders.base import ENCODERS
from caesura.errors import InputError
from caesura.segmenters.base import SEGMENTERS

Tree = dict[str, Any]
PARTS: dict[str, Mapping[str, Any]] = {"segmenter": SEGMENTERS, "encoder": ENCODERS, "decoder": DECODERS}
OWN = ("type", "tau", "imitation")  # keys of a part that are not options of its constructor


def with_defaults(tree: Tree) -> Tree:
    """A tree with the keys that it lacks, as a config of an earlier version does."""
    config = _checked(tree)
    if config is not None:
        tree = config.model_dump(mode="json")
    return _each_part(tree, _whole)


def without_defaults(tree: Tree) -> Tree:
    """A tree without the keys that change nothing: it stays the same when an option is added."""
    config = _checked(tree)
    if config is not None:
        tree = config.model_dump(mode="json", exclude_defaults=True)
    return _each_part(tree, _plain)


def changed_options(part: str, values: Tree) -> Tree:
    """The options of a part that differ from their defaults; parts within it are mappings."""
    return {key: value for key, value in _plain(part, values).items() if key not in OWN}


def _each_part(tree: Tree, change: Callable[[str, Tree], Tree]) -> Tree:
    model = tree.get("model")
    if not isinstance(model, dict):
        return tree
    parts = {part: change(part, model[part]) for part in PARTS if isinstance(model.get(part), dict)}
    return tree | {"model": model | parts}


def _checked(tree: Tree) -> Config | None:
    """The tree as a config; one that was put together of two may have keys of the other's cuts, as null."""
    data = tree.get("data")
    cuts = data.get("cuts") if isinstance(data, dict) else None
    pruned = tree | {"data": data | {"cuts": _without_nulls(cuts)}} if data and cuts else tree
    for tried in (tree, pruned):
        with suppress(ValidationError):
            return Config.model_validate(tried)
    return None


def _filled(part: str, values: Tree) -> Tree | None:
    """All options of a part, parts within it included; None where no registered class has such options."""
    entry = PARTS[part].get(str(values.get("type", "parts")))
    if entry is None:
        return None
    options = {key: value for key, value in values.items() if key not in OWN}
    filled = _options(entry, json.dumps(options)) or _options(entry, json.dumps(_without_nulls(options)))
    return None if filled is None else json.loads(filled)


@lru_cache(4096)
def _options(entry: Any, options: str) -> str | None:
    """The options of a registered class, from and as JSON."""
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(import_module(module), name)
    try:
        return json.dumps(check_options(Config.model_construct(), "model", entry, json.loads(options)))
    except (InputError, TypeError):
        return None


def _whole(part: str, values: Tree) -> Tree:
    """A part with all its options."""
    full = _filled(part, values)
    return values if full is None else {key: values[key] for key in OWN if key in values} | full


def _plain(part: str, values: Tree) -> Tree:
    """A part without the options that change nothing when they are left out."""
    full = _filled(part, values)
    if full is None:
        return values
    kept = {key: value for key, value in values.items() if key in OWN}
    rest = full
    for path in _paths(full):
        tried = _without(rest, path)
        if _filled(part, kept | tried) == full:
            rest = tried
    return kept | rest


def _paths(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


def _without(tree: Tree, path: tuple[str, ...]) -> Tree:
    key, *below = path
    if key not in tree:
        return tree
    rest = {name: value for name, value in tree.items() if name != key}
    return tree | {key: _without(tree[key], tuple(below))} if below else rest


def _without_nulls(tree: Tree) -> Tree:
    """The tree without null or empty values, at every depth."""
    pruned = {k: _without_nulls(v) if isinstance(v, dict) else v for k, v in tree.items()}
    return {key: value for key, value in pruned.items() if value not in (None, {})}
