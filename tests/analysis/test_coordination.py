"""Lock-step costs what nested loops over a batch take, and chance is what coins would do."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.coordination import coordination, overhead, segment_sizes
from caesura.output import Segmentation


def cut(ends: list[bool], halting: bool = True) -> Segmentation:
    """A sentence of which only the places of its cuts matter."""
    return Segmentation([], [], ends, [], [0.5] * len(ends) if halting else None)


def nested(batch: list[list[int]]) -> int:
    """The inner steps of the paper's loops, one by one: a segment goes on until all sentences have halted."""
    left = [list(sizes) for sizes in batch]
    steps = 0
    while any(left):
        inner = [sizes.pop(0) if sizes else 0 for sizes in left]
        while any(inner):
            inner = [max(0, n - 1) for n in inner]
            steps += 1
    return steps


def test_sizes_of_segments_end_with_the_sentence():
    assert segment_sizes([False, True, False]) == [2, 1]
    assert segment_sizes([True, True]) == [1, 1]
    assert segment_sizes([False] * 4) == [4]
    assert segment_sizes([]) == []


def test_a_worked_batch():
    # First segments of 3 and 1 take 3 steps, second ones of 1 and 3 take 3: 6 for sentences of 4.
    assert overhead([[3, 1], [1, 3]], batch=2) == 1.5
    assert overhead([[3, 1], [1, 3]], batch=1) == 1.0
    assert overhead([[4], [1, 1, 1, 1]], batch=2) == 7 / 4  # the paper's two extremes in one batch


@given(
    st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=6), min_size=1, max_size=7), st.integers(1, 4)
)
def test_overhead_is_what_the_loops_take(sentences, batch):
    groups = [sentences[i : i + batch] for i in range(0, len(sentences), batch)]
    least = sum(max(map(sum, group)) for group in groups)
    assert overhead(sentences, batch) == pytest.approx(sum(map(nested, groups)) / least)
    assert overhead(sentences, batch) >= 1


def test_equal_halting_is_perfect_and_coins_are_near_chance():
    rng = random.Random(3)
    regular = coordination([cut([i % 3 == 2 for i in range(30)]) for _ in range(80)])
    coins = coordination([cut([rng.random() < 0.3 for _ in range(40)]) for _ in range(400)])
    assert regular.overhead == regular.coordination == 1.0
    assert regular.chance > 1.5
    assert abs(coins.coordination) < 0.03
    assert coins.chance == pytest.approx(coins.overhead, rel=0.03)


def test_opposites_are_worse_than_chance():
    halves = [cut([i < 20 for i in range(40)]), cut([i >= 20 for i in range(40)])] * 20
    assert coordination(halves, batch=2).coordination < 0


@pytest.mark.parametrize("end", [True, False])
def test_single_characters_and_whole_sentences_leave_nothing_to_coordinate(end):
    result = coordination([cut([end] * n) for n in (5, 5, 9)])
    assert result.overhead == result.chance == 1.0
    assert result.coordination is None


def test_sentences_of_one_symbol_and_models_without_halting():
    assert coordination([cut([True])]).overhead == 1.0
    assert coordination([cut([True, False], halting=False), cut([])]) is None


def test_the_order_of_sentences_says_nothing():
    rng = random.Random(5)
    cuts = [cut([rng.random() < 0.5 for _ in range(n)]) for n in range(1, 90)]
    assert coordination(cuts) == coordination(cuts)
    assert coordination(cuts).overhead == coordination(cuts[::-1]).overhead
