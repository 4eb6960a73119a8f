"""What all segmenters have in common."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from combinations import hmrnn, made
from helpers import ragged
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.data.sentences import places_of
from caesura.output import cut_texts
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.lookup import LookupSegmenter
from caesura.segmenters.rate import count_cuts

SEGMENTERS = [LookupSegmenter(7, 3), ActSegmenter(7, 2, 4, 3), made("bigru", "cif", "weighted"), hmrnn()]


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize("lengths", [[5, 2, 0], []])
def test_lengths_may_be_plain_numbers(segmenter: BaseSegmenter, lengths: list[int]) -> None:
    symbols, sizes = ragged(lengths, 7, torch.Generator().manual_seed(0))
    expected = segmenter(symbols, sizes)
    for plain in (lengths, tuple(lengths), sizes.numpy(), np.array(lengths, np.uint16)):
        segments = segmenter(symbols, lengths=plain)
        assert segments.vectors.equal(expected.vectors)
        assert segments.lengths.equal(expected.lengths)
        assert segments.lengths.dtype == torch.long


def test_lengths_are_the_layers_own() -> None:
    lengths = np.array([5, 2])
    segments = LookupSegmenter(7, 3)(SYMBOLS, lengths)
    lengths[:] = 0
    assert segments.lengths.tolist() == [5, 2]


SYMBOLS = torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize("segmenter", SEGMENTERS)
@pytest.mark.parametrize(
    ("symbols", "lengths", "wrong"),
    [
        (SYMBOLS, [5], "lengths "),
        (SYMBOLS, [5, 2, 1], "lengths "),
        (SYMBOLS, [], "lengths "),
        (SYMBOLS, [[5, 2]], "lengths "),
        (SYMBOLS, [5, 6], "lengths "),
        (SYMBOLS, [5, -1], "lengths "),
        (SYMBOLS, [4.5, 2], "lengths "),
        (SYMBOLS, torch.tensor([4.0, 2.0]), "lengths "),
        (SYMBOLS[0], [5], "symbols "),
    ],
)
def test_symbols_and_lengths_that_do_not_fit_are_refused(
    segmenter: BaseSegmenter, symbols: torch.Tensor, lengths: list[int], wrong: str
) -> None:
    with refuses(ValueError, wrong):
        segmenter(symbols, lengths)


@pytest.mark.parametrize("made", [lambda v: LookupSegmenter(v, 3), lambda v: ActSegmenter(v, 2, 4, 3)])
def test_a_table_needs_symbols(made: Callable[[int], BaseSegmenter]) -> None:
    with refuses(ValueError, "vocab_size "):
        made(0)


@given(st.lists(st.lists(st.booleans(), max_size=6), min_size=1, max_size=4), st.integers(0, 2))
def test_cuts_are_counted_as_analysis_counts_them(rows: list[list[bool]], padding: int) -> None:
    lengths = torch.tensor([len(row) + 1 for row in rows] + [0] * padding)  # </s> counts; it always ends one
    ends = torch.zeros(len(lengths), 8, dtype=torch.bool)
    for b, row in enumerate(rows):
        ends[b, : len(row) + 1] = torch.tensor([*row, True])
    places = [places_of([(i, i + 1) for i in range(len(row))]) for row in rows]
    flat = [end for row in rows for end in row]
    cuts = cut_texts(["x" * len(row) for row in rows], places, flat, [1.0] * len(flat), None)
    segments = sum(len(cut.covered) for cut in cuts)
    assert [*map(int, count_cuts(ends, lengths))] == [sum(map(len, rows)), segments]
