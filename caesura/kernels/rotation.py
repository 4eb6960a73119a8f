"""Queries and keys turned by their places (Su et al. 2021): the reference, and which implementation runs.

B sentences, Q symbols, N heads, D features of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.kernels import pick

Rotation = tuple[Tensor, Tensor]  # cosines and sines [..., 1, 1, D], see `caesura.layers.positions.rotation`


def turned(parts: Tensor, by: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """Turned queries, turned keys, and values [B, N, Q, D] each, from one product's parts [B, Q, 3, N, D]."""
    if pick(parts.device, "rotation", parts, *by)[0] == "triton":
        from caesura.kernels.rotation_triton import turn  # here: Triton is not everywhere

        return turn(parts, *by)
    return turned_reference(parts, by)


def turned_reference(parts: Tensor, by: Rotation) -> tuple[Tensor, Tensor, Tensor]:
    """In autograd's operations."""
    # The gradient is put together at once: each slice would have one of its own, filled up with zeros.
    both, values = parts.split((2, 1), 2)
    queries, keys = rotated(both, by).unbind(2)
    return queries.transpose(1, 2), keys.transpose(1, 2), values.squeeze(2).transpose(1, 2)


def rotated(features: Tensor, by: Rotation) -> Tensor:
    """Features [..., D] turned by their places: feature i with feature i + D / 2.

    The product of two rotated vectors then depends only on the distance between their places.
    """
    cosines, sines = by
    return torch.addcmul(features * cosines, features.roll(features.shape[-1] // 2, -1), sines)
