"""A bidirectional GRU layer, both directions at once: the reference, and which implementation runs.

There is no fused form with its gradient by hand: PyTorch's own GRU, a direction at a time, is one.

B sentences, S segments, H hidden size. The first of each pair of directions reads a sentence's segments from
its first to its last, the second from its last to its first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.kernels import pick
from caesura.kernels.gru import gru_step


def gru_layer(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """States [B, S, 2H], zero beyond a sentence's length, for both directions' W_ih x + b_ih [B, S, 2, 3H].

    `lengths` [B] may be 0; `weight_hh` [2, 3H, H], `bias_hh` [2, 3H].
    """
    if pick(inputs.device, "gru_layer", inputs)[0] == "triton":
        from caesura.kernels.gru_layer_triton import layer  # here: Triton is not everywhere

        return layer(inputs, lengths, weight_hh, bias_hh)
    return gru_layer_reference(inputs, lengths, weight_hh, bias_hh)


def gru_layer_reference(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """s_t = GRU(s_{t-1}, x_t) for both directions, in autograd's operations."""
    steps = torch.arange(inputs.shape[1], device=lengths.device)
    padding = steps >= lengths[:, None]
    # Where the second direction is at each step: it mirrors a sentence and leaves padding where it is.
    mirror = torch.where(padding, steps, lengths[:, None] - 1 - steps)[..., None]
    # What stands in padding is never read, so that not even NaN there can reach a result or a gradient.
    ahead, back = inputs.masked_fill(padding[..., None, None], 0).unbind(2)
    x = torch.stack((ahead, back.gather(1, mirror.expand_as(back))))
    s = x.new_zeros(2, len(lengths), weight_hh.shape[2])
    states = []
    # unbind: its gradient is one stack; that of x[:, :, t] would fill a whole [2, B, S, 3H] a step
    for x_t in x.unbind(2):
        s = gru_step(x_t, torch.baddbmm(bias_hh[:, None], s, weight_hh.transpose(1, 2)), s)
        states.append(s)
    ahead, back = torch.stack(states, 2)
    return torch.cat((ahead, back.gather(1, mirror.expand_as(back))), 2).masked_fill(padding[..., None], 0)
