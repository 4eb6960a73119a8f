"""The bidirectional GRU encoder of Bahdanau et al., one to six layers, all of them bidirectional."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caesura.encoders.base import Encoded, Encoder
from caesura.segmenters.base import positions_mask


class RecurrentEncoder(Encoder):
    """Bidirectional GRU layers of `hidden_size` a direction; the decoder attends to the uppermost.

    The summary is the top layer's final forward and backward state, concatenated.
    """

    def __init__(self, input_dim: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if hidden_size < 1:
            raise ValueError(f"hidden_size must be at least 1, not {hidden_size}")
        if not 1 <= num_layers <= 64:
            raise ValueError(f"num_layers must be 1 to 64, not {num_layers}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {dropout}")
        sizes = [input_dim] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.dropout = nn.Dropout(dropout)
        self.output_dim = self.summary_dim = 2 * hidden_size

    def forward(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        """Encode `vectors` [B, S, D]; padding is at the end, so the backward GRU reads mirrored sentences."""
        steps = torch.arange(vectors.shape[1], device=vectors.device)
        mirror = torch.where(positions_mask(lengths, len(steps)), lengths[:, None] - 1 - steps, steps)
        last = (lengths - 1).clamp(min=0)
        rows = torch.arange(len(lengths), device=vectors.device)
        states, summary = vectors, vectors.new_zeros(0)
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            states = self.dropout(states)
            forward_states, _ = ahead(states)
            backward_states, _ = back(_pick(states, mirror))
            summary = torch.cat((forward_states[rows, last], backward_states[rows, last]), 1)
            states = torch.cat((forward_states, _pick(backward_states, mirror)), 2)
        return Encoded(states, lengths, summary)


def _pick(states: Tensor, positions: Tensor) -> Tensor:
    """[B, S, D] in the order of `positions` [B, S]."""
    return states.gather(1, positions[..., None].expand(-1, -1, states.shape[2]))
