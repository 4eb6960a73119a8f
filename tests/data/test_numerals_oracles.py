"""Spell-outs against two independent sources: CLDR's rules, as ICU runs them, and num2words.

Where a source is passed over, the comment says what it gets wrong.
"""

import random
from functools import cache

import pytest

from caesura.data.numerals import spell

icu = pytest.importorskip("icu4py.messageformat")
num2words = pytest.importorskip("num2words").num2words

SOFT_HYPHEN = "\u00ad"


def _numbers() -> list[int]:
    rng = random.Random(3)
    numbers = [*range(1200)]
    for digits in range(4, 10):
        for _ in range(200):
            kept = rng.getrandbits(digits) | 1 << (digits - 1)  # half of the digits are 0
            numbers.append(sum(rng.randint(1, 9) * 10**i for i in range(digits) if kept >> i & 1))
    return numbers + [d * 10**i + extra for d in (1, 2, 8, 21, 80, 101) for i in range(7) for extra in (0, 1)]


NUMBERS = _numbers()


@cache
def _format(language: str, rules: str) -> icu.MessageFormat:
    return icu.MessageFormat(f"{{n, spellout,%spellout-{rules}}}", language)


def cldr(number: int, language: str, rules: str) -> str:
    return _format(language, rules).format({"n": number})


def ours(number: int, language: str, form: str = "cardinal") -> str:
    return "".join(spell(number, language, form))


def differences(numbers: list[int], left, right) -> list[tuple[int, str, str]]:
    return [(n, left(n), right(n)) for n in numbers if left(n) != right(n)][:5]


def test_rule_sets_are_told_apart() -> None:
    """ICU falls back to the default rules without a word, even for a space before the name of the set."""
    assert cldr(2, "zh", "cardinal-alternate2") != cldr(2, "zh", "cardinal")
    assert cldr(101, "zh", "cardinal") != cldr(101, "zh", "numbering")
    assert cldr(101, "en", "cardinal-verbose") != cldr(101, "en", "cardinal")
    assert cldr(1985, "de", "numbering-year") != cldr(1985, "de", "numbering")
    for language in ("de", "ja", "zh"):
        assert cldr(3, language, "ordinal") != cldr(3, language, "numbering")


def german_cuts(text: str) -> str:
    return text.replace(SOFT_HYPHEN, "|").replace(" ", "| ")


@pytest.mark.parametrize(("form", "rules"), [("cardinal", "numbering"), ("ordinal", "ordinal")])
def test_german_is_cut_where_cldr_has_soft_hyphens(form: str, rules: str) -> None:
    # CLDR has "zwei Millionenste" where German has "zweimillionste"; see the next test.
    numbers = [n for n in NUMBERS if form == "cardinal" or n < 10**6 or n % 10**6]
    assert not differences(
        numbers, lambda n: "|".join(spell(n, "de", form)), lambda n: german_cuts(cldr(n, "de", rules))
    )


def test_german_millionths_are_those_of_num2words() -> None:
    # It leaves out "ein" in "millionste", as in "hundertste" and "tausendste"; both are German.
    numbers = [n * 10**6 for n in (2, 3, 10, 11, 21, 80, 100, 280)]
    assert not differences(
        numbers, lambda n: ours(n, "de", "ordinal"), lambda n: num2words(n, lang="de", to="ordinal")
    )


def test_german_years_and_days() -> None:
    years = [*range(1, 3000)]
    assert not differences(
        years,
        lambda n: "|".join(spell(n, "de", "year")),
        lambda n: german_cuts("im Jahr " + cldr(n, "de", "numbering-year")),
    )
    dates = [20000100 + day for day in range(1, 32)]
    assert not differences(
        dates,
        lambda n: ours(n, "de", "date"),
        lambda n: f"der {cldr(n % 100, 'de', 'ordinal')} Januar zweitausend".replace(SOFT_HYPHEN, ""),
    )


