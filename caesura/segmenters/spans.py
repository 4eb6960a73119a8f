"""Arithmetic over segments given by their ends [B, T], with no shape that depends on them."""

from __future__ import annotations

import torch
from torch import Tensor


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
