"""Linear maps between layers of different sizes."""

from __future__ import annotations

from torch import nn


def between(size: int, other: int) -> nn.Module:
    """The identity where sizes agree, else a linear map."""
    return nn.Identity() if size == other else nn.Linear(size, other)
