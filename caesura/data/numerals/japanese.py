"""Japanese spell-outs in kanji, one morph per character, as CLDR writes them (千 and 千万 without 一)."""

import datetime
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from .morphs import Morphs

_DIGITS = "〇一二三四五六七八九"
_UNITS = {100_000_000: "億", 10_000: "万", 1000: "千", 100: "百", 10: "十"}


def spell(
    number: int,
    digits: Sequence[str],
    units: Mapping[int, str],
    changed: Mapping[tuple[int, int], Morphs] = MappingProxyType({}),  # the sounds of a count and its unit
) -> Morphs:
    """The morphs of a number, empty for 0; a single 10, 100 or 1000 is not counted."""
    for unit, name in units.items():
        count, rest = divmod(number, unit)
        if count:
            counted = () if count == 1 and unit < 10_000 else spell(count, digits, units, changed)
            return (*changed.get((count, unit), (*counted, name)), *spell(rest, digits, units, changed))
    return (digits[number],) if number else ()


def cardinal(number: int) -> Morphs:
    """`七|百|二|十|三`."""
    return spell(number, _DIGITS, _UNITS) or ("〇",)


def ordinal(number: int) -> Morphs:
    """`第|七|百|二|十|三`."""
    return ("第", *cardinal(number))


def year(number: int) -> Morphs:
    """`一|九|八|五|年`: digit by digit from 1000 on."""
    digits = tuple(_DIGITS[int(digit)] for digit in str(number))
    return (*(digits if number >= 1000 else cardinal(number)), "年")


def date(when: datetime.date) -> Morphs:
    """`一|九|八|五|年|三|月|二|十|三|日`."""
    return (*year(when.year), *cardinal(when.month), "月", *cardinal(when.day), "日")
