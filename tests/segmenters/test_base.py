"""What all segmenters have in common."""

import pytest
import torch
from helpers import ragged
from hypothesis import given
from hypothesis import strategies as st

from caesura.data.sentences import places_of
from caesura.output import cut_texts
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import Segmenter, count_cuts
from caesura.segmenters.lookup import LookupSegmenter


@pytest.mark.parametrize("segmenter", [LookupSegmenter(7, 3), ActSegmenter(7, 2, 4, 3)])
@pytest.mark.parametrize("lengths", [[5, 2, 0], []])
def test_lengths_may_be_plain_numbers(segmenter: Segmenter, lengths: list[int]) -> None:
    symbols, sizes = ragged(lengths, 7, torch.Generator().manual_seed(0))
    wanted = segmenter(symbols, sizes)
    for plain in (lengths, tuple(lengths), sizes.numpy()):
        found = segmenter(symbols, lengths=plain)
        assert found.vectors.equal(wanted.vectors)
        assert found.lengths.equal(wanted.lengths)
        assert found.lengths.dtype == torch.long


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
    inside = sum(cut.ends.count(False) for cut in cuts)
    assert count_cuts(ends, lengths).tolist() == [sum(map(len, rows)), segments, inside]
