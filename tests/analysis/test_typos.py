"""Typos are one per word, where they are told to be, and the same again with the same seed."""

import random

import pytest
from helpers import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.typos import KINDS, RATES, add_typos, robustness

texts = st.text("abcä x1.", max_size=30)


@given(texts, st.sampled_from(KINDS), st.floats(0, 1), st.integers(0, 99))
def test_a_word_has_at_most_one_typo(text: str, kind: str, rate: float, seed: int) -> None:
    spoiled = add_typos(text, kind, rate, random.Random(seed), "abc")
    assert spoiled == add_typos(text, kind, rate, random.Random(seed), "abc")
    for before, after in zip(text.split(), spoiled.split(), strict=True):
        changed = sum(a != b for a, b in zip(before, after, strict=False))
        if kind == "drop":
            assert len(before) - 1 <= len(after) <= len(before)
        else:
            assert len(before) == len(after)
            assert changed <= (2 if kind == "swap" else 1)
        if kind == "swap":
            assert sorted(before) == sorted(after)


@pytest.mark.parametrize(("kind", "spoiled"), [("drop", 1), ("swap", 0), ("replace", 0)])
def test_at_rate_1_every_word_has_one(kind: str, spoiled: int) -> None:
    text = "abc bca cab"
    words = add_typos(text, kind, 1.0, random.Random(1), "abc").split()
    assert all(a != b for a, b in zip(text.split(), words, strict=True))
    assert [3 - len(word) for word in words] == [spoiled] * 3


def test_at_rate_0_nothing_changes_and_short_words_never_do() -> None:
    assert add_typos("abc  def", "drop", 0.0, random.Random(1), "abc") == "abc  def"
    assert add_typos("a 12 1b .", "drop", 1.0, random.Random(1), "abc") == "a 12 1b ."


def test_without_references_the_translation_as_it_is_is_the_reference() -> None:
    model = tiny_model()
    results = robustness(model, ["abcd efg", "hgf"], None)
    assert results.rates == list(RATES)
    assert set(results.bleu) == set(KINDS)
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
    few, many = (add_typos(text, kind, rate, random.Random(seed), "abc") for rate in sorted((one, other)))
    for word, less, more in zip(text.split(), few.split(), many.split(), strict=True):
        assert less in (word, more)


def test_the_share_of_words_with_a_typo_is_told() -> None:
    results = robustness(tiny_model(), ["ab a"] * 200, None)
    for shares in results.realised.values():
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert 0.05 < shares[-1] < 0.15  # a fifth of every other word: one letter has no typo
