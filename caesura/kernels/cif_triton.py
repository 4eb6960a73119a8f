"""CIF's arithmetic in Triton, one launch each way: a program has a whole sentence in registers."""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from caesura.kernels import launch
from caesura.kernels.cif import SMALL, Fired

LARGEST = 8192  # symbols of the longest sentence
HALVINGS = 30


def unsupported(scores: Tensor) -> str | None:
    """Why these arguments of `fire` are not for the kernels; None if they are."""
    if reason := launch.unsupported(scores.device, scores.dtype, torch.float32):
        return reason
    if not 0 < scores.shape[1] <= LARGEST or not len(scores):
        return f"the kernels hold sentences of 1 to {LARGEST} symbols"
    return None


def fire(scores: Tensor, count: Tensor, number: Tensor) -> Fired:
    """As `fire_reference`; sums in float64, results in float32."""
    return Fired(*TritonFire.apply(scores, count, number))


@triton.jit(do_not_specialize=["T"])
def forward(
    scores,  # [B, T]
    counts,  # [B]
    numbers,  # [B]
    a_out,  # [B, T] and so are the next three
    ends,
    weights,
    spill,
    opened,  # [B, T] int32: the segment that is open after each symbol
    T,
    SMALL: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The shift by bisection and one step of Newton's method, then each symbol's part in the segments."""
    b, t = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    count, number = tl.load(counts + b), tl.load(numbers + b)
    text, inside, row = t < count, t < T, b * T + t
    score = tl.load(scores + row, text, 0.0).to(tl.float64)
    n = count.to(tl.float64)
    total = tl.minimum(number.to(tl.float64), n * (1.0 - SMALL))
    share = tl.minimum(tl.maximum(total / tl.maximum(n, 1.0), 0.5 * SMALL), 1.0 - 0.5 * SMALL)
    level, far = tl.log(share / (1.0 - share)), 1e300
    low = tl.where(count > 0, level - tl.max(tl.where(text, score, -far), 0), 0.0)
    high = tl.where(count > 0, level - tl.min(tl.where(text, score, far), 0), 0.0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = tl.sum(tl.where(text, tl.sigmoid(score + middle), 0.0), 0) < total
        low, high = tl.where(below, middle, low), tl.where(below, high, middle)
    d = 0.5 * (low + high)
    a = tl.where(text, tl.sigmoid(score + d), 0.0)
    d -= (tl.sum(a, 0) - total) / tl.maximum(tl.sum(a * (1.0 - a), 0), 1e-30)
    a = tl.where(text, tl.minimum(tl.sigmoid(score + d), 1.0 - 0.5 * SMALL), 0.0)
    c = tl.cumsum(a, 0)
    last = (number - 1).to(tl.int32)
    after = tl.maximum(tl.floor(c).to(tl.int32), last - (count.to(tl.int32) - 2 - t))
    after = tl.minimum(tl.minimum(after, t + 1), last)
    tl.store(opened + row, after, inside)
    tl.debug_barrier()  # every thread now sees what is open
    open_ = tl.load(opened + row - 1, inside & (t > 0), 0)
    end = text & (after > open_)
    closes = end | (t == count - 1)
    weight = tl.where(closes, open_ + 1 - (c - a), a)
    weight = tl.where(number == count, 1.0, weight)
    weight = tl.where(text, weight, 0.0)
    tl.store(a_out + row, a, inside)
    tl.store(ends + row, end, inside)
    tl.store(weights + row, weight, inside)
    tl.store(spill + row, tl.where(end, tl.maximum(a - weight, 0.0), 0.0), inside)


@triton.jit
def _gradient(pointer, row, inside):
    value = row * 0.0
    if pointer is not None:
        value = tl.load(pointer + row, inside, 0.0)
    return value.to(tl.float64)


@triton.jit(do_not_specialize=["T"])
def backward(
    a_in,
    ends,
    spill,
    counts,
    numbers,
    of_a,  # [B, T] gradients, or None
    of_weights,
    of_spill,
    of_scores,  # out
    T,
    SMALL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The closed form: sums over the following symbols, then through the shift that all share."""
    b, t = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    count, number = tl.load(counts + b), tl.load(numbers + b)
    text, inside, row = t < count, t < T, b * T + t
    a = tl.load(a_in + row, text, 0.0).to(tl.float64)
    end = tl.load(ends + row, text, 0) != 0
    closes = end | (t == count - 1)
    g_w = tl.where(text & (number < count), _gradient(of_weights, row, inside), 0.0)
    handed = tl.load(spill + row, text, 0.0) > 0.0
    g_s = tl.where(end & handed & (number < count), _gradient(of_spill, row, inside), 0.0)
    closing = tl.where(closes, g_w, 0.0)
    g = tl.where(closes, 0.0, g_w) + tl.where(text, _gradient(of_a, row, inside), 0.0)
    g += tl.cumsum(g_s - closing, 0, reverse=True) + closing
    slope = tl.where(text & (a < 1.0 - 0.6 * SMALL), a * (1.0 - a), 0.0)
    whole = tl.maximum(tl.sum(a * (1.0 - a), 0), 1e-30)
    g = slope * g - tl.where(text, a * (1.0 - a), 0.0) * (tl.sum(slope * g, 0) / whole)
    tl.store(of_scores + row, tl.where(text, g, 0.0), inside)


class TritonFire(torch.autograd.Function):
    """`fire_reference` in one launch each way."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, count: Tensor, number: Tensor) -> tuple[Tensor, ...]:
        """One program per sentence."""
        scores, count, number = scores.contiguous(), count.contiguous(), number.contiguous()
        a, weights, spill = (torch.empty_like(scores) for _ in range(3))
        ends = torch.empty(scores.shape, dtype=torch.bool, device=scores.device)
        opened = torch.empty(scores.shape, dtype=torch.int32, device=scores.device)
        forward[(len(scores),)](
            *(scores, count, number, a, ends, weights, spill, opened, scores.shape[1]),
            *(SMALL, HALVINGS),
            **_options(scores.shape[1]),
        )
        ctx.save_for_backward(a, ends, spill, count, number)
        ctx.mark_non_differentiable(ends)
        ctx.set_materialize_grads(False)
        return a, ends, weights, spill

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """From the gradients of a, weights and spill to that of the scores."""
        a, ends, spill, count, number = ctx.saved_tensors
        of_scores = torch.empty_like(a)
        of_a, _, of_weights, of_spill = (None if g is None else g.contiguous() for g in grads)
        backward[(len(a),)](
            *(a, ends, spill, count, number, of_a, of_weights, of_spill, of_scores, a.shape[1], SMALL),
            **_options(a.shape[1]),
        )
        return of_scores, None, None


def _options(symbols: int) -> dict[str, int]:
    block = max(32, triton.next_power_of_2(symbols))
    return {"BLOCK": block, "num_warps": min(8, max(1, block // 128))}
