"""Spell-outs: hand-checked tables, and what holds for every number."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.data.numerals import LANGUAGES, boundaries, example, spell
from caesura.errors import InputError

ALL = (*LANGUAGES, "en")
LIMIT = 999_999_999

CARDINALS = {
    "de": {
        0: "null",
        1: "eins",
        12: "zwölf",
        16: "sechzehn",
        17: "siebzehn",
        21: "ein|und|zwanzig",
        30: "dreißig",
        100: "ein|hundert",
        101: "ein|hundert|eins",
        723: "sieben|hundert|drei|und|zwanzig",
        1000: "ein|tausend",
        1001: "ein|tausend|eins",
        10_000: "zehn|tausend",
        21_000: "ein|und|zwanzig|tausend",
        101_000: "ein|hundert|ein|tausend",
        1_000_000: "eine| Million",
        1_001_000: "eine| Million| ein|tausend",
        1_200_000: "eine| Million| zwei|hundert|tausend",
        2_000_001: "zwei| Millionen| eins",
    },
    "fr": {
        0: "zéro",
        17: "dix|-sept",
        21: "vingt|-et|-un",
        22: "vingt|-deux",
        60: "soixante",
        61: "soixante|-et|-un",
        70: "soixante|-dix",
        71: "soixante|-et|-onze",
        77: "soixante|-dix|-sept",
        80: "quatre|-vingts",
        81: "quatre|-vingt|-un",
        91: "quatre|-vingt|-onze",
        99: "quatre|-vingt|-dix|-neuf",
        100: "cent",
        101: "cent| un",
        200: "deux| cents",
        280: "deux| cent| quatre|-vingts",
        1000: "mille",
        1001: "mille| un",
        80_000: "quatre|-vingt| mille",
        200_000: "deux| cent| mille",
        1_000_000: "un| million",
        1_001_000: "un| million| mille",
        80_000_000: "quatre|-vingts| millions",
        200_000_000: "deux| cents| millions",
        200_000_080: "deux| cents| millions| quatre|-vingts",
    },
    "ja": {
        0: "〇",
        10: "十",
        21: "二|十|一",
        100: "百",
        101: "百|一",
        1000: "千",
        1001: "千|一",
        10_000: "一|万",
        10_010: "一|万|十",
        1_001_000: "百|万|千",
        100_000_000: "一|億",
    },
    "ja-kana": {
        0: "ぜろ",
        4: "よん",
        10: "じゅう",
        21: "に|じゅう|いち",
        47: "よん|じゅう|なな",
        100: "ひゃく",
        300: "さん|びゃく",
        400: "よん|ひゃく",
        600: "ろっ|ぴゃく",
        800: "はっ|ぴゃく",
        900: "きゅう|ひゃく",
        1000: "せん",
        3000: "さん|ぜん",
        6000: "ろく|せん",
        8000: "はっ|せん",
        8888: "はっ|せん|はっ|ぴゃく|はち|じゅう|はち",
        10_000: "いち|まん",
        80_000: "はち|まん",
        1_001_000: "ひゃく|まん|せん",
        38_630_000: "さん|ぜん|はっ|ぴゃく|ろく|じゅう|さん|まん",
        100_000_000: "いち|おく",
    },
    "zh": {
        0: "零",
        2: "两",
        10: "十",
        12: "十|二",
        20: "二|十",
        22: "二|十|二",
        101: "一|百|零|一",
        110: "一|百|一|十",
        202: "两|百|零|二",
        1001: "一|千|零|一",
        1010: "一|千|零|一|十",
        2022: "两|千|零|二|十|二",
        10_000: "一|万",
        20_000: "两|万",
        100_000: "十|万",
        100_010: "十|万|零|一|十",
        120_002: "十|二|万|零|二",
        1_001_000: "一|百|万|一|千",
        200_000_000: "两|亿",
    },
    "en": {
        0: "zero",
        21: "twenty|-one",
        100: "one| hundred",
        101: "one| hundred| and| one",
        723: "seven| hundred| and| twenty|-three",
        1001: "one| thousand| and| one",
        1100: "one| thousand| one| hundred",
        101_000: "one| hundred| and| one| thousand",
        1_001_000: "one| million| one| thousand",
        1_000_001: "one| million| and| one",
    },
}

OTHER_FORMS = [
    ("de", "ordinal", 1, "erste"),
    ("de", "ordinal", 3, "dritte"),
    ("de", "ordinal", 7, "siebte"),
    ("de", "ordinal", 8, "achte"),
    ("de", "ordinal", 19, "neunzehnte"),
    ("de", "ordinal", 20, "zwanzigste"),
    ("de", "ordinal", 101, "ein|hundert|erste"),
    ("de", "ordinal", 1_000_000, "ein|millionste"),
    ("de", "ordinal", 201_000_000, "zwei|hundert|ein|millionste"),
    ("de", "ordinal", 1_000_001, "eine| Million| erste"),
    ("de", "year", 1099, "im| Jahr| ein|tausend|neun|und|neunzig"),
    ("de", "year", 1985, "im| Jahr| neunzehn|hundert|fünf|und|achtzig"),
    ("de", "year", 2001, "im| Jahr| zwei|tausend|eins"),
    ("de", "date", 19850323, "der| drei|und|zwanzigste| März| neunzehn|hundert|fünf|und|achtzig"),
    ("fr", "ordinal", 1, "premier"),
    ("fr", "ordinal", 2, "deuxième"),
    ("fr", "ordinal", 4, "quatrième"),
    ("fr", "ordinal", 5, "cinquième"),
    ("fr", "ordinal", 9, "neuvième"),
    ("fr", "ordinal", 21, "vingt|-et|-unième"),
    ("fr", "ordinal", 80, "quatre|-vingtième"),
    ("fr", "ordinal", 81, "quatre|-vingt|-unième"),
    ("fr", "ordinal", 200, "deux| centième"),
    ("fr", "ordinal", 1000, "millième"),
    ("fr", "ordinal", 200_000_000, "deux| cent| millionième"),
    ("fr", "ordinal", 2_000_002, "deux| millions| deuxième"),
    ("fr", "year", 1985, "en| mille| neuf| cent| quatre|-vingt|-cinq"),
    ("fr", "date", 20000801, "le| premier| août| deux| mille"),
    ("fr", "date", 19210721, "le| vingt|-et|-un| juillet| mille| neuf| cent| vingt|-et|-un"),
    ("ja", "ordinal", 21, "第|二|十|一"),
    ("ja", "year", 1985, "一|九|八|五|年"),
    ("ja", "year", 794, "七|百|九|十|四|年"),
    ("ja", "date", 20200420, "二|〇|二|〇|年|四|月|二|十|日"),
    ("ja-kana", "ordinal", 300, "だい|さん|びゃく"),
    ("ja-kana", "year", 2004, "に|せん|よ|ねん"),
    ("ja-kana", "year", 2014, "に|せん|じゅう|よ|ねん"),
    ("ja-kana", "year", 1940, "せん|きゅう|ひゃく|よん|じゅう|ねん"),
    ("ja-kana", "date", 20000401, "に|せん|ねん|し|がつ|ついたち"),
    ("ja-kana", "date", 20000720, "に|せん|ねん|しち|がつ|はつ|か"),
    ("ja-kana", "date", 20000924, "に|せん|ねん|く|がつ|に|じゅう|よっ|か"),
    ("ja-kana", "date", 20001219, "に|せん|ねん|じゅう|に|がつ|じゅう|く|にち"),
    ("zh", "ordinal", 2, "第|二"),
    ("zh", "ordinal", 202, "第|二|百|〇|二"),
    ("zh", "year", 2002, "二|〇|〇|二|年"),
    ("zh", "date", 20020212, "二|〇|〇|二|年|二|月|十|二|日"),
    ("en", "ordinal", 12, "twelfth"),
    ("en", "ordinal", 20, "twentieth"),
    ("en", "ordinal", 723, "seven| hundred| and| twenty|-third"),
    ("en", "year", 1066, "in| ten| sixty|-six"),
    ("en", "year", 1900, "in| nineteen| hundred"),
    ("en", "year", 1901, "in| nineteen| oh|-one"),
    ("en", "year", 2001, "in| two| thousand| and| one"),
    ("en", "year", 2012, "in| twenty| twelve"),
    ("en", "date", 19850323, "the| twenty|-third| of| March| nineteen| eighty|-five"),
]

KANA_DAYS = (
    "ついたち ふつか みっか よっか いつか むいか なのか ようか ここのか とおか じゅういちにち じゅうににち "
    "じゅうさんにち じゅうよっか じゅうごにち じゅうろくにち じゅうしちにち じゅうはちにち じゅうくにち "
    "はつか にじゅういちにち にじゅうににち にじゅうさんにち にじゅうよっか にじゅうごにち にじゅうろくにち "
    "にじゅうしちにち にじゅうはちにち にじゅうくにち さんじゅうにち さんじゅういちにち"
)
KANA_MONTHS = (
    "いちがつ にがつ さんがつ しがつ ごがつ ろくがつ しちがつ はちがつ "
    "くがつ じゅうがつ じゅういちがつ じゅうにがつ"
)

languages = st.sampled_from(ALL)
# Digits are drawn one by one, so that zeros and short numbers are as common as they are telling.
numbers = st.lists(st.sampled_from("000123456789"), min_size=1, max_size=9).map(lambda d: int("".join(d)))
dates = st.dates().map(lambda day: day.year * 10_000 + day.month * 100 + day.day)
forms = st.one_of(
    st.tuples(st.sampled_from(["cardinal", "ordinal"]), numbers),
    st.tuples(st.just("year"), st.integers(1, 9999)),
    st.tuples(st.just("date"), dates),
)


@pytest.mark.parametrize("language", CARDINALS)
def test_cardinals(language: str) -> None:
    assert {n: "|".join(spell(n, language)) for n in CARDINALS[language]} == CARDINALS[language]


@pytest.mark.parametrize(("language", "form", "number", "morphs"), OTHER_FORMS)
def test_other_forms(language: str, form: str, number: int, morphs: str) -> None:
    assert "|".join(spell(number, language, form)) == morphs


def test_kana_days_and_months() -> None:
    days = ["".join(spell(20000100 + day, "ja-kana", "date")) for day in range(1, 32)]
    assert days == [f"にせんねんいちがつ{day}" for day in KANA_DAYS.split()]
    months = ["".join(spell(20000001 + 100 * month, "ja-kana", "date")) for month in range(1, 13)]
    assert months == [f"にせんねん{month}ついたち" for month in KANA_MONTHS.split()]


def test_kana_morphs_match_kanji_one_to_one() -> None:
    for number in (*range(1, 10_000), 38_630_000, 987_654_321):
        assert len(spell(number, "ja-kana")) == len(spell(number, "ja"))


def test_an_example_joins_its_parts() -> None:
    seven = example(723, "de")
    assert seven.source == "siebenhundertdreiundzwanzig"
    assert seven.target == "seven hundred and twenty-three"
    assert seven.bounds == (6, 13, 17, 20)
    assert (seven.number, seven.form) == (723, "cardinal")
    assert example(7, "fr").bounds == ()


@given(languages, forms)
def test_bounds_cut_the_string_into_its_morphs(language: str, form: tuple[str, int]) -> None:
    morphs = spell(form[1], language, form[0])
    text, bounds = "".join(morphs), boundaries(morphs)
    cuts = (0, *bounds, len(text))
    assert all(a < b for a, b in itertools.pairwise(cuts))
    assert tuple(text[a:b] for a, b in itertools.pairwise(cuts)) == morphs
    assert text == text.strip()
    assert "  " not in text


@given(languages, forms)
def test_a_separator_only_ever_opens_a_morph(language: str, form: tuple[str, int]) -> None:
    for morph in spell(form[1], language, form[0]):
        assert not set(morph[1:]) & set(" -")
        assert morph not in (" ", "-")


@given(languages, forms, forms)
def test_distinct_numbers_have_distinct_strings(
    language: str, a: tuple[str, int], b: tuple[str, int]
) -> None:
    same = "".join(spell(a[1], language, a[0])) == "".join(spell(b[1], language, b[0]))
    assert same == (a == b)


@pytest.mark.parametrize("language", ALL)
def test_no_two_small_numbers_or_forms_share_a_string(language: str) -> None:
    texts = ["".join(spell(n, language, form)) for form in ("cardinal", "ordinal") for n in range(12_000)]
    texts += ["".join(spell(n, language, "year")) for n in range(1, 10_000)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("language", ALL)
@pytest.mark.parametrize("form", ["cardinal", "ordinal"])
def test_the_largest_number_is_spelled(language: str, form: str) -> None:
    assert spell(LIMIT, language, form)
    with refuses(InputError, LIMIT + 1, LIMIT):
        spell(LIMIT + 1, language, form)


@pytest.mark.parametrize(
    ("number", "language", "form", "wrong"),
    [
        (1, "xx", "cardinal", "language 'xx'"),
        (1, "de", "roman", "form 'roman'"),
        (-1, "de", "cardinal", "-1 "),
        (0, "de", "year", "0 "),
        (10_000, "de", "year", "10000 "),
        (19850230, "de", "date", "19850230 "),
        (-19850203, "de", "date", "-19850203 "),
    ],
)
def test_bad_arguments_are_named(number: int, language: str, form: str, wrong: str) -> None:
    with refuses(InputError, "", wrong):
        spell(number, language, form)
