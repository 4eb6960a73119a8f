"""Poolings: one vector per segment from the states of its symbols.

Each except `Max` is one product with a matrix [B, S, T] of the weights of symbols in segments. Sums then have
a fixed order, so results repeat, and on a GPU no symbol waits for another.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
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


class Start(Pooling):
    """The state of a segment's first symbol, as in H-Net; in a sentence without text, that is </s>."""

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """Picked, without weights."""
        begins = F.pad(cuts.ends, (1, 0), value=True)[:, : states.shape[1]]
        starting = _members(slots(cuts.ends), size) & begins[:, None]
        return torch.bmm(starting.to(states.dtype), states)


class Max(Pooling):
    """The largest value of each feature; equal ones share its gradient."""

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """Padding, which follows the last end, goes to a row of its own."""
        padding = cuts.ends.flip(1).cumsum(1).flip(1) == 0
        rows = slots(cuts.ends).masked_fill(padding, size)[..., None].expand_as(states)
        none = states.new_full((len(states), size + 1, states.shape[2]), -torch.inf)
        largest = none.scatter_reduce(1, rows, states, "amax")[:, :size]
        return largest.masked_fill(largest == -torch.inf, 0)


class Attention(Pooling):
    """The mean of a segment's states e, weighted by a softmax of v . tanh(W e + b) over the segment.

    One query v of `size` features serves all segments.
    """

    def __init__(self, input_dim: int, size: int = 128) -> None:
        super().__init__()
        check_sizes(input_dim=input_dim, size=size)
        self.project, self.query = nn.Linear(input_dim, size), nn.Linear(size, 1, bias=False)

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """Shares in float32 or better."""
        if states.shape[2] != self.project.in_features:
            what = f"pooling attention has input_dim {self.project.in_features}"
            raise ValueError(f"{what}, but its states have {states.shape[2]}")
        full = torch.promote_types(states.dtype, torch.float32)
        scores = self.query(torch.tanh(self.project(states))).squeeze(2).to(full)
        members = _members(slots(cuts.ends), size)
        # The lowest number, not -inf: a row without symbols has to stay finite.
        masked = scores[:, None].masked_fill(~members, torch.finfo(full).min)
        shares = torch.softmax(masked, 2) * members
        return torch.bmm(shares.to(states.dtype), states)


def _members(slot: Tensor, size: int) -> Tensor:
    """[B, size, T] bool: this symbol is in slot k."""
    k = torch.arange(size, device=slot.device)[:, None]
    return slot[:, None] == k
