"""A GRU layer in one direction, or in both at once: the reference, and which implementation runs.

There is no fused form with its gradient by hand: PyTorch's own GRU, one direction at a time, is one.

B sentences, S positions, N directions (1 or 2), H hidden size. The first direction reads a sentence from its
first position to its last, the second from its last to its first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.kernels import pick
from caesura.kernels.gru import gru_step


def gru_layer(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """States [B, S, N H], zero beyond a sentence's length, for each direction's W_ih x + b_ih [B, S, N, 3H].

    `lengths` [B] may be 0; `weight_hh` [N, 3H, H], `bias_hh` [N, 3H].
    """
    if pick(inputs.device, "gru_layer", inputs)[0] == "triton":
        from caesura.kernels.gru_layer_triton import layer  # here: Triton is not everywhere

        return layer(inputs, lengths, weight_hh, bias_hh)
    return gru_layer_reference(inputs, lengths, weight_hh, bias_hh)


def gru_layer_reference(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """s_t = GRU(s_{t-1}, x_t) for each direction, in autograd's operations."""
    steps = torch.arange(inputs.shape[1], device=lengths.device)
    padding = steps >= lengths[:, None]
    # Where the second direction is at each step: it mirrors a sentence and leaves padding where it is.
    mirror = torch.where(padding, steps, lengths[:, None] - 1 - steps)[..., None]
    # Padding is never read, so that not even NaN there can reach a result or a gradient.
    ahead, *back = inputs.masked_fill(padding[..., None, None], 0).unbind(2)
    x = torch.stack((ahead, *(part.gather(1, mirror.expand_as(part)) for part in back)))
    s = x.new_zeros(len(x), len(lengths), weight_hh.shape[2])
    states = []
    # unbind: its gradient is one stack; that of x[:, :, t] would fill a whole [N, B, S, 3H] per step
    for x_t in x.unbind(2):
        s = gru_step(x_t, torch.baddbmm(bias_hh[:, None], s, weight_hh.transpose(1, 2)), s)
        states.append(s)
    ahead, *back = torch.stack(states, 2)
    placed = [part.gather(1, mirror.expand_as(part)) for part in back]
    return torch.cat((ahead, *placed), 2).masked_fill(padding[..., None], 0)
