"""Which positions of a padded batch are real."""

from __future__ import annotations

import torch
from torch import Tensor


def positions_mask(lengths: Tensor, size: int) -> Tensor:
    """[B, size] bool: True on the first `lengths[b]` positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a mask [..., S] is True, else -inf: what attention would make of it anew in each layer.

    Rows begin at multiples of 8 numbers; kernels for bfloat16 would copy others.
    """
    size = mask.shape[-1]
    rows = torch.zeros(*mask.shape[:-1], -(-size // 8) * 8, dtype=dtype, device=mask.device)
    return rows[..., :size].masked_fill_(~mask, -torch.inf)