def test_german_cardinals_are_those_of_num2words() -> None:
    # num2words does not inflect a 1 behind hundreds: "einhunderteinstausend", "einhunderteins Millionen".
    numbers = [
        n for n in NUMBERS if all(n // 1000**i % 1000 % 100 != 1 or n // 1000**i % 1000 == 1 for i in (1, 2))
    ]
    assert not differences(numbers, lambda n: ours(n, "de"), lambda n: num2words(n, lang="de"))


def test_french_cardinals() -> None:
    # CLDR drops the s of "quatre-vingts millions" and "deux cents millions"; num2words keeps it.
    def plural_before_millions(number: int) -> bool:
        millions = number // 10**6
        return millions % 100 == 80 or (millions % 100 == 0 and millions >= 200)

    numbers = [n for n in NUMBERS if not plural_before_millions(n)]
    assert not differences(
        numbers, lambda n: ours(n, "fr"), lambda n: cldr(n, "fr", "numbering").replace(SOFT_HYPHEN, "")
    )
    # num2words keeps the classic spaces around "et".
    assert not differences(
        NUMBERS, lambda n: ours(n, "fr").replace("-et-", " et "), lambda n: num2words(n, lang="fr")
    )


def test_french_ordinals() -> None:
    # CLDR has an "et" too many ("quatre-vingt-et-unième", "cent-et-onzième") and "deux million deuxième".
    numbers = [n for n in NUMBERS if n % 10 != 1 and (n < 2 * 10**6 or n % 10**6 == 0)]
    assert not differences(
        numbers, lambda n: ours(n, "fr", "ordinal"), lambda n: cldr(n, "fr", "ordinal-masculine")
    )
    # num2words is right there, but has "quatre-vingtsième", "deux centsième" and "deux millionsième".
    numbers = [n for n in NUMBERS if not ours(n, "fr").endswith(("vingts", "cents", "millions"))]
    assert not differences(
        numbers,
        lambda n: ours(n, "fr", "ordinal").replace("-et-", " et "),
        lambda n: num2words(n, lang="fr", to="ordinal"),
    )


def test_japanese_kanji() -> None:
    assert not differences(NUMBERS, lambda n: ours(n, "ja"), lambda n: cldr(n, "ja", "cardinal"))
    assert not differences(NUMBERS, lambda n: ours(n, "ja", "ordinal"), lambda n: cldr(n, "ja", "ordinal"))
    # CLDR's year 1 is 元, the first year of an era.
    assert not differences(
        [*range(2, 3000)], lambda n: ours(n, "ja", "year"), lambda n: cldr(n, "ja", "numbering-year") + "年"
    )


def test_japanese_readings() -> None:
    # CLDR has none. num2words writes 0 in katakana, reads 四年 as よんねん (it is よねん) and 九年 as くねん
    # (current beside きゅうねん, which we take).
    assert not differences(
        [n for n in NUMBERS if n],
        lambda n: ours(n, "ja-kana"),
        lambda n: num2words(n, lang="ja", reading=True),
    )
    assert not differences(
        [n for n in range(1, 3000) if n % 10 not in (4, 9)],
        lambda n: ours(n, "ja-kana", "year"),
        lambda n: num2words(n, lang="ja", to="year", reading=True, era=False),
    )


def test_chinese() -> None:
    # num2words has no Chinese.
    assert not differences(NUMBERS, lambda n: ours(n, "zh"), lambda n: cldr(n, "zh", "cardinal-alternate2"))
    assert not differences(NUMBERS, lambda n: ours(n, "zh", "ordinal"), lambda n: cldr(n, "zh", "ordinal"))
    assert not differences(
        [*range(1, 10_000)], lambda n: ours(n, "zh", "year"), lambda n: cldr(n, "zh", "numbering-year") + "年"
    )


@pytest.mark.parametrize("form", ["cardinal", "ordinal"])
def test_english(form: str) -> None:
    # Both have "and" as the British do, and commas, of which we have none.
    assert not differences(
        NUMBERS,
        lambda n: ours(n, "en", form),
        lambda n: cldr(n, "en", f"{form}-verbose").replace(",", ""),
    )
    assert not differences(
        NUMBERS,
        lambda n: ours(n, "en", form),
        lambda n: num2words(n, lang="en_GB", to=form).replace(",", ""),
    )


def test_english_years() -> None:
    # Below 1000 num2words reads 101 "one oh-one"; CLDR's years leave out the British "and".
    assert not differences(
        [*range(1000, 10_000)],
        lambda n: ours(n, "en", "year"),
        lambda n: "in " + num2words(n, lang="en_GB", to="year"),
    )
    assert not differences(
        [*range(1, 10_000)],
        lambda n: ours(n, "en", "year").replace(" and", ""),
        lambda n: "in " + cldr(n, "en", "numbering-year"),
    )
