"""Segment lengths and boundary scores on cases worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation.boundaries import (
    BoundaryScores,
    SegmentLength,
    boundary_scores,
    boundary_table,
    bounds_of,
    pieces_of,
    segment_length,
    trivial,
)

PIECES = st.lists(st.text(min_size=1, max_size=4), max_size=8)
CORPORA = st.lists(st.tuples(st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9))), max_size=5)


def test_segment_length_is_over_the_corpus_not_over_sentences():
    # 2+2 in one sentence, 1+1+1+1 in another: 8 characters in 6 segments; the mean of means would be 1.5.
    assert segment_length([[2, 2], [1, 1, 1, 1]]) == SegmentLength(8, 6, 8 / 6, 2, {1: 4, 2: 2})


def test_a_segment_without_text_is_left_out():
    assert segment_length([[3, 1, 0], [0]]) == SegmentLength(4, 2, 2.0, 3, {1: 1, 3: 1})


def test_no_segments_at_all():
    assert segment_length([[], []]) == SegmentLength(0, 0, 0.0, 0, {})


def test_histogram_is_sorted_and_negative_lengths_are_refused():
    assert list(segment_length([[5, 1, 3]]).histogram) == [1, 3, 5]
    with refuses(ValueError, "", -1):
        segment_length([[2, -1]])


def test_boundaries_worked_by_hand():
    # in|gr|up|pen against in|grupp|en has 1 right, ab|c against a|b|c has 1.
    predicted, gold = [{2, 4, 6}, {2}], [{2, 7}, {1, 2}]
    assert boundary_scores(predicted, gold) == BoundaryScores(2 / 4, 2 / 4, 2 / 4, 4, 4, 2)
    # uneven: 1 of 3 predicted is right, 1 of 2 gold found
    assert boundary_scores([{2, 4, 6}], [{2, 7}]) == BoundaryScores(1 / 3, 1 / 2, 2 / 5, 3, 2, 1)


def test_scores_are_micro_averaged():
    # The long sentence has 9 of 9, the short one 0 of 1: 9/10, not the mean of 1 and 0.
    scores = boundary_scores([range(1, 10), [1]], [range(1, 10), [2]])
    assert scores.precision == scores.recall == scores.f1 == 0.9


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        ([], [], BoundaryScores(1.0, 1.0, 1.0, 0, 0, 0)),
        ([()], [()], BoundaryScores(1.0, 1.0, 1.0, 0, 0, 0)),
        ([()], [(1,)], BoundaryScores(0.0, 0.0, 0.0, 0, 1, 0)),
        ([(1,)], [()], BoundaryScores(0.0, 0.0, 0.0, 1, 0, 0)),
        ([(1,)], [(2,)], BoundaryScores(0.0, 0.0, 0.0, 1, 1, 0)),
    ],
)
def test_empty_cases(predicted, gold, expected):
    assert boundary_scores(predicted, gold) == expected


def test_an_offset_given_twice_counts_once():
    assert boundary_scores([(1, 1, 2)], [(1, 3, 3)]) == BoundaryScores(0.5, 0.5, 0.5, 2, 2, 1)


@given(CORPORA)
def test_changing_sides_swaps_precision_and_recall(corpus):
    forth = boundary_scores([p for p, _ in corpus], [g for _, g in corpus])
    back = boundary_scores([g for _, g in corpus], [p for p, _ in corpus])
    assert (forth.precision, forth.recall, forth.f1) == (back.recall, back.precision, back.f1)
    if forth.correct:
        harmonic = 2 * forth.precision * forth.recall / (forth.precision + forth.recall)
        assert forth.f1 == pytest.approx(harmonic)


def test_unequal_counts_are_refused():
    with refuses(InputError, "1 ", " 2 "):
        boundary_scores([{1}], [{1}, {2}])


def test_trivial_segmentations():
    assert trivial("in dem x") == {
        "every character": (1, 2, 3, 4, 5, 6, 7),
        "every 2": (2, 4, 6),
        "whitespace": (2, 6),
        "none": (),
    }
    assert trivial("abcde")["every 2"] == (2, 4)
    assert set(trivial("a").values()) == set(trivial("").values()) == {()}


def test_whitespace_gives_the_space_to_the_next_word():
    text = "  in  der\tnacht "
    assert pieces_of(text, trivial(text)["whitespace"]) == ["  in", "  der", "\tnacht "]
    assert trivial("   ")["whitespace"] == ()
    assert pieces_of("東京　都", trivial("東京　都")["whitespace"]) == ["東京", "　都"]


@given(st.text(alphabet="ab \t", max_size=12))
def test_whitespace_makes_one_piece_a_word(text):
    pieces = pieces_of(text, trivial(text)["whitespace"])
    assert [p.strip() for p in pieces if p.strip()] == text.split()
    assert len(pieces) == max(len(text.split()), 1 if text else 0)


@given(st.text(max_size=12))
def test_trivial_boundaries_lie_inside_in_order(text):
    for bounds in trivial(text).values():
        assert list(bounds) == sorted(set(bounds))
        assert all(0 < b < len(text) for b in bounds)


def test_the_table_has_the_model_first():
    texts, predicted, gold = ["ab cd", "xyz"], [{2}, {1}], [{1, 2}, {1}]
    table = boundary_table(texts, predicted, gold)
    assert list(table) == ["model", "every character", "every 2", "whitespace", "none"]
    assert table["model"] == BoundaryScores(1.0, 2 / 3, 4 / 5, 2, 3, 2)
    assert table["every character"] == BoundaryScores(3 / 6, 1.0, 6 / 9, 6, 3, 3)
    assert table["every 2"] == BoundaryScores(1 / 3, 1 / 3, 2 / 6, 3, 3, 1)  # 2, 4 and 2
    assert table["whitespace"] == BoundaryScores(1.0, 1 / 3, 2 / 4, 1, 3, 1)
    assert table["none"] == BoundaryScores(0.0, 0.0, 0.0, 0, 3, 0)


def test_the_table_names_a_boundary_that_is_not_inside():
    with refuses(InputError, "sentence 2: gold boundary 3 "):
        boundary_table(["ab", "xyz"], [{1}, {1}], [{1}, {3}])
    with refuses(InputError, "sentence 1: predicted boundary 0 "):
        boundary_table(["ab"], [{0}], [{1}])
    with refuses(InputError, "2 ", " 1 "):
        boundary_table(["ab", "xyz"], [{1}, {1}], [{1}])


def test_bounds_of_pieces():
    assert bounds_of(["in", " g", "ru", "pp", "en"]) == (2, 4, 6, 8)
    assert bounds_of(["alles"]) == bounds_of([]) == ()
    with refuses(InputError, "piece 2 of 3 "):
        bounds_of(["a", "", "b"])


@given(PIECES)
def test_cutting_at_the_bounds_gives_the_pieces_back(pieces):
    bounds = bounds_of(pieces)
    assert pieces_of("".join(pieces), set(bounds)) == pieces
    assert all(0 < b < len("".join(pieces)) for b in bounds)


def test_cutting_outside_is_refused():
    with refuses(InputError, "boundary 3 "):
        pieces_of("abc", [1, 3])
