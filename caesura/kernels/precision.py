"""In which precision to compute."""

from __future__ import annotations

import torch
from torch import Tensor


def full(values: Tensor) -> Tensor:
    """In float32 or better, for sums and softmaxes, whatever autocast does to products."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def working_dtype(inputs: Tensor) -> torch.dtype:
    """The dtype in which products of these inputs are computed: autocast's where it is on."""
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and inputs.dtype != torch.float64:  # which autocast leaves alone
        return torch.get_autocast_dtype(device)
    return inputs.dtype
