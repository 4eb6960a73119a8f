"""What goes wrong in translations, counted on sentences that one can count."""

import pytest

from caesura.analysis.errors import Count, Translated, error_statistics, repeated_phrase
from caesura.data.words import WordCounts

SRC = WordCounts({"die": 50, "tiere": 9, "sehen": 12}, 71, True)
TRG = WordCounts({"the": 90, "animals": 10, "see": 9, "look": 3}, 112, True)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("the the animals", "the"),
        ("with the reaction with the reaction", "with the reaction"),
        ("in the case of beam in the case of axial", "in the case of"),
        ("in groups , in groups , they", "in groups ,"),
        ("the cat and the dog", None),
        (", , ,", None),
        ("", None),
        ("a b c d", None),
    ],
)
def test_a_phrase_twice_over(text: str, phrase: str | None) -> None:
    assert repeated_phrase(text) == phrase


def test_words_are_told_apart() -> None:
    sentences = [
        Translated(
            4, "die alttiere sehen Berlin", "The altients see Berlin <unk>.", "the animals see Berlin"
        ),
        Translated(9, "tiere", "look look sehen", "animals"),
    ]
    statistics = error_statistics(sentences, SRC, TRG)
    assert statistics.unknown_source == Count(2, 5)
    assert statistics.unknown_output == Count(1, 8)
    assert statistics.invented == Count(2, 8)  # altients, and sehen, which is not in its own source
    assert [(i.word, i.line, i.count) for i in statistics.inventions] == [("altients", 4, 1), ("sehen", 9, 1)]
    assert statistics.copied == Count(1, 8)
    assert statistics.copied_right == Count(1, 1)
    assert statistics.repeating == Count(1, 2)
    assert statistics.repetitions == [(9, "look")]
    assert statistics.repeating_references == Count(0, 2)


def test_without_counts_of_training_nothing_is_called_invented() -> None:
    statistics = error_statistics([Translated(1, "a", "b", None)], None, None)
    assert (statistics.unknown_source, statistics.invented, statistics.copied) == (None, None, None)
    assert statistics.inventions == []
    assert (statistics.by_length, statistics.by_rarity, statistics.copied_right) == (None, None, None)
    cut_off = WordCounts({"x": 1}, 9, False)
    statistics = error_statistics([Translated(1, "a", "b", "b")], cut_off, cut_off)
    assert (statistics.invented, statistics.inventions) == (None, [])


def test_a_word_that_both_languages_have_is_no_copy() -> None:
    both = WordCounts({"in": 5, "the": 9}, 14, True)
    statistics = error_statistics([Translated(1, "in Ulm", "in Ulm", "in Ulm")], both, both)
    assert statistics.copied == Count(1, 2)
    assert statistics.copied_right == Count(1, 1)


def test_groups_by_length_and_rarity() -> None:
    sentences = [Translated(n, "die " * n + "tiere " * (n % 3), "the same", "the same") for n in range(1, 11)]
    statistics = error_statistics(sentences, SRC, TRG)
    assert statistics.by_length is not None
    assert [b.sentences for b in statistics.by_length] == [2] * 5
    assert all(b.exact == 1 for b in statistics.by_length)
    assert statistics.by_rarity is not None
    assert [(b.name, b.sentences) for b in statistics.by_rarity] == [("0", 3), ("1", 4), ("2", 3)]


def test_sentences_of_one_length_are_one_group() -> None:
    statistics = error_statistics([Translated(1, "abc", "x", "y")] * 7, SRC, TRG)
    assert statistics.by_length is not None
    assert [(b.name, b.sentences) for b in statistics.by_length] == [("3", 7)]


def test_of_text_without_spaces_nothing_is_said_of_words() -> None:
    statistics = error_statistics([Translated(n, "二十一", "a 私", "a b") for n in range(9)], SRC, TRG)
    assert statistics.unspaced == ["source"]
    assert (statistics.unknown_source, statistics.by_rarity) == (None, None)
    assert statistics.invented == Count(18, 18)
    assert error_statistics([Translated(1, "die tiere", "二十一", "a")], SRC, TRG).inventions == []
