"""English spell-outs, the target: British `and`, no commas, cut at spaces and hyphens."""

import datetime

from .morphs import Morphs, after, words

_SMALL = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = words("twenty thirty forty fifty sixty seventy eighty ninety")
_MONTHS = words("January February March April May June July August September October November December")
_IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def _below_hundred(number: int) -> Morphs:
    if number < 20:
        return (_SMALL[number],)
    tens, unit = divmod(number, 10)
    return (_TENS[tens - 2], f"-{_SMALL[unit]}") if unit else (_TENS[tens - 2],)


def cardinal(number: int) -> Morphs:
    """`seven| hundred| and| twenty|-three`."""
    for unit, name in ((1_000_000, " million"), (1000, " thousand"), (100, " hundred")):
        count, rest = divmod(number, unit)
        if count:
            joint: Morphs = (" and",) if 0 < rest < 100 else ()
            return (*cardinal(count), name, *joint, *(after(" ", cardinal(rest)) if rest else ()))
    return _below_hundred(number)


def ordinal(number: int) -> Morphs:
    """`seven| hundred| and| twenty|-third`."""
    *front, last = cardinal(number)
    stem = last.lstrip(" -")
    regular = stem.removesuffix("y") + "ieth" if stem.endswith("y") else stem + "th"
    return (*front, last.replace(stem, _IRREGULAR.get(stem, regular)))


def _year(number: int) -> Morphs:
    if number < 1000 or number % 1000 < 10:
        return cardinal(number)
    century, rest = divmod(number, 100)
    head = _below_hundred(century)
    if not rest:
        return (*head, " hundred")
    if rest < 10:
        return (*head, " oh", f"-{_SMALL[rest]}")
    return head + after(" ", _below_hundred(rest))


def year(number: int) -> Morphs:
    """`in| nineteen| eighty|-five`."""
    return ("in", *after(" ", _year(number)))


def date(when: datetime.date) -> Morphs:
    """`the| twenty|-third| of| March| nineteen| eighty|-five`."""
    return (
        "the",
        *after(" ", ordinal(when.day)),
        " of",
        f" {_MONTHS[when.month - 1]}",
        *after(" ", _year(when.year)),
    )
