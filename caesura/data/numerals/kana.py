"""Japanese spell-outs in hiragana: the readings of the kanji, with their sound changes.

A morph is what one kanji reads as, so a changed sound stays with its morph: `ろっ|ぴゃく`, `はっ|せん`.
Where two readings are current: ぜろ, よん (よ before ねん), なな, きゅう; しち and く in months and days.
"""

import datetime

from .japanese import spell
from .morphs import Morphs

_DIGITS = ("ぜろ", "いち", "に", "さん", "よん", "ご", "ろく", "なな", "はち", "きゅう")
_CHANGED = {
    (3, 100): ("さん", "びゃく"),
    (6, 100): ("ろっ", "ぴゃく"),
    (8, 100): ("はっ", "ぴゃく"),
    (3, 1000): ("さん", "ぜん"),
    (8, 1000): ("はっ", "せん"),
}
_UNITS = {100_000_000: "おく", 10_000: "まん", 1000: "せん", 100: "ひゃく", 10: "じゅう"}
_MONTH_DIGITS = {4: "し", 7: "しち", 9: "く"}
_DAYS: dict[int, Morphs] = {
    1: ("ついたち",),
    2: ("ふつ", "か"),
    3: ("みっ", "か"),
    4: ("よっ", "か"),
    5: ("いつ", "か"),
    6: ("むい", "か"),
    7: ("なの", "か"),
    8: ("よう", "か"),
    9: ("ここの", "か"),
    10: ("とお", "か"),
    14: ("じゅう", "よっ", "か"),
    17: ("じゅう", "しち", "にち"),
    19: ("じゅう", "く", "にち"),
    20: ("はつ", "か"),
    24: ("に", "じゅう", "よっ", "か"),
    27: ("に", "じゅう", "しち", "にち"),
    29: ("に", "じゅう", "く", "にち"),
}


def cardinal(number: int) -> Morphs:
    """`なな|ひゃく|に|じゅう|さん`."""
    return spell(number, _DIGITS, _UNITS, _CHANGED) or ("ぜろ",)


def ordinal(number: int) -> Morphs:
    """`だい|なな|ひゃく|に|じゅう|さん`."""
    return ("だい", *cardinal(number))


def year(number: int) -> Morphs:
    """`せん|きゅう|ひゃく|はち|じゅう|ご|ねん`."""
    *front, last = cardinal(number)
    return (*front, "よ" if last == "よん" else last, "ねん")


def date(when: datetime.date) -> Morphs:
    """`せん|きゅう|ひゃく|はち|じゅう|ご|ねん|さん|がつ|に|じゅう|さん|にち`."""
    of_month = (_MONTH_DIGITS[when.month],) if when.month in _MONTH_DIGITS else cardinal(when.month)
    return (*year(when.year), *of_month, "がつ", *(_DAYS.get(when.day) or (*cardinal(when.day), "にち")))
