"""Queries and keys turned by their places in Triton, one launch each way.

R rows of N heads of D features: a row is a symbol of a sentence. Backward turns the other way.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from caesura.kernels import launch
from caesura.kernels.launch import padded
from caesura.kernels.triton_math import rounded

PAIRS = 1024  # that a program turns, of queries and of keys
LARGEST = 8192  # pairs of a row


def unsupported(parts: Tensor, cosines: Tensor, sines: Tensor) -> str | None:
    """Why these arguments of `turned` are not for the kernel; None if they are."""
    for tensor in (parts, cosines, sines):
        if reason := launch.unsupported(tensor.device, tensor.dtype, torch.float32, torch.bfloat16):
            return reason
    if parts.shape[3:].numel() // 2 > LARGEST:
        return f"the kernels hold up to {LARGEST} pairs of features"
    return None if parts.numel() else "there is nothing to read"


def turn(parts: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `turned_reference`, rounded once."""
    queries, keys, values = TritonTurn.apply(parts, cosines, sines)
    return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)


@triton.jit
def turn_pairs(source, target, here, there, c, s, inside, HALF: tl.constexpr):
    """Features `here` and HALF further, as complex numbers, times c + i s."""
    x = tl.load(source + here, inside, 0.0).to(tl.float32)
    y = tl.load(source + here + HALF, inside, 0.0).to(tl.float32)
    kind = target.dtype.element_ty
    tl.store(target + there, rounded(x * c - y * s, kind), inside)
    tl.store(target + there + HALF, rounded(x * s + y * c, kind), inside)


@triton.jit(do_not_specialize=["R", "PLACES"])
def turn_rows(
    queries,  # rows that are FROM apart, and so are the next two
    keys,
    values,
    to_queries,  # out, rows that are TO apart, and so are the next two
    to_keys,
    to_values,
    cosines,  # [PLACES, D]: each half of the features has all angles
    sines,  # [PLACES, D]: the first half negative
    R,
    PLACES,
    FROM: tl.constexpr,
    TO: tl.constexpr,
    N: tl.constexpr,
    HALF: tl.constexpr,  # D / 2
    BACK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Queries and keys turned, and values copied; row r has the angles of row r % PLACES."""
    rows, pairs = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (rows < R) & (pairs < N * HALF)
    at = rows % PLACES * (2 * HALF) + pairs % HALF
    c = tl.load(cosines + at, inside, 0.0).to(tl.float32)
    s = tl.load(sines + at + HALF, inside, 0.0).to(tl.float32)
    if BACK:
        s = -s
    pair = pairs // HALF * (2 * HALF) + pairs % HALF
    here, there = rows.to(tl.int64) * FROM + pair, rows.to(tl.int64) * TO + pair
    turn_pairs(queries, to_queries, here, there, c, s, inside, HALF)
    turn_pairs(keys, to_keys, here, there, c, s, inside, HALF)
    tl.store(to_values + there, tl.load(values + here, inside, 0.0), inside)
    tl.store(to_values + there + HALF, tl.load(values + here + HALF, inside, 0.0), inside)


class TritonTurn(torch.autograd.Function):
    """`turned_reference` before its heads change places with its symbols."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, ...]:
        """Three tensors [B, Q, N, D]."""
        parts, cosines, sines = parts.contiguous(), cosines.contiguous(), sines.contiguous()
        ctx.save_for_backward(cosines, sines)
        B, Q, _, N, D = parts.shape
        results = tuple(parts.new_empty(B, Q, N, D) for _ in range(3))
        _launch(parts.unbind(2), results, cosines, sines, back=False)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One gradient [B, Q, 3, N, D]."""
        cosines, sines = ctx.saved_tensors
        rows = tuple(gradient.contiguous() for gradient in gradients)
        B, Q, N, D = rows[0].shape
        of_parts = rows[0].new_empty(B, Q, 3, N, D)
        _launch(rows, of_parts.unbind(2), cosines, sines, back=True)
        return of_parts, None, None


def _launch(
    sources: tuple[Tensor, ...], targets: tuple[Tensor, ...], cosines: Tensor, sines: Tensor, back: bool
) -> None:
    """From three tensors [B, Q, N, D] to three others; either may be slices of one [B, Q, 3, N, D]."""
    B, Q, N, D = sources[0].shape
    block = padded(N * D // 2)
    rows = max(1, PAIRS // block)
    turn_rows[(triton.cdiv(B * Q, rows),)](
        *(*sources, *targets, cosines, sines, B * Q, cosines.numel() // D),
        *((1 if back else 3) * N * D, (3 if back else 1) * N * D, N, D // 2, back, rows, block),
        num_warps=max(4, min(16, rows * block // 256)),
    )
