"""ACT-ENC's recurrence in Triton: all symbols in one launch forward, and in one backward.

Work that does not depend on the recurrence stays outside: weight gradients are one product over all symbols.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from caesura.kernels import launch
from caesura.kernels.act_kernels_triton import backward, forward
from caesura.kernels.act_scan import ActCarry, ActSegments, ActWeights

ROWS = 16  # sentences per program: the smallest tile of a matrix unit
LARGEST = 256  # state size
RESIDENT = 96 * 1024  # bytes of hidden weights that a program keeps
# Table rows up to which a one-hot product gives the table's gradient; it beats sorting the symbols.
ONE_HOT = 1024


def unsupported(inputs: Tensor, weights: ActWeights, carry: ActCarry) -> str | None:
    """Why these kernels cannot scan these tensors; None if they can."""
    kind, size = inputs.device.type, weights.weight_hh.shape[1]
    for tensor in (inputs, *weights, *carry):
        if reason := launch.unsupported(tensor.device, tensor.dtype, torch.float32):
            return reason
    if size > LARGEST:
        return f"the state has {size} features, and the kernels hold up to {LARGEST}"
    if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != torch.bfloat16:
        return "autocast is on for a dtype other than bfloat16"
    return None


def segments(
    projections: Tensor,
    symbols: Tensor | None,
    weights: ActWeights,
    carry: ActCarry,
    mask: Tensor,
    forced: Tensor,
    epsilon: float,
) -> tuple[ActSegments, ActCarry]:
    """As `act_segments`.

    Under bfloat16 autocast the products' operands and the segments' means are rounded to it; sums, state and
    halting stay in float32.
    """
    bf16 = torch.is_autocast_enabled(projections.device.type)
    read = projections, *weights, *carry
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in read)
    results = TritonActScan.apply(*read, symbols, mask, forced, epsilon, bf16, keep)
    return ActSegments(*results[:5]), ActCarry(*results[5:])


class TritonActScan(torch.autograd.Function):
    """The segments of `act_scan_reference`, in one launch each way."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, *given: Any) -> tuple[Tensor | None, ...]:
        """Scan, and `keep` what the gradient needs if it is wanted; arguments as in `segments`."""
        weight_hh, bias_hh, halting_weight, halting_bias, s, mean, H, R, *rest = given
        symbols, mask, forced, epsilon, bf16, keep = rest
        (count, steps), size, like = mask.shape, s.shape[1], torch.contiguous_format
        options = _options(size, bf16)
        weight_hh = _for_product(weight_hh, options)
        symbols = None if symbols is None else symbols.contiguous()
        states = gates = None
        dtype = torch.bfloat16 if bf16 else torch.float32
        of_segments = inputs.new_zeros(count, steps, options["WIDE"], dtype=dtype)
        counts = inputs.new_empty(count, dtype=torch.int64)
        ends = torch.empty_like(mask, memory_format=like)
        weights, scores, slopes = (inputs.new_empty(count, steps) for _ in range(3))
        if keep or options["CHUNK"] < options["PAD"]:
            states = inputs.new_empty(count, steps, size)
        if keep:
            gates = inputs.new_empty(count, steps, 4 * size)
        last = [torch.empty_like(part, memory_format=like) for part in (s, mean, H, R)]
        forced = forced.view(torch.int8) if forced.dtype == torch.bool else forced
        read = (bias_hh, halting_weight, halting_bias, s, mean, H, R, mask, forced)
        forward[(triton.cdiv(count, ROWS),)](
            *(inputs.contiguous(), symbols, weight_hh, *(part.contiguous() for part in read)),
            *(of_segments, counts, ends, weights, scores, states, gates, slopes, *last),
            *(count, steps, count * steps if symbols is None else len(inputs), 1 - epsilon),
            **options,
        )
        ctx.save_for_backward(
            symbols, weight_hh, halting_weight, states, gates, slopes, weights, ends, counts
        )
        ctx.rows, ctx.options = len(inputs), options
        ctx.mark_non_differentiable(ends, counts)
        ctx.set_materialize_grads(False)
        return of_segments, counts, ends, weights, scores, *last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """From the gradients of the trace and of the last carry to those of all inputs."""
        symbols, weight_hh, halting_weight, states, gates, slopes, weights, ends, counts = ctx.saved_tensors
        (count, steps, size), options = states.shape, ctx.options
        one_hot = symbols is not None and ctx.rows <= ONE_HOT
        dtype = torch.bfloat16 if options["OPERAND"] == tl.bfloat16 else torch.float32
        # A multiple of 8 columns: the matrix units read 16 bytes at once.
        width = triton.cdiv(size + ctx.rows, 8) * 8 if one_hot else size
        factors = states.new_zeros(count * steps, width, dtype=dtype)
        of_gates = states.new_empty(count * steps, 4 * size, dtype=dtype if one_hot else torch.float32)
        programs = triton.cdiv(count, ROWS)
        sums = states.new_empty(programs, 4 * size + 1)
        of_s, of_mean = states.new_empty(2, count, size).unbind()
        of_H = states.new_empty(count)
        g_segments, _, _, *g_rest = (None if g is None else g.contiguous() for g in grads)
        backward[(programs,)](
            *(symbols if one_hot else None, weight_hh, halting_weight.contiguous()),
            *(states, gates, slopes, weights, ends, g_segments, counts, *g_rest),
            *(of_gates, factors, sums, of_s, of_mean, of_H, count, steps, width),
            **options,
        )
        with torch.autocast(states.device.type, enabled=False):
            product = (of_gates.to(dtype).t() @ factors).float()
        of_weight = torch.cat((product[: 2 * size, :size], product[3 * size :, :size]))
        of_halting, of_bias, of_halting_bias = sums.sum(0).split((size, 3 * size, 1))
        of_inputs = of_gates[:, : 3 * size].view(count, steps, 3 * size)
        if one_hot:
            of_inputs = product[: 3 * size, size : size + ctx.rows].t()
        elif symbols is not None:
            rows = of_inputs.contiguous()
            of_inputs = torch.ops.aten.embedding_dense_backward(rows, symbols, ctx.rows, -1, False)
        of_weights = of_weight, of_bias, of_halting[None], of_halting_bias
        return of_inputs, *of_weights, of_s, of_mean, of_H, grads[8], *(None,) * 6


def _options(size: int, bf16: bool) -> dict[str, Any]:
    """How the kernels are compiled for this state size."""
    padded = launch.padded(size)
    return {
        # A mean and the 1 after it, rounded up as the output layer's product likes it.
        "WIDE": triton.cdiv(size + 1, 8) * 8,
        "A": size,
        "PAD": padded,
        "ROWS": ROWS,
        "CHUNK": padded if 3 * padded**2 * (2 if bf16 else 4) <= RESIDENT else 32,
        "OPERAND": tl.bfloat16 if bf16 else tl.float32,
        "num_warps": 8,
        "num_stages": 2,
    }


def _for_product(weight: Tensor, options: dict[str, Any]) -> Tensor:
    """The hidden weights; rounded once where every step reads them anew."""
    if options["CHUNK"] < options["PAD"] and options["OPERAND"] == tl.bfloat16:
        weight = weight.to(torch.bfloat16)
    return weight.contiguous()
