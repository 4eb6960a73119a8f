"""What all segmenters have in common."""

import pytest
import torch
from helpers import ragged

from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import Segmenter
from caesura.segmenters.lookup import LookupSegmenter


@pytest.mark.parametrize("segmenter", [LookupSegmenter(7, 3), ActSegmenter(7, 2, 4, 3)])
@pytest.mark.parametrize("lengths", [[5, 2, 0], []])
def test_lengths_may_be_plain_numbers(segmenter: Segmenter, lengths: list[int]) -> None:
    symbols, sizes = ragged(lengths, 7, torch.Generator().manual_seed(0))
    wanted = segmenter(symbols, sizes)
    for given in (lengths, tuple(lengths), sizes.numpy()):
        found = segmenter(symbols, lengths=given)
        assert found.vectors.equal(wanted.vectors)
        assert found.lengths.equal(wanted.lengths)
        assert found.lengths.dtype == torch.long
