"""Poolings: one vector per segment from the states of its symbols.

Each is one product with a matrix [B, S, T] of what symbols give to segments: a fixed order of sums, so that
results repeat, and on a GPU no symbol waits for another.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.segmenters.base import Cuts
from caesura.segmenters.parts import Pooling
from caesura.segmenters.spans import slots


class Mean(Pooling):
    """The mean of the states, all symbols alike."""

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """Sum, then divide by the count: bfloat16 holds the matrix of zeros and ones exactly."""
        members = _members(slots(cuts.ends), size) & (cuts.weights > 0)[:, None]
        count = members.sum(2, keepdim=True).clamp(min=1)
        return torch.bmm(members.to(states.dtype), states) / count.to(states.dtype)


class Weighted(Pooling):
    """The sum of the states, each times its symbol's weight; a boundary symbol may count in two segments."""

    uses_weights = True

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """In float32 or better: what teaches a cutter is often a small difference of neighbouring states."""
        slot, full = slots(cuts.ends), torch.promote_types(states.dtype, torch.float32)
        given = _members(slot, size) * cuts.weights.to(full)[:, None]
        if cuts.spill is not None:
            given = given + _members(slot + 1, size) * cuts.spill.to(full)[:, None]
        with torch.autocast(states.device.type, enabled=False):
            return torch.bmm(given, states.to(full))


class Last(Pooling):
    """The state of the symbol that ends a segment; in the last segment, that is </s>."""

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """Picked, not weighed."""
        ending = _members(slots(cuts.ends), size) & cuts.ends[:, None]
        return torch.bmm(ending.to(states.dtype), states)


def _members(slot: Tensor, size: int) -> Tensor:
    """[B, size, T] bool: this symbol is in slot k."""
    k = torch.arange(size, device=slot.device)[:, None]
    return slot[:, None] == k
