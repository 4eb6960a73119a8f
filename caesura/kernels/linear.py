"""A linear map by PyTorch, with a kernel of ours for the gradient of its bias."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels import pick


def linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., M] from inputs [..., D], weight [M, D] and bias [M].

    The bias's gradient is a sum over all rows, which takes PyTorch much longer than a GPU needs to read them.
    """
    if torch.is_grad_enabled() and pick(inputs.device, "linear", inputs, bias)[0] == "triton":
        from caesura.kernels.linear_triton import with_bias  # here: Triton is not everywhere

        return with_bias(F.linear(inputs, weight, bias.detach()), bias)
    return F.linear(inputs, weight, bias)
