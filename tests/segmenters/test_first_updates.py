"""New readers keep segments apart while a model learns what all sentences share."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from caesura.segmenters.cutters.hard import Fixed
from caesura.segmenters.parts import Reader, Segmenter
from caesura.segmenters.pooling import Mean
from caesura.segmenters.readers.blocks import Blocks
from caesura.segmenters.readers.transformer import Transformer


@pytest.mark.parametrize("kind", [Blocks, Transformer])
def test_first_updates_leave_segments_apart(kind: type[Reader]) -> None:
    """Ten updates push all segments in one direction, as Adam does at first: every weight by the rate."""
    torch.manual_seed(0)
    reader = Blocks(40, 128) if kind is Blocks else Transformer(40, 64, 4, 128, dropout=0.0)
    layer, lengths = Segmenter(reader, Fixed(4), Mean()), [40] * 4
    symbols, direction = torch.randint(0, 40, (4, 40)), torch.randn(reader.output_dim)
    for _ in range(10):
        pushed = (layer(symbols, lengths).vectors @ direction).sum()
        gradients = torch.autograd.grad(pushed, [*layer.parameters()])
        with torch.no_grad():
            for weight, gradient in zip(layer.parameters(), gradients, strict=True):
                weight -= 7e-4 * gradient.sign()
    vectors = F.normalize(layer(symbols, lengths).vectors.detach().flatten(0, 1), dim=1)
    assert (vectors @ vectors.T).mean() < 0.6
