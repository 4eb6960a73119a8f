"""One way into every language: `spell(723, "de")`, `example(723, "de")`."""

import datetime
from dataclasses import dataclass
from typing import Protocol

from caesura.errors import InputError

from . import chinese, english, french, german, japanese, kana
from .morphs import LIMIT, Morphs, boundaries

FORMS = ("cardinal", "ordinal", "year", "date")


class Speller(Protocol):
    """The functions of a language's module."""

    def cardinal(self, number: int) -> Morphs: ...
    def ordinal(self, number: int) -> Morphs: ...
    def year(self, number: int) -> Morphs: ...
    def date(self, when: datetime.date) -> Morphs: ...


_SPELLERS: dict[str, Speller] = {
    "de": german,
    "fr": french,
    "ja": japanese,
    "ja-kana": kana,
    "zh": chinese,
    "en": english,
}
LANGUAGES = tuple(language for language in _SPELLERS if language != "en")


@dataclass(frozen=True)
class Example:
    """A spell-out with its translation; `number` is yyyymmdd for a date."""

    source: str
    target: str
    bounds: tuple[int, ...]
    number: int
    form: str


def spell(number: int, language: str, form: str = "cardinal") -> Morphs:
    """The morphs of a number; a date is the number yyyymmdd."""
    if language not in _SPELLERS:
        raise InputError(f"unknown language {language!r}: choose from {', '.join(_SPELLERS)}")
    speller = _SPELLERS[language]
    if form == "date":
        return speller.date(_to_date(number))
    ranges = {"cardinal": (0, LIMIT), "ordinal": (0, LIMIT), "year": (1, 9999)}
    if form not in ranges:
        raise InputError(f"unknown form {form!r}: choose from {', '.join(FORMS)}")
    low, high = ranges[form]
    if not low <= number <= high:
        raise InputError(f"{number} is out of range: {form}s are numbers from {low} to {high}")
    function = {"cardinal": speller.cardinal, "ordinal": speller.ordinal, "year": speller.year}[form]
    return function(number)


def _to_date(number: int) -> datetime.date:
    try:
        return datetime.date(number // 10_000, number // 100 % 100, number % 100)
    except ValueError:
        raise InputError(f"{number} is not a date: write yyyymmdd, such as 19850323") from None


def example(number: int, language: str, form: str = "cardinal") -> Example:
    """A number in a source language with its English translation and gold boundaries."""
    morphs = spell(number, language, form)
    return Example("".join(morphs), "".join(spell(number, "en", form)), boundaries(morphs), number, form)
