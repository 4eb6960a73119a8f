"""Japanese spell-outs in kanji, a morph a character, as CLDR writes them (千 and 千万 without 一)."""

import datetime

from .morphs import Morphs

_DIGITS = "〇一二三四五六七八九"
_MYRIADS = ((100_000_000, "億"), (10_000, "万"))
_UNITS = ((1000, "千"), (100, "百"), (10, "十"))


def _spell(number: int) -> Morphs:
    for unit, name in _MYRIADS:
        count, rest = divmod(number, unit)
        if count:
            return (*_spell(count), name, *_spell(rest))
    for unit, name in _UNITS:
        count, rest = divmod(number, unit)
        if count:
            return (*((_DIGITS[count],) if count > 1 else ()), name, *_spell(rest))
    return (_DIGITS[number],) if number else ()


def cardinal(number: int) -> Morphs:
    """`七|百|二|十|三`."""
    return _spell(number) or ("〇",)


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
