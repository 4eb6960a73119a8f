"""German spell-outs, cut where CLDR puts its soft hyphens and at spaces.

One word below a million, with `einhundert` and `eintausend`. Teens, tens and ordinal endings are not cut
(`sieb` of `siebzehn` is not a word): `ein|und|zwanzigste`.
"""

import datetime

from .morphs import Morphs, after, words

_SMALL = words(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
)
_TENS = words("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_MONTHS = words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
_IRREGULAR = {"eins": "erste", "drei": "dritte", "sieben": "siebte", "acht": "achte"}


def _below_thousand(number: int, one: str) -> Morphs:
    """Empty for 0; `one` is the form of a final 1, which depends on what follows."""
    hundreds, rest = divmod(number, 100)
    head: Morphs = (_bound(hundreds), "hundert") if hundreds else ()
    if rest == 1:
        return (*head, one)
    if rest < 20:
        return (*head, _SMALL[rest]) if rest else head
    tens, unit = divmod(rest, 10)
    return (*head, *((_bound(unit), "und") if unit else ()), _TENS[tens - 2])


def _bound(digit: int) -> str:
    return "ein" if digit == 1 else _SMALL[digit]


def _below_million(number: int) -> Morphs:
    thousands, rest = divmod(number, 1000)
    head = (*_below_thousand(thousands, "ein"), "tausend") if thousands else ()
    return head + _below_thousand(rest, "eins")


def cardinal(number: int) -> Morphs:
    """`sieben|hundert|drei|und|zwanzig`."""
    if number == 0:
        return ("null",)
    millions, rest = divmod(number, 1_000_000)
    if not millions:
        return _below_million(rest)
    noun = " Million" if millions == 1 else " Millionen"
    return (*_below_thousand(millions, "eine"), noun, *after(" ", _below_million(rest)))


def ordinal(number: int) -> Morphs:
    """`ein|und|zwanzigste`, the form after the article."""
    millions, rest = divmod(number, 1_000_000)
    if millions and not rest:
        # CLDR writes "zwei Millionenste"; German has "zweimillionste".
        return (*_below_thousand(millions, "ein"), "millionste")
    *front, last = cardinal(number)
    stem = last.strip()
    ending = "te" if number % 100 in range(1, 20) or number == 0 else "ste"
    return (*front, last.replace(stem, _IRREGULAR.get(stem, stem + ending)))


def _year(number: int) -> Morphs:
    if 1100 <= number < 2000:
        return (_SMALL[number // 100], "hundert", *_below_thousand(number % 100, "eins"))
    return cardinal(number)


def year(number: int) -> Morphs:
    """`im| Jahr| neunzehn|hundert|fünf|und|achtzig`."""
    return ("im", " Jahr", *after(" ", _year(number)))


def date(when: datetime.date) -> Morphs:
    """`der| drei|und|zwanzigste| März| neunzehn|hundert|fünf|und|achtzig`."""
    return (
        "der",
        *after(" ", ordinal(when.day)),
        f" {_MONTHS[when.month - 1]}",
        *after(" ", _year(when.year)),
    )
