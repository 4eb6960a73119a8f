"""The gradient of a bias in Triton: sums of columns, always in the same order.

N rows of M features. A program sums BLOCK columns, ROWS rows at a time, of its share of the rows.
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
from caesura.kernels.precision import working_dtype

ROWS, BLOCK = 32, 128
PROGRAMS = 512  # at most about this many; the same on every GPU, so that results are too


def unsupported(inputs: Tensor, bias: Tensor) -> str | None:
    """Why these arguments of `linear` are not for the kernel; None if they are."""
    reason = launch.unsupported(inputs.device, working_dtype(inputs), torch.float32, torch.bfloat16)
    reason = reason or launch.unsupported(bias.device, bias.dtype, torch.float32)
    return reason or (None if inputs.numel() and len(bias) else "there is nothing to read")


def with_bias(outputs: Tensor, bias: Tensor) -> Tensor:
    """`outputs` [..., M] as they are; `bias` [M], which is already in them, gets its gradient here."""
    result: Tensor = TritonBias.apply(outputs, bias)
    return result


@triton.jit(do_not_specialize=["N"])
def column_sums(values, parts, N, M: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """parts [programs, M] of the sums of values [N, M]."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < M)
        total += tl.load(values + rows[:, None].to(tl.int64) * M + columns, inside, 0.0).to(tl.float32)
    tl.store(parts + tl.program_id(0) * M + columns, tl.sum(total, 0), columns < M)


class TritonBias(torch.autograd.Function):
    """The identity, and the gradient of a bias."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, bias: Tensor) -> Tensor:
        """A view."""
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient itself, and its sum over all rows."""
        of_outputs = of_outputs.contiguous()
        M = of_outputs.shape[-1]
        N, across = of_outputs.numel() // M, triton.cdiv(M, BLOCK)
        programs = max(1, min(PROGRAMS // across, triton.cdiv(N, ROWS)))
        parts = of_outputs.new_empty(programs, M, dtype=torch.float32)
        column_sums[(programs, across)](of_outputs, parts, N, M, ROWS, BLOCK)
        return of_outputs, parts.sum(0)
