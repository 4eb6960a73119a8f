"""CIF's arithmetic: one shift per sentence to meet a number of segments, and each symbol's part in them.

B sentences, T symbols; the text of a sentence is its first `count` symbols. a_t = sigmoid(l_t + d), with d
such that the a of a sentence sum to `number`; c_t is their sum up to t, and symbol t gives to segment k what
[c_{t-1}, c_t] and [k - 1, k] have in common.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caesura.kernels import pick

# The search for the shift: each round divides its range by 32, as 5 bisections do.
ROUNDS, FOLD = 6, 32
SMALL = 1e-6  # the margin that keeps every a below 1, so that no symbol ends two segments
SLACK = 1e-6  # a sum this close below a whole number has reached it, as equal scores in float32 must


class Fired(NamedTuple):
    """What each symbol gives, and where segments end; all [B, T]."""

    a: Tensor  # the shifted weights, 0 beyond the text
    ends: Tensor  # bool: a segment ends here and another begins; the last character ends none
    weights: Tensor  # a symbol's weight in the segment that is open when it comes
    spill: Tensor  # its weight in the next segment, where it ends one


def fire(scores: Tensor, count: Tensor, number: Tensor) -> Fired:
    """Cut sentences of `count` [B] characters, scored by `scores` [B, T], into `number` [B] segments each."""
    if pick(scores.device, "cif", scores)[0] == "triton":
        from caesura.kernels.cif_triton import fire as launched  # here: Triton is not everywhere

        return launched(scores, count, number)
    return fire_reference(scores, count, number)


def fire_reference(scores: Tensor, count: Tensor, number: Tensor) -> Fired:
    """In autograd's operations and float64, where rounding cannot add or lose a segment."""
    places = torch.arange(scores.shape[1], device=scores.device)
    a = scale(scores, places < count[:, None], number)
    return integrate(a, count[:, None], number[:, None])


def scale(scores: Tensor, text: Tensor, number: Tensor) -> Tensor:
    """a [B, T] = sigmoid(scores + d) on `text`, with one d per sentence so that they sum to `number` [B].

    float64. d has the gradient of the equation that defines it, dd/dl_j = -a_j (1 - a_j) / sum(a (1 - a)).
    """
    scores, count = scores.double(), text.sum(1, keepdim=True)
    if not scores.shape[1]:
        return scores
    total = torch.minimum(number[:, None].double(), count * (1 - SMALL))
    with torch.no_grad():
        d = _shift(scores, text, total)
        a = torch.sigmoid(scores + d) * text
        slope = (a * (1 - a)).sum(1, keepdim=True).clamp(min=1e-30)
    # One step of Newton's method: in value the last digits of d, in gradient the implicit derivative.
    d = d - ((torch.sigmoid(scores + d) * text).sum(1, keepdim=True) - total) / slope
    return torch.sigmoid(scores + d).clamp(max=1 - SMALL / 2) * text


def _shift(scores: Tensor, text: Tensor, total: Tensor) -> Tensor:
    """d [B, 1] such that sigmoid(scores + d) sums to `total` [B, 1] on `text`, to 1e-9 of the range."""
    share = (total / text.sum(1, keepdim=True).clamp(min=1)).clamp(SMALL / 2, 1 - SMALL / 2)
    level, inf = torch.logit(share), torch.inf
    none = ~text.any(1, keepdim=True)
    low = (level - scores.masked_fill(~text, -inf).amax(1, keepdim=True)).masked_fill(none, 0)
    high = (level - scores.masked_fill(~text, inf).amin(1, keepdim=True)).masked_fill(none, 0)
    inner = torch.arange(1, FOLD, device=scores.device, dtype=scores.dtype) / FOLD
    for _ in range(ROUNDS):
        tried = low + (high - low) * inner  # [B, 31]
        sums = (torch.sigmoid(scores[..., None] + tried[:, None]) * text[..., None]).sum(1)
        below, width = (sums < total).sum(1, keepdim=True), (high - low) / FOLD
        low = low + below * width
        high = low + width
    return (low + high) / 2


def integrate(a: Tensor, count: Tensor, number: Tensor) -> Fired:
    """Each symbol's part in the segments; `a` sums to `number` [B, 1] on the first `count` symbols."""
    c, places = a.cumsum(1), torch.arange(a.shape[1], device=a.device)
    text, last = places < count, number - 1  # the number of the last segment, from 0
    with torch.no_grad():
        # The segment that is open after each symbol. Each remaining symbol can close one segment; bounds keep
        # the rounding of c from leaving more or fewer than they can close.
        after = torch.maximum(c.floor().long(), last - (count - 2 - places))
        after = torch.minimum(torch.minimum(after, places + 1), last)
        open_ = torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), 1)
        ends = text & (after > open_)
        closes = ends | (places == count - 1)  # the last character takes all that is left
    weights = torch.where(closes, open_ + 1 - (c - a), a)
    weights = torch.where(number == count, 1.0, weights) * text  # one segment per character
    return Fired(a, ends, weights, (c - open_ - 1).clamp(min=0) * ends)


def passed(c: Tensor) -> Tensor:
    """[B, T]: the whole numbers that running sums c [B, T] of weights up to 1 have passed after each symbol.

    Rounding can neither take one back nor let one symbol pass two.
    """
    places = torch.arange(c.shape[1], device=c.device)
    if not c.shape[1]:
        return c.long()
    whole = (c.detach() + SLACK).floor().long().cummax(1).values
    return places + (whole - places).clamp(max=1).cummin(1).values


def accumulate(a: Tensor, count: Tensor) -> Fired:
    """Each symbol's part in its segments for weights `a` [B, T] without scaling, on `count` [B] symbols.

    `a` decides the number of segments. The last one takes the rest as it is; the last symbol ends none,
    because a segment after it would have no text.
    """
    places = torch.arange(a.shape[1], device=a.device)
    c = a.cumsum(1)
    after = passed(c)
    open_ = torch.cat((torch.zeros_like(after[:, :1]), after[:, :-1]), 1)
    ends = (after > open_) & (places < count[:, None] - 1)
    spill = torch.minimum((c - open_ - 1).clamp(min=0), a) * ends
    return Fired(a, ends, a - spill, spill)
