"""Dropout, a sum and its layer norm, as they lie between the layers of a Transformer.

The reference, and which implementation runs. There is no fused form with its gradient by hand: on a CPU,
these are few operations.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels import pick


def residual_norm(
    states: Tensor | None,
    update: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    drop: float = 0.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """`states` + dropout(`update`), both [..., D], and its layer norm in `dtype` (None: that of the sum).

    `drop` is the share of the update that is dropped. Without `states`, the sum is the update alone, in the
    precision of the weights [D] or better.
    """
    if pick(update.device, "residual_norm", states, update, weight)[0] == "triton":
        from caesura.kernels.residual_norm_triton import add  # here: Triton is not everywhere

        return add(states, update, weight, bias, eps, drop, dtype)
    return residual_norm_reference(states, update, weight, bias, eps, drop, dtype)


def residual_norm_reference(
    states: Tensor | None,
    update: Tensor,
    weight: Tensor,
    bias: Tensor,
    eps: float = 1e-5,
    drop: float = 0.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """In autograd's operations."""
    update = F.dropout(update, drop)
    # A sum over many layers is as precise as the weights, even where autocast makes its first term bfloat16.
    precise = torch.promote_types(update.dtype, weight.dtype)
    total = update.to(precise) if states is None else states + update
    normed = F.layer_norm(total, weight.shape, weight, bias, eps)
    return total, normed if dtype is None else normed.to(dtype)
