"""The bidirectional GRU encoder of Bahdanau et al., of one layer or more, all of them bidirectional."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.encoders.base import Encoded, Encoder
from caesura.kernels import pick
from caesura.kernels.gru_layer import gru_layer
from caesura.segmenters.base import check_shares, check_sizes, positions_mask


class RecurrentEncoder(Encoder):
    """Bidirectional GRU layers of `hidden_size` a direction; the decoder attends to the uppermost.

    The summary is the top layer's final forward and backward state, concatenated.
    """

    def __init__(self, input_dim: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(hidden_size=hidden_size)
        check_shares(dropout=dropout)
        if not 1 <= num_layers <= 64:
            raise ValueError(f"num_layers must be 1 to 64, not {num_layers}")
        sizes = [input_dim] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(dropout)
        self.output_dim = self.summary_dim = 2 * hidden_size

    def forward(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        """Encode `vectors` [B, S, D]; padding is at the end."""
        choice, _ = pick(vectors.device, "gru_layer", vectors)
        # Nothing that we tried on a CPU was faster than PyTorch's own GRU for training and translation alike,
        # and to autocast that is one operation.
        whole = choice == "reference" and torch.is_autocast_enabled(vectors.device.type)
        layer = _by_pytorch if whole or choice == "fused" else _by_kernels
        states = vectors
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            states = layer(self.dropout(states), lengths, ahead, back)
        # The forward direction ends at the last segment, the backward direction at the first.
        last = (lengths - 1).clamp(min=0)[:, None]
        ends = torch.cat((last, torch.zeros_like(last)), 1).repeat_interleave(states.shape[2] // 2, 1)
        return Encoded(states, lengths, states.gather(1, ends[:, None]).squeeze(1))


def _by_kernels(states: Tensor, lengths: Tensor, *directions: nn.Module) -> Tensor:
    """A layer with both directions at once, from one product with both input weights."""
    weight_ih, bias_ih, weight_hh, bias_hh = (
        torch.stack([direction.get_parameter(f"{name}_l0") for direction in directions])
        for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    )
    # The matrix units are fast where a row is a multiple of 16 bytes, which 620 bfloat16 are not.
    spare = -states.shape[2] % 8
    if spare:
        states, weight_ih = F.pad(states, (0, spare)), F.pad(weight_ih, (0, spare))
    inputs = F.linear(states, weight_ih.flatten(0, 1), bias_ih.flatten())
    return gru_layer(inputs.unflatten(2, (2, -1)), lengths, weight_hh, bias_hh)


def _by_pytorch(states: Tensor, lengths: Tensor, ahead: nn.Module, back: nn.Module) -> Tensor:
    """A layer with PyTorch's own GRU, a direction at a time: the backward one reads mirrored sentences."""
    steps = torch.arange(states.shape[1], device=states.device)
    mirror = torch.where(positions_mask(lengths, len(steps)), lengths[:, None] - 1 - steps, steps)
    return torch.cat((ahead(states)[0], _pick(back(_pick(states, mirror))[0], mirror)), 2)


def _pick(states: Tensor, positions: Tensor) -> Tensor:
    """[B, S, D] in the order of `positions` [B, S]."""
    return states.gather(1, positions[..., None].expand(-1, -1, states.shape[2]))
