"""A figure and given cuts for CIF and ACT with carry, which add up weights and carry the surplus over."""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.kernels.cif import Fired
from caesura.segmenters.base import Cuts
from caesura.segmenters.figures import Figure
from caesura.segmenters.reading import Gaps, Reading
from caesura.segmenters.spans import totals


def _shared(cuts: Cuts) -> Tensor:
    """[B]: the share of a boundary symbol's weight that the next segment gets, summed over boundaries."""
    assert cuts.spill is not None
    return _mean(cuts, (cuts.spill / (cuts.weights + cuts.spill).clamp(min=1e-30) * cuts.ends).sum(1))


def _mean(cuts: Cuts, values: Tensor) -> Tensor:
    """[B]: the mean over the cuttings of each sentence."""
    return values.view(cuts.copies, -1).double().mean(0)


SPILL = Figure(
    name="spill",
    heading="spill",
    unit="of a boundary character",
    definition="share of a boundary character's weight that the next segment gets; 0: all cuts are hard",
    count=lambda cuts, lengths: (_shared(cuts), _mean(cuts, cuts.ends.sum(1)) - (lengths > 0).long()),
    format=".1%",
    headline=True,
)


def settled(fired: Fired, reading: Reading, gaps: Gaps) -> tuple[Tensor, Tensor, Tensor]:
    """Ends, weights and spill [B, T] that respect given cuts.

    A sentence with given cuts has hard segments: weights are divided by their sum within each. </s> closes
    the last segment and gives nothing, unless the sentence has nothing else.
    """
    closing = reading.mask & ~reading.text & (reading.characters == 0)[:, None]  # </s> alone
    ends, weights, spill = gaps.settle(fired.ends), fired.weights + closing, fired.spill
    if gaps.given is not None:
        total = totals(ends, fired.a.double()).to(fired.a.dtype)
        hard = torch.where(reading.text, fired.a / total.clamp(min=1e-30), closing.to(fired.a.dtype))
        weights = torch.where(gaps.given, hard, weights)
        spill = torch.where(gaps.given, 0.0, spill)
    return ends, weights, spill
