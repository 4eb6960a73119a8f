"""Dropout, a sum and its layer norm in Triton, one launch each way.

The backward pass needs only the sum, the weights and one random number, from which both passes draw the same
dropout.

N rows of D features. A program has whole rows in registers, ROWS at a time, in BLOCK columns.
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

LARGEST = 8192  # features
NUMBERS = 2048  # that a program has at a time
# Programs of the way back, each with sums of its own for the gradients of the weights: the same number on
# every GPU, so that results are the same, and about as many as an H200 runs at once.
PROGRAMS = 512


def unsupported(states: Tensor | None, update: Tensor, weight: Tensor) -> str | None:
    """Why these arguments of `residual_norm` are not for the kernels; None if they are."""
    reason = launch.unsupported(update.device, update.dtype, torch.float32, torch.bfloat16)
    for tensor in (weight, *([] if states is None else [states])):
        reason = reason or launch.unsupported(tensor.device, tensor.dtype, torch.float32)
    if reason:
        return reason
    if update.shape[-1] > LARGEST:
        return f"the kernels hold up to {LARGEST} features"
    return None if update.numel() else "there is nothing to read"


def add(
    states: Tensor | None,
    update: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    drop: float = 0.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """As `residual_norm_reference`; the sum is float32."""
    total, normed = TritonResidualNorm.apply(states, update, weight, bias, eps, drop, dtype or torch.float32)
    return total, normed


@triton.jit
def dropout_factors(seeds, rows, DROP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """[ROWS, BLOCK]: 0 for what is dropped, else the factor of dropout. One draw serves four neighbours."""
    fours = rows[:, None] * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    a, b, c, d = tl.rand4x(tl.load(seeds), fours)
    draws = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [ROWS, BLOCK])
    return tl.where(draws < DROP, 0.0, 1 / (1 - DROP))


@triton.jit
def standard(x, inside, D: tl.constexpr, EPS: tl.constexpr):
    """Rows with mean 0 and variance 1, zero outside, and what they were multiplied by [ROWS, 1]."""
    x = tl.where(inside, x - tl.sum(x, 1)[:, None] / D, 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 1)[:, None] / D + EPS)
    return x * scale, scale


@triton.jit(do_not_specialize=["N"])
def forward(
    states,  # [N, D] float32, or None
    update,  # [N, D]
    weight,  # [D] float32
    bias,
    seeds,  # [1] int64, or None without dropout
    total,  # out, [N, D] float32
    normed,  # out, [N, D]
    N,
    D: tl.constexpr,
    EPS: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The sum and its norm, of ROWS rows."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < D)
    places = rows[:, None].to(tl.int64) * D + columns
    x = tl.load(update + places, inside, 0.0).to(tl.float32)
    if seeds is not None:
        x *= dropout_factors(seeds, rows, DROP, ROWS, BLOCK)
    if states is not None:
        x += tl.load(states + places, inside, 0.0)
    tl.store(total + places, x, inside)
    x, _ = standard(x, inside, D, EPS)
    x = x * tl.load(weight + columns, columns < D, 0.0) + tl.load(bias + columns, columns < D, 0.0)
    tl.store(normed + places, rounded(x, normed.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["N"])
def backward(
    total,
    weight,
    seeds,
    of_total,  # [N, D] float32, or None
    of_normed,  # [N, D]
    of_states,  # out, [N, D] float32, or None
    of_update,  # out, [N, D]
    of_weights,  # out, [programs, 2, D] float32: each program's part of the gradients of weight and bias
    N,
    D: tl.constexpr,
    EPS: tl.constexpr,
    DROP: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All gradients of a share of the rows."""
    columns = tl.arange(0, BLOCK)
    w = tl.load(weight + columns, columns < D, 0.0)
    of_weight, of_bias = tl.zeros([ROWS, BLOCK], tl.float32), tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < D)
        places = rows[:, None].to(tl.int64) * D + columns
        # All at once: the sums over a row would keep later reads waiting.
        x = tl.load(total + places, inside, 0.0)
        g = tl.load(of_normed + places, inside, 0.0).to(tl.float32)
        if of_total is not None:
            straight = tl.load(of_total + places, inside, 0.0)
        x, scale = standard(x, inside, D, EPS)
        of_weight += g * x
        of_bias += g
        g *= w
        g = scale * (g - (tl.sum(g, 1)[:, None] + x * tl.sum(g * x, 1)[:, None]) / D)
        if of_total is not None:
            g += straight
        if of_states is not None:
            tl.store(of_states + places, g, inside)
        if seeds is not None:
            g *= dropout_factors(seeds, rows, DROP, ROWS, BLOCK)
        tl.store(of_update + places, rounded(g, of_update.dtype.element_ty), inside)
    part = of_weights + tl.program_id(0) * 2 * D + columns
    tl.store(part, tl.sum(of_weight, 0), columns < D)
    tl.store(part + D, tl.sum(of_bias, 0), columns < D)


class TritonResidualNorm(torch.autograd.Function):
    """`residual_norm_reference` in one launch each way."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor | None,
        update: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        drop: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """As many programs as it takes."""
        states, update = None if states is None else states.contiguous(), update.contiguous()
        weight, D = weight.contiguous(), update.shape[-1]
        # Drawn on the device, so that a captured graph draws anew each time that it is replayed.
        seed = torch.randint(2**63 - 1, (1,), device=update.device) if drop else None
        total, normed = (update.new_empty(update.shape, dtype=kind) for kind in (torch.float32, dtype))
        N, sizes = update.numel() // D, options(D)
        forward[(triton.cdiv(N, sizes["ROWS"]),)](
            *(states, update, weight, bias.contiguous(), seed, total, normed, N, D, eps, drop), **sizes
        )
        ctx.save_for_backward(total, weight, seed)
        ctx.settings, ctx.kind, ctx.alone = (eps, drop), update.dtype, states is None
        ctx.set_materialize_grads(False)
        return total, normed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total: Tensor | None, of_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        """From the gradients of the sum and of its norm to those of all inputs."""
        total, weight, seed = ctx.saved_tensors
        of_total = None if of_total is None else of_total.contiguous()
        of_normed = torch.zeros_like(total) if of_normed is None else of_normed.contiguous()
        of_states = None if ctx.alone else total.new_empty(total.shape)
        of_update = total.new_empty(total.shape, dtype=ctx.kind)
        D = total.shape[-1]
        N, sizes = total.numel() // D, options(D)
        programs = min(PROGRAMS, triton.cdiv(N, sizes["ROWS"]))
        parts = total.new_empty(programs, 2, D)
        backward[(programs,)](
            *(total, weight, seed, of_total, of_normed, of_states, of_update, parts, N, D, *ctx.settings),
            **sizes,
        )
        of_weight, of_bias = parts.sum(0)
        return of_states, of_update, of_weight, of_bias, None, None, None


def options(features: int) -> dict[str, int]:
    """A program's share of the work."""
    block = padded(features)
    rows = max(1, NUMBERS // block)
    return {"ROWS": rows, "BLOCK": block, "num_warps": rows * block // 512}
