"""Sides that look exchanged are noticed, and others are not."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caesura.data.sides import SCRIPTS, doubts, exchanged, foreign
from caesura.data.words import WordCounts, WordTally

GERMAN = ["ein Mann geht über die Straße", "die Frau liest ein Buch", "ein Hund und die Katze"]
ENGLISH = ["a man walks across the street", "the woman reads a book", "a dog and the cat"]
CHINESE = ["一个男人走过街道", "女人在看书", "一只狗和一只猫"]
RUSSIAN = ["мужчина идёт по улице", "женщина читает книгу", "собака и кошка"]
TEXTS = {"de": GERMAN, "en": ENGLISH, "zh": CHINESE, "ru": RUSSIAN}


def counted(lines: list[str]) -> WordCounts:
    tally = WordTally()
    for line in lines:
        tally.add(line)
    return tally.result()


def noticed(train: tuple[str, str], dev: tuple[str, str], languages: tuple[str, str]) -> list[str]:
    sides = counted(TEXTS[train[0]]), counted(TEXTS[train[1]])
    return [*doubts(sides, (TEXTS[dev[0]], TEXTS[dev[1]]), languages)]


@pytest.mark.parametrize("src", TEXTS)
@pytest.mark.parametrize("trg", TEXTS)
def test_files_that_are_exchanged_in_one_text(src: str, trg: str) -> None:
    right = src, trg
    assert noticed(right, right, right) == []
    assert len(noticed((trg, src), right, right)) == (src != trg)
    assert len(noticed(right, (trg, src), right)) == (src != trg)


@pytest.mark.parametrize(("src", "trg"), [("zh", "en"), ("de", "ru"), ("ru", "zh")])
def test_files_that_are_exchanged_in_both_texts_show_by_their_scripts(src: str, trg: str) -> None:
    notices = noticed((trg, src), (trg, src), (src, trg))
    assert [text.split()[0] for text in notices] == ["data.src.lang", "data.trg.lang"]
    assert all("exchanged" in text for text in notices)


def test_a_language_that_is_wrong_is_not_called_an_exchange() -> None:
    (notices,) = noticed(("de", "en"), ("de", "en"), ("zh-TW", "en"))
    assert notices.startswith("data.src.lang is zh-TW")
    assert "Latin" in notices
    assert "exchanged" not in notices


lines = st.lists(st.text(), max_size=5)


@given(lines, lines, lines, lines)
@example(["0"], ["A"], [], ["0", "0", "A"])  # words and characters tell different things
def test_exchanging_both_texts_changes_nothing(
    a: list[str], b: list[str], c: list[str], d: list[str]
) -> None:
    train = counted(a), counted(b)
    assert exchanged(train, (c, d)) == exchanged((train[1], train[0]), (d, c))
    assert not (exchanged(train, (c, d)) and exchanged(train, (d, c)))
    assert not exchanged(train, (a, b)), "a dev set from the training text"
    assert not exchanged(train, ([], []))
    assert not exchanged((train[0], train[0]), (c, d)), "one language on both sides"


@given(st.sampled_from([*SCRIPTS]), st.text(st.characters(categories=["Nd", "P", "S", "Z"])))
def test_text_without_letters_has_no_script(language: str, text: str) -> None:
    assert foreign(language, Counter([text])) is None
    assert foreign("tlh", Counter(GERMAN)) is None
