"""Pydantic's errors in our words: what is wrong with a key, and what would be right."""

import difflib
import inspect
import json
import re
import typing
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from caesura.yamlfile import Key, Place, Problem, place_of, show


def problems(
    invalid: ValidationError,
    model: type[BaseModel],
    places: Mapping[Key, Place],
    section: Key = (),
    given: Container[str] = (),
    whole: type[BaseModel] | None = None,
) -> list[Problem]:
    """What is wrong with the keys of `section`, one problem a key; `given` are keys that the program sets.

    A missing key is not named beside its misspelling; one in a wrong place is looked for in all of `whole`.
    """
    found: dict[Key, list[str]] = {}
    absent, guessed = set(), set()
    for error in invalid.errors(include_url=False):
        # <: a union's tag; [key]: the name of an entry, not its value
        path = tuple(str(part) for part in error["loc"] if str(part) != "[key]")
        key = tuple(part for part in path if not part.startswith("<"))
        if section:
            path = key = key[:1]
        if error["type"] == "rule" and error["ctx"]["key"]:
            key = (*key, error["ctx"]["key"])
        if error["type"] == "extra_forbidden":
            names = dict.fromkeys(_keys(whole)) if whole else {}
            elsewhere = [".".join(known) for known in names if known[-1] == key[-1]]
            known = [*_fields(model, path[:-1]), *(_fields(whole, section) if whole and section else ())]
            guess = None if elsewhere else nearest(key[-1], known)
            guessed.add((*key[:-1], guess))
            meant = f"'{guess}'" if guess else " or ".join(elsewhere)
            text = "unknown key" + (f"; did you mean {meant}?" if meant else "")
            if section + key in names:
                text = "not a key of this type"
            if key[-1] in given:
                text = "the program sets this itself; remove it"
        elif error["type"] == "missing":
            absent.add(key)
            about = _fields(model, path[:-1])[key[-1]].description
            text = f"missing: {about}" if about else "missing"
        else:
            text = _phrase(error, section + key, place_of(places, section + key))
        found.setdefault(key, []).append(text)
    for key in absent & guessed:
        del found[key]
    return [
        Problem(place_of(places, section + k), section + k, "; ".join(texts)) for k, texts in found.items()
    ]


_LIMITS = {
    "greater_than_equal": "too small; at least {ge:.15g}",
    "greater_than": "too small; more than {gt:.15g}",
    "less_than_equal": "too large; at most {le:.15g}",
    "less_than": "too large; less than {lt:.15g}",
}
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "bool": "true or false",
    "path": "a file name",
    "list": "a list",
    "model": "a section of `key: value` lines",
    "union": "a FILE.tsv or {src: FILE, trg: FILE}",
}

IN_QUOTES = "put it in quotes"


def in_shell(key: str, text: str) -> str:
    """How a command line has text that YAML takes for something else: its shell takes quotes away."""
    return f"in a shell write '{key}={json.dumps(text, ensure_ascii=False)}'"


def _phrase(error: ErrorDetails, key: Key, place: Place) -> str:
    """One of pydantic's errors about a value as a sentence that says what would be right."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "rule":
        return context["message"]
    if kind in _LIMITS:
        return f"{show(value)} is {_LIMITS[kind].format(**context)}"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        guess = nearest(str(value), choices)
        ending = f"; did you mean '{guess}'?" if guess else ""
        return f"{show(value)} is not one of {', '.join(choices)}{ending}"
    if kind == "string_pattern_mismatch":
        return f"{show(value)} may hold letters, digits, spaces and . _ + - only, and not start with a mark"
    if kind == "string_too_short":
        return "is empty"
    wanted = _WANTED.get(kind.split("_")[0])
    if wanted is None:
        return f"{show(value)}: {error['msg']}"
    remedy = ""
    if kind == "string_type" and isinstance(value, bool | int | float | None):  # None: a space, perhaps
        remedy = f"; {IN_QUOTES}"
        if place.file and not place.line and place.key == key:  # from the command line
            name, typed = ".".join(key), place.file.partition("=")[2].strip()
            if not typed:
                return f'an empty value is null, not text; {in_shell(name, " ")}, or "" for no text'
            remedy = f"; {in_shell(name, typed)}"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        remedy = f"; write {value:.0f}"
    return f"{show(value)} is not {wanted}{remedy}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that another one was probably meant to be."""
    return next(iter(difflib.get_close_matches(word.lower(), list(known), n=1)), None)


def _fields(model: type[BaseModel], path: Key) -> dict[str, FieldInfo]:
    """The keys that may stand in the section at `path`, in which <Name> is one of several sections."""
    choices = [model]
    for part in path:
        if part.startswith("<"):
            model = next((choice for choice in choices if part == f"<{choice.__name__}>"), model)
        elif part in model.model_fields:  # else the name of an entry, of which all are alike
            choices = [*_models_in(model.model_fields[part].annotation)] or [model]
            model = choices[0]
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _keys(model: type[BaseModel], path: Key = ()) -> Iterator[Key]:
    """All keys from the top, sections included."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for section in _models_in(field.annotation):
            yield from _keys(section, (*path, name))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)
