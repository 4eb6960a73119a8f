"""Which positions of a padded batch are real."""

from __future__ import annotations

import torch
from torch import Tensor


def positions_mask(lengths: Tensor, size: int) -> Tensor:
    """[B, size] bool: True on the first `lengths[b]` positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
