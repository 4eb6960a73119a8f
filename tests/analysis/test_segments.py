"""Segments are counted as one would by hand, in bounded memory."""

from collections import Counter

from analysis.cuts import cut
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.segments import Character, Segment, SegmentTally, segment_statistics, varying_cuts
from caesura.analysis.training_text import TrainingText
from caesura.data.words import WordCounts
from caesura.output import Segmentation


def test_lengths_and_the_most_frequent_segments() -> None:
    statistics = segment_statistics([cut("in| g|ru|pp|en"), cut("en|"[:-1]), cut("e|n"), cut("")])
    assert (statistics.sentences, statistics.segments, statistics.characters) == (4, 8, 14)
    assert (statistics.mean, statistics.median, statistics.longest) == (1.75, 2.0, 2)
    assert statistics.histogram == {1: 2, 2: 6}
    assert statistics.distinct == 7
    assert statistics.missed == 0
    assert [(s.text, s.count, s.within) for s in statistics.top[2]][:2] == [("en", 2, 0), (" g", 1, 0)]
    assert [(s.text, s.count, s.within) for s in statistics.top[1]] == [("e", 1, 2), ("n", 1, 3)]


def test_a_character_alone_and_as_a_part() -> None:
    """The paper's き: 'also occurs as singleton (183 times), vs. 52 times as part of a learned segment'."""
    statistics = segment_statistics([cut("き|きる|た|きた|き")])
    assert statistics.singles[0] == Character("き", alone=2, within=2)
    assert Character("る", 0, 1) in statistics.singles


def test_only_ten_of_a_length_are_listed() -> None:
    statistics = segment_statistics([cut("|".join(chr(ord("a") + i) * 2 for i in range(15)))])
    assert len(statistics.top[2]) == 10
    assert statistics.distinct == 15


def test_a_word_is_listed_without_the_space_before_it() -> None:
    words = Segmentation(["in", " gruppen"], [2, 7], [True, True], [1.0, 1.0], None)
    assert segment_statistics([words]).top == {
        2: [Segment("in", 2, 1, 0, None)],
        7: [Segment("gruppen", 7, 1, 0, None)],
    }


def test_training_counts_come_from_the_words_of_the_folder() -> None:
    text = TrainingText(WordCounts({"enten": 3, "er": 2}, 5, True), None)
    statistics = segment_statistics([cut("en|er|n.|x")], text)
    assert {s.text: s.training for listed in statistics.top.values() for s in listed} == {
        "en": 6, "er": 2, "n.": None, "x": 0,
    }  # fmt: skip


pieces = st.lists(st.text("abc ", min_size=1, max_size=5), max_size=8)


@given(st.lists(pieces, max_size=6))
def test_counts_are_those_of_every_place(sentences: list[list[str]]) -> None:
    statistics = segment_statistics(cut("|".join(p)) for p in sentences)
    flat = [piece for p in sentences for piece in p]
    counts = Counter(flat)
    assert statistics.segments == len(flat)
    assert statistics.distinct == len(counts)
    assert statistics.characters == sum(map(len, flat))
    for listed in statistics.top.values():
        for s in listed:
            assert s.count == counts[s.text]
            inside = sum(
                s.text == other[i : i + len(s.text)]
                for other in flat
                if len(other) > len(s.text)
                for i in range(len(other))
            )
            assert s.within == inside


def test_more_segments_than_fit_are_counted_to_a_known_error() -> None:
    tally = SegmentTally(limit=100)
    for i in range(15_000):
        tally.add(cut(f"{i:05d}|en"))
    statistics = tally.result()
    assert statistics.segments == 30_000
    assert statistics.histogram == {2: 15_000, 5: 15_000}
    assert statistics.distinct <= 100
    assert statistics.missed > 0
    assert statistics.top[2] == [Segment("en", 2, 15_000, 0, None)]


def test_tens_of_thousands_of_segments_are_exact() -> None:
    statistics = segment_statistics(cut(f"{i:05d}") for i in range(12_000))
    assert (statistics.distinct, statistics.missed) == (12_000, 0)


def test_the_same_string_cut_differently() -> None:
    """The paper's 'tiere', in 'tiere', 'jungtiere' and 'alttiere'."""
    shown = ["r |ti|er|e |s", "j|un|gt|ie|re| i", "a|lt|ti|er|e .", "r |ti|er|e |s", "d|er| d|er"]
    texts = [s.replace("|", "") for s in shown]
    varying, compared = varying_cuts(texts, [cut(s) for s in shown])
    assert compared
    [row] = [row for row in varying if row.text == "tiere"]
    assert (row.occurrences, row.unusual) == (4, 1)
    assert row.cuts == [(["ti", "er", "e"], 3), (["t", "ie", "re"], 1)]


def test_strings_that_are_always_cut_alike_are_not_listed() -> None:
    varying, compared = varying_cuts(["abcabc"] * 3, [cut("a|b|c|a|b|c")] * 3)
    assert varying == []
    assert compared
    assert varying_cuts(["abcdef"], [cut("abcdef")]) == ([], 0)


def test_words_with_vowel_signs_are_words() -> None:
    """हिन्दी: half of its characters are marks, which are no letters."""
    texts, shown = ["हिन्दी में", "हिन्दी है"], ["हि|न्दी| में", "हिन्दी| है"]
    varying, _ = varying_cuts(texts, [cut(s) for s in shown])
    assert [(v.text, v.occurrences, v.unusual) for v in varying] == [("हिन्दी", 2, 1)]
