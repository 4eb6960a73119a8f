"""Arithmetic over segments given by their ends [B, T], with no shape that depends on them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def slots(ends: Tensor) -> Tensor:
    """[B, T]: the number of each symbol's segment, from 0."""
    return ends.cumsum(1) - ends.long()


def first_and_last(ends: Tensor) -> tuple[Tensor, Tensor]:
    """[B, T] each: the positions of the first and the last symbol of each symbol's segment.

    After a row's last end, on padding, both are meaningless, but valid positions.
    """
    size = ends.shape[1]
    places = torch.arange(size, device=ends.device).expand_as(ends)
    begins = torch.cat((torch.ones_like(ends[:, :1]), ends[:, :-1]), 1)
    first = torch.where(begins, places, 0).cummax(1).values
    last = torch.where(ends, places, size - 1).flip(1).cummin(1).values.flip(1)
    return first, last


def even_weights(ends: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, T]: one over the number of symbols in a symbol's segment; 0 on padding."""
    if not ends.shape[1]:
        return mask.to(dtype)
    first, last = first_and_last(ends)
    return mask / (last - first + 1).to(dtype)


def before(ends: Tensor, values: Tensor) -> Tensor:
    """[B, T]: the sum of `values` [B, T] over the symbols of the same segment that come before a symbol."""
    sums = values.cumsum(1)
    zero = torch.zeros_like(sums[:, :1])
    return sums - values - torch.cat((zero, sums), 1).gather(1, first_and_last(ends)[0])


def totals(ends: Tensor, values: Tensor) -> Tensor:
    """[B, T]: the sum of `values` [B, T] over a symbol's whole segment."""
    first, last = first_and_last(ends)
    sums = torch.cat((torch.zeros_like(values[:, :1]), values.cumsum(1)), 1)
    return sums.gather(1, last + 1) - sums.gather(1, first)


@torch.no_grad()
def summed_ends(values: Tensor, enough: float, cut: Tensor, keep: Tensor) -> Tensor:
    """[B, T] bool: where segments end if each goes on until its `values` [B, T] sum to `enough`.

    It also ends at every `cut` [B, T], and never at a `keep` [B, T] that is not a cut. First, every place
    where a segment could begin gets the place where the next one would begin. Then the places that follow
    from the first one are marked, twice as many per round.
    """
    size = values.shape[1]
    if not size:
        return cut
    sums = F.pad(values.double().cumsum(1).cummax(1).values, (1, 0))  # rounding must not let a sum fall
    full = torch.searchsorted(sums[:, 1:].contiguous(), sums[:, :-1] + enough)
    last = torch.minimum(F.pad(_next(~keep), (0, 1), value=size).gather(1, full), _next(cut))
    jumps = F.pad(last + 1, (0, 2), value=size + 1)  # size + 1: nothing begins any more
    begins = torch.zeros_like(jumps, dtype=torch.bool)
    begins[:, 0] = True
    for _ in range(size.bit_length()):
        begins = begins.scatter(1, torch.where(begins, jumps, size + 1), True)
        jumps = jumps.gather(1, jumps)
    return begins[:, 1:-1]


def _next(marked: Tensor) -> Tensor:
    """[B, T]: the first place from here on that is `marked` [B, T]; T where there is none."""
    size = marked.shape[1]
    places = torch.arange(size, device=marked.device)
    return torch.where(marked, places, size).flip(1).cummin(1).values.flip(1)
