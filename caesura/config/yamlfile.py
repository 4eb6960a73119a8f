"""YAML as plain data that remembers where each key was written, without YAML's traps."""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from caesura.config.cookbook import shown
from caesura.errors import InputError
from caesura.visible import HALVES, VALUE, quoted, shortened

Key = tuple[str, ...]
MAX_BYTES = 2**20
MAX_DEPTH = 16
MAX_NODES = 20_000  # keys, values, lists; a list of 2,000 runs with four settings each has 18,001
MAX_PROBLEMS = 10  # shown

_FLOAT = re.compile(r"^[-+]?(\d[\d_]*\.[\d_]*([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.\d+([eE][-+]?\d+)?)$")
_SCALARS = {
    "null": (re.compile(r"^(~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    "int": (re.compile(r"^[-+]?(0|[1-9][\d_]*)$"), list("-+0123456789")),
    "float": (_FLOAT, list("-+.0123456789")),
}
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Reads scalars as YAML 1.2 does: `no` is text, 3e-4 a number, dates are text.

    Aliases and deep nesting, with which a small file can grow beyond all bounds, are refused, and so are more
    keys and values than anyone writes, because each takes time.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  a class attribute of PyYAML
    depth = nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        problem = ""
        if self.check_event(yaml.AliasEvent):
            problem = "aliases (*name) are not supported; write the value out, or share it by `base: FILE`"
        if self.depth > MAX_DEPTH:
            problem = "nested too deeply"
        if self.nodes > MAX_NODES:
            problem = f"too large for a config; at most {MAX_NODES:,} keys and values"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)
        self.depth, self.nodes = self.depth + 1, self.nodes + 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def scan_flow_scalar_non_spaces(self, double: bool, start_mark: yaml.Mark) -> list[str]:
        try:
            chunks: list[str] = super().scan_flow_scalar_non_spaces(double, start_mark)
        except (ValueError, OverflowError):  # of `chr`
            problem = "an escape that stands for no character"
            raise yaml.scanner.ScannerError(problem=problem, problem_mark=self.get_mark()) from None
        return chunks


class _Dumper(yaml.SafeDumper):
    """Quotes whatever this loader or a YAML 1.1 reader would not take for text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # In other quotes PyYAML breaks lines at Unicode's own line breaks, and then reads another text back.
        quotes = '"' if re.search("[\x85\u2028\u2029]", data) else None
        return self.represent_scalar(_TAG + "str", data, style=quotes)


_Dumper.add_representer(str, _Dumper.represent_str)


for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)
_Dumper.add_implicit_resolver(_TAG + "float", _FLOAT, _SCALARS["float"][1])


class Place(NamedTuple):
    """Where a key was written: a line of a file, or (line 0) a command-line override of `key`."""

    file: str
    line: int
    key: Key = ()

    def says(self, key: Key, message: str) -> str:
        """`message` about `key`, with the place in front."""
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        return where + (message if not key or key == self.key else f"{'.'.join(key)}: {message}")

    def resolve(self, path: str) -> str:
        """`path` as seen from the folder of the file (overrides: from the current folder), made absolute."""
        folder = Path(self.file).parent if self.line else Path()
        return os.path.abspath(folder / os.path.expanduser(path))


class Problem(NamedTuple):
    """Something wrong with a key."""

    place: Place
    key: Key
    message: str


@dataclass(frozen=True)
class Source:
    """A tree of plain values, the place of each key, and the problems so far."""

    tree: dict[str, Any]
    places: dict[Key, Place]
    problems: list[Problem]
    replaced: dict[Key, str] = field(default_factory=dict)  # sections of another type than below, and that

    def under(self, other: "Source") -> "Source":
        """`other` laid over this one, key by key; one of another `type` replaces the section."""
        # If a section became a plain value, keys below it no longer count.
        plain = {key for key in other.places if not isinstance(_at(other.tree, key), dict)}
        kept = {
            key: place
            for key, place in self.places.items()
            if not any(key[:n] in plain for n in range(len(key)))
        }
        places = kept | {
            key: place
            for key, place in other.places.items()
            if len(key) >= len(place.key) or key not in self.places  # a section stays where it was written
        }
        replaced = self.replaced | dict(_replaced(self.tree, other.tree))
        return Source(_merge(self.tree, other.tree), places, self.problems + other.problems, replaced)

    def fault(self, key: Key, message: str) -> None:
        """Notes a problem with a key."""
        self.problems.append(Problem(place_of(self.places, key), key, message))


def _at(tree: Any, key: Key) -> Any:
    for part in key:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def place_of(places: Mapping[Key, Place], key: Key) -> Place:
    """Where `key` was written, or the nearest section around it that was."""
    return next((places[key[:n]] for n in range(len(key), -1, -1) if key[:n] in places), Place("", 0))


def refuse(problems: list[Problem]) -> None:
    """Raises one InputError with the problems, a line each, in the order of the file."""
    if problems:
        lines = [p.place.says(p.key, p.message) for p in sorted(problems)]
        more = [f"... and {len(lines) - MAX_PROBLEMS} more"] if len(lines) > MAX_PROBLEMS else []
        raise InputError(*lines[:MAX_PROBLEMS], *more)


def show(value: Any, limit: int = VALUE) -> str:
    """A value as it could stand in YAML, escaped and cut to `limit` characters."""
    if isinstance(value, str):
        return quoted(value, limit)
    return shortened(json.dumps(value, ensure_ascii=False, default=str), limit)


def dump(tree: dict[str, Any]) -> str:
    """A tree as YAML, keys in their order."""
    return _dumped(json.dumps(tree))


@lru_cache(maxsize=8)  # a training writes its config beside each best model
def _dumped(tree: str) -> str:
    return yaml.dump(json.loads(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def read_file(path: str | os.PathLike[str]) -> Source:
    """Reads a mapping from a YAML file."""
    name = shown(path)
    source = Source({}, {(): Place(name, 1)}, [])
    tree = _read(_decoded(path), (), source, lambda line: Place(name, line))
    if tree is None:
        raise InputError(f"{name}:1: the file is empty; a config has sections such as data: and model:")
    if not isinstance(tree, dict):
        raise InputError(f"{name}:1: the file must hold `key: value` pairs, not {_KINDS[type(tree)]}")
    source.tree.update(tree)
    return source


def read_list(path: str | os.PathLike[str], name: str) -> Source:
    """Reads a list from a YAML file as a tree of one key, `name`."""
    file = shown(path)
    source = Source({}, {(): Place(file, 1)}, [])
    rows = _read(_decoded(path), (name,), source, lambda line: Place(file, line))
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}:1: the file must hold a list: lines that begin with a dash")
    source.tree[name] = rows
    return source


def _decoded(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror}") from problem
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: larger than 1 MiB; this is not a config")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8; save the file as UTF-8") from problem


def read_override(text: str) -> Source:
    """Reads `a.b=value` from the command line as a tree of one key."""
    name, equals, value = text.partition("=")
    key = tuple(part.strip() for part in name.split("."))
    place = Place(f"--set {text}", 0, key)
    if not equals or not all(key) or len(key) > MAX_DEPTH:
        raise InputError(f"--set {text}: write it as key=value, such as training.seed=2")
    source = Source({}, {key[:n]: place for n in range(1, len(key) + 1)}, [])
    tree = _read(value, key, source, lambda line: place)
    for part in reversed(key):
        tree = {part: tree}
    source.tree.update(tree)
    return source


_KINDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "a truth value"}


def _merge(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    if _other_type(old, new):
        return new
    return old | {key: _merge(old.get(key), value) for key, value in new.items()}


def _replaced(old: Any, new: Any, path: Key = ()) -> Iterator[tuple[Key, str]]:
    """Which sections are not merged, and the type that they were of."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    if _other_type(old, new):
        yield path, old["type"]
        return
    for key, value in new.items():
        yield from _replaced(old.get(key), value, (*path, key))


def _other_type(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return "type" in old and new.get("type", old["type"]) != old["type"]


def _read(text: str, key: Key, source: Source, place: Callable[[int], Place]) -> Any:
    """The value of a YAML text that stands at `key`; places and problems go to `source`."""
    try:
        node = _composed(text)
        return None if node is None else _value(node, key, source, place)
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        message = f"character {chr(problem.character)!r} is not allowed"
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        line = mark.line + 1 if mark else 1
        message = problem.problem or "not YAML"
        if "'\\t'" in message:
            message = "a tab; indent with spaces"
        elif isinstance(problem, yaml.scanner.ScannerError | yaml.parser.ParserError):
            message = f"not valid YAML: {message}"
    raise InputError(place(line).says(key, message))


@lru_cache(maxsize=64)  # systems of a recipe share their bases, and runs of a sweep their settings
def _composed(text: str) -> yaml.Node | None:
    return _Loader(text).get_single_node()


def _value(node: yaml.Node, key: Key, source: Source, place: Callable[[int], Place]) -> Any:
    def fault(message: str, at: yaml.Node = node, about: Key = key) -> None:
        source.problems.append(Problem(place(at.start_mark.line + 1), about, message))

    if not isinstance(node, yaml.ScalarNode) and node.tag not in (_TAG + "map", _TAG + "seq"):
        return fault(f"the tag {node.tag} is not supported")
    if isinstance(node, yaml.SequenceNode):
        source.places.update(
            {(*key, str(n)): place(item.start_mark.line + 1) for n, item in enumerate(node.value)}
        )
        return [_value(item, (*key, str(n)), source, place) for n, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        try:
            return _scalar(node.tag.removeprefix(_TAG), node.value)
        except ValueError as problem:
            return fault(str(problem))
    mapping: dict[str, Any] = {}
    for name, child in node.value:
        if not isinstance(name, yaml.ScalarNode):
            fault("a key must be a plain word", name)
            continue
        inner = (*key, name.value)
        if name.value in mapping:
            fault(f"written twice, first on line {source.places[inner].line}", name, inner)
            continue
        source.places[inner] = place(name.start_mark.line + 1)
        mapping[name.value] = _value(child, inner, source, place)
    return mapping


def _scalar(tag: str, text: str) -> Any:
    if tag == "str":
        if HALVES.search(text):
            raise ValueError("half a character (a lone surrogate)")
        return text
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    if tag in ("int", "float"):
        digits = text.replace("_", "")
        try:
            if tag == "int" and abs(whole := int(digits)) < 2**63:  # what else counts things has 64 bits too
                return whole
            if tag == "float" and math.isfinite(number := float(digits)):
                return number
        except ValueError:
            raise ValueError(f"{show(text)} is not a number of this kind") from None
        raise ValueError(f"the number {show(text)} is out of range")
    raise ValueError(f"the tag {tag} is not supported")
