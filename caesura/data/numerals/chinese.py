"""Chinese spell-outs in simplified characters, one morph per character.

Cardinals count, so they follow CLDR's `%spellout-cardinal-alternate2`: 零 for a gap, 两 alone and before
百 千 万 亿. Ordinals, years and dates number, so they follow `%spellout-ordinal` and
`%spellout-numbering-year`: 〇 for a gap, 二 throughout. As in CLDR there is no 零 between 亿 and 万.
"""

import datetime

from .morphs import Morphs

_DIGITS = "〇一二三四五六七八九"
# A unit, its name, and the remainder below which the gap is spoken.
_UNITS = ((100_000_000, "亿", 10_000), (10_000, "万", 1000), (1000, "千", 100), (100, "百", 10))


def _spell(number: int, zero: str, two: str) -> Morphs:
    for unit, name, gap in _UNITS:
        count, rest = divmod(number, unit)
        if count:
            head = (two,) if count == 2 else _spell(count, zero, two)
            return (*head, name, *_rest(rest, gap, zero, two))
    tens, digit = divmod(number, 10)
    ten: Morphs = () if not tens else ("十",) if tens == 1 else (_DIGITS[tens], "十")
    return (*ten, _DIGITS[digit]) if digit else ten


def _rest(number: int, gap: int, zero: str, two: str) -> Morphs:
    spoken: Morphs = (zero,) if 0 < number < gap else ()
    one: Morphs = ("一",) if 10 <= number < 20 else ()
    return spoken + one + _spell(number, zero, two)


def cardinal(number: int) -> Morphs:
    """`两|百|零|二`."""
    return {0: ("零",), 2: ("两",)}.get(number) or _spell(number, "零", "两")


def _numbering(number: int) -> Morphs:
    return _spell(number, "〇", "二") or ("〇",)


def ordinal(number: int) -> Morphs:
    """`第|二|百|〇|二`."""
    return ("第", *_numbering(number))


def year(number: int) -> Morphs:
    """`一|九|八|五|年`: digit by digit from 1000 on."""
    digits = tuple(_DIGITS[int(digit)] for digit in str(number))
    return (*(digits if number >= 1000 else _numbering(number)), "年")


def date(when: datetime.date) -> Morphs:
    """`一|九|八|五|年|三|月|二|十|三|日`."""
    return (*year(when.year), *_numbering(when.month), "月", *_numbering(when.day), "日")
