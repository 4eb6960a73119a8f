"""Rotations and sinusoids tell attention where a symbol or a segment stands.

Neither has a largest position. Angles are computed in float64, so that far positions are as exact as near
ones.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from caesura.kernels.rotation import Rotation

Positions = Literal["rotary", "sinusoidal"]

LONGEST = 10_000.0  # the wavelength of the slowest angle, over 2 pi


def angles(places: Tensor, size: int) -> Tensor:
    """[..., size / 2] in float64: each place [...] times frequencies from 1 down to almost 1 / LONGEST."""
    steps = torch.arange(0, size, 2, device=places.device, dtype=torch.float64)
    return places[..., None] * torch.exp(steps * (-math.log(LONGEST) / size))


def sinusoids(places: Tensor, size: int) -> Tensor:
    """[..., size]: sines, then cosines (Vaswani et al. 2017)."""
    turned = angles(places, size)
    return torch.cat((turned.sin(), turned.cos()), -1)


def rotation(places: Tensor, size: int, dtype: torch.dtype) -> Rotation:
    """What `rotated` turns by, for heads of `size` features at places [...]."""
    turned = angles(places, size)[..., None, None, :]
    cosines, sines = turned.cos(), turned.sin()
    return torch.cat((cosines, cosines), -1).to(dtype), torch.cat((-sines, sines), -1).to(dtype)
