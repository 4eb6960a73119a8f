"""French spell-outs, cut at spaces and hyphens.

As CLDR writes them: hyphens within a number below a hundred, `et` included (`vingt-et-un`), spaces elsewhere
(`cent un`), which is between the classic rule and that of 1990. Two things differ from CLDR. `vingts` and
`cents` keep their s before `millions`, a noun (`quatre-vingts millions`). Ordinals have `et` only where the
cardinal has it (`quatre-vingt-unième`, `cent unième`).
"""

import datetime

from .morphs import Morphs, after, words

_SMALL = words(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"
)
_TENS = {2: "vingt", 3: "trente", 4: "quarante", 5: "cinquante", 6: "soixante", 8: "vingt"}
_MONTHS = words("janvier février mars avril mai juin juillet août septembre octobre novembre décembre")
_IRREGULAR = {"cinq": "cinquième", "neuf": "neuvième"}


def _below_hundred(number: int, plural: bool) -> Morphs:
    if number <= 16:
        return (_SMALL[number],) if number else ()
    if number < 20:
        return ("dix", f"-{_SMALL[number - 10]}")
    tens = number // 10 if number < 60 else number // 20 * 2
    rest = number - 10 * tens
    if tens == 8:
        head: Morphs = ("quatre", "-vingt" if rest or not plural else "-vingts")
    else:
        head = (_TENS[tens],)
        if rest in (1, 11):
            head += ("-et",)
    return head + after("-", _below_hundred(rest, plural))


def _below_thousand(number: int, plural: bool) -> Morphs:
    hundreds, rest = divmod(number, 100)
    tail = _below_hundred(rest, plural)
    if not hundreds:
        return tail
    if hundreds == 1:
        return ("cent", *after(" ", tail))
    return (_SMALL[hundreds], " cent" if rest or not plural else " cents", *after(" ", tail))


def _below_million(number: int, plural: bool) -> Morphs:
    thousands, rest = divmod(number, 1000)
    tail = _below_thousand(rest, plural)
    if not thousands:
        return tail
    head = () if thousands == 1 else _below_thousand(thousands, plural=False)
    return (*head, " mille" if head else "mille", *after(" ", tail))


def _spell(number: int, plural: bool) -> Morphs:
    millions, rest = divmod(number, 1_000_000)
    tail = _below_million(rest, plural)
    if not millions:
        return tail or ("zéro",)
    noun = " million" if millions == 1 or not (plural or rest) else " millions"
    return (*_below_thousand(millions, plural or rest > 0), noun, *after(" ", tail))


def cardinal(number: int) -> Morphs:
    """`quatre|-vingt|-un`."""
    return _spell(number, plural=True)


def ordinal(number: int) -> Morphs:
    """`vingt|-et|-unième`, masculine (`premier`)."""
    if number == 1:
        return ("premier",)
    *front, last = _spell(number, plural=False)
    stem = last.lstrip(" -")
    return (*front, last.replace(stem, _IRREGULAR.get(stem, stem.removesuffix("e") + "ième")))


def year(number: int) -> Morphs:
    """`en| mille| neuf| cent| quatre|-vingt|-cinq`."""
    return ("en", *after(" ", cardinal(number)))


def date(when: datetime.date) -> Morphs:
    """`le| vingt|-trois| mars| mille| neuf| cent| quatre|-vingt|-cinq`."""
    of_month = ("premier",) if when.day == 1 else cardinal(when.day)
    return ("le", *after(" ", of_month), f" {_MONTHS[when.month - 1]}", *after(" ", cardinal(when.year)))
