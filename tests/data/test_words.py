"""Words are counted exactly until there are too many of them, and then to a known error."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.data.words import BoundedCounter, WordCounts, WordTally, load_words, save_words, words_of
from caesura.errors import InputError


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=9), max_size=30), st.integers(1, 9))
def test_a_counter_is_bounded_and_too_low_by_no_more_than_it_says(
    updates: list[list[str]], limit: int
) -> None:
    counter, truth = BoundedCounter(limit), Counter[str]()
    for strings in updates:
        counter.update(strings)
        truth.update(strings)
        assert len(counter.counts) <= max(limit, 1)
    for string, count in truth.items():
        assert 0 <= count - counter.counts[string] <= counter.missed
    assert (counter.missed == 0) or len(truth) > limit


def test_only_the_most_frequent_words_are_kept_and_that_is_said() -> None:
    tally = WordTally()
    for line in ("b b a", " a\u3000b c", ""):
        tally.add(line)
    assert tally.result() == WordCounts({"b": 3, "a": 2, "c": 1}, 6, True)
    assert tally.result(kept=2) == WordCounts({"b": 3, "a": 2}, 6, False)


def test_punctuation_around_a_word_is_no_part_of_it() -> None:
    assert words_of("„Ja“, sagte er's (nicht) . -- 3,5 €") == [
        "Ja",
        "sagte",
        "er's",
        "nicht",
        ".",
        "--",
        "3,5",
        "€",
    ]


def test_a_word_is_known_at_the_beginning_of_a_sentence_too() -> None:
    counts = WordCounts({"haus": 2, "Tisch": 3}, 5, True)
    assert [counts.of(w) for w in ("Haus", "haus", "Tisch", "tisch", "HAUS", "x")] == [2, 2, 3, 3, 2, 0]


def test_a_sentence_without_spaces_is_no_word() -> None:
    tally = WordTally()
    tally.add("水" * 101)
    assert tally.result() == WordCounts({}, 1, False)


words = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 10**9), max_size=5)


@given(words, words)
def test_what_was_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, src: dict, trg: dict) -> None:
    sides = WordCounts(src, 7, True), WordCounts(trg, 8, False)
    path = tmp_path_factory.mktemp("words") / "w.json"
    save_words(path, *sides)
    assert load_words(path) == sides


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff", b'{"format": 2}', b'{"format": 1, "src": {}}',
     b'{"format": 1, "src": {"total": 1, "complete": true, "counts": {"a": 0}}, "trg": {}}',
     b'{"format": 1, "src": {"total": "1", "complete": true, "counts": {}}, "trg": {}}'],
)  # fmt: skip
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(InputError, match=f"^{tmp_path}/w: "):
        load_words(tmp_path / "w")
