"""Typos are one per word, where they are told to be, and the same again with the same seed."""

import pytest
from helpers import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.typos import KINDS, RATES, add_typos, neighbours, robustness

texts = st.text("abcä x1.", max_size=30)


@given(texts, st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 99))
def test_a_word_has_at_most_one_typo(text: str, kind: str, rate: float, seed: int) -> None:
    spoiled = add_typos(text, kind, rate, seed)
    assert spoiled == add_typos(text, kind, rate, seed)
    for before, after in zip(text.split(), spoiled.split(), strict=True):
        changed = sum(a != b for a, b in zip(before, after, strict=False))
        if kind == "drop":
            assert len(before) - 1 <= len(after) <= len(before)
        else:
            assert len(before) == len(after)
            assert changed <= (2 if kind == "swap" else 1)
        if kind == "swap":
            assert sorted(before) == sorted(after)
        if kind == "case":
            assert before.lower() == after.lower()


@pytest.mark.parametrize(("kind", "dropped"), [("drop", 1), ("swap", 0), ("keyboard", 0), ("case", 0)])
def test_at_rate_1_every_word_has_one(kind: str, dropped: int) -> None:
    text = "abc bca cab"
    words = add_typos(text, kind, 1.0).split()
    assert all(a != b for a, b in zip(text.split(), words, strict=True))
    assert [3 - len(word) for word in words] == [dropped] * 3


def test_at_rate_0_nothing_changes_and_short_words_never_do() -> None:
    assert add_typos("abc  def", "drop", 0.0) == "abc  def"
    assert add_typos("a 12 1b .", "drop", 1.0) == "a 12 1b ."


def test_a_key_is_missed_by_one() -> None:
    assert set(neighbours("de")["t"]) == {*"rzfg"}
    assert set(neighbours("en")["t"]) == {*"ryfg"}
    assert set(neighbours("de")["ö"]) == {*"lpüä"}
    assert set(neighbours("fr")["g"]) == {*"fhtyvb"}
    for lang in ("de", "en"):
        beside = neighbours(lang)
        assert all(letter in beside[other] for letter, others in beside.items() for other in others)
    word = add_typos("TT", "keyboard", 1.0, lang="de")
    assert sorted(word)[-1] == "T"
    assert {*word} - {"T"} <= {*"RZFG"}
    assert add_typos("今日", "keyboard", 1.0) in ("今今", "日日")


def test_a_line_has_its_typos_in_any_company() -> None:
    lines = ["ab abc abcd", "abc cba", "ab abc abcd"]
    model = tiny_model()
    alone = robustness(model, lines[:1], ["a"])
    assert add_typos(lines[0], "swap", 0.5) == add_typos(lines[2], "swap", 0.5)
    assert robustness(model, lines[2:], ["a"]) == alone


def test_without_references_the_translation_as_it_is_is_the_reference() -> None:
    model = tiny_model()
    results = robustness(model, ["abcd efg", "hgf"], None)
    assert results.rates == list(RATES)
    assert set(results.bleu) == set(KINDS[:3])
    assert set(robustness(model, ["abcd"], None, kinds=KINDS).chrf) == set(KINDS)
    assert all(scores[0] == pytest.approx(100) for scores in results.chrf.values())
    assert results.against.startswith("translations")


def test_the_first_rate_is_the_text_as_it_is() -> None:
    model = tiny_model()
    texts, references = ["abcd efg", "hgf abc"] * 3, ["ab", "cde"] * 3
    results = robustness(model, texts, references)
    assert len({scores[0] for scores in results.chrf.values()}) == 1
    assert results == robustness(model, texts, references)


@given(texts, st.sampled_from(KINDS), st.floats(0, 1), st.floats(0, 1), st.integers(0, 99))
def test_the_typos_of_a_lower_rate_are_among_those_of_a_higher(
    text: str, kind: str, one: float, other: float, seed: int
) -> None:
    few, many = (add_typos(text, kind, rate, seed) for rate in sorted((one, other)))
    for word, less, more in zip(text.split(), few.split(), many.split(), strict=True):
        assert less in (word, more)


def test_the_share_of_words_with_a_typo_is_told() -> None:
    results = robustness(tiny_model(), [f"ab a{n}" for n in range(200)], None)
    for shares in results.realised.values():
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert 0.05 < shares[-1] < 0.15  # a fifth of every other word: one letter has no typo
