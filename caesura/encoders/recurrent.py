"""The bidirectional GRU encoder of Bahdanau et al., of one layer or more, all of them bidirectional."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caesura.encoders.base import Encoded, Encoder
from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.depth import Depth, dropout_layer, make_orthogonal
from caesura.layers.recurrent import gru, gru_flops


class RecurrentEncoder(Encoder):
    """Bidirectional GRU layers of `hidden_size` per direction; the decoder attends to the top layer.

    The summary is the top layer's final forward and backward state, concatenated. `residual` and `norm` are
    those of `Depth`; `dropout` applies to the input of each layer, `variational` with one mask per sentence;
    `orthogonal` recurrent weights, of which each batch leaves out the share `recurrent_dropout`.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        residual: bool = False,
        norm: bool = False,
        variational: bool = False,
        orthogonal: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(hidden_size=hidden_size)
        check_shares(recurrent_dropout=recurrent_dropout)
        self.depth = Depth(2 * hidden_size, num_layers, residual, norm)
        sizes = [input_dim] + [2 * hidden_size] * (num_layers - 1)
        self.forwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        self.backwards = nn.ModuleList(nn.GRU(size, hidden_size, batch_first=True) for size in sizes)
        if orthogonal:
            make_orthogonal((*self.forwards, *self.backwards))
        self.dropout, self.recurrent_dropout = dropout_layer(dropout, variational), recurrent_dropout
        self.output_dim = self.summary_dim = 2 * hidden_size

    def forward(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        """Encode `vectors` [B, S, D]; padding is at the end."""
        states, drop = vectors, self.recurrent_dropout if self.training else 0.0
        for layer, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            inputs = self.dropout(self.depth.before(layer, states))
            states = self.depth.after(layer, states, gru(inputs, lengths, ahead, back, drop=drop))
        states = self.depth.top(states, lengths)
        if not states.shape[1]:  # no sentence has a segment
            return Encoded(states, lengths, states.new_zeros(len(states), self.output_dim))
        # The forward direction ends at the last segment, the backward direction at the first.
        last = (lengths - 1).clamp(min=0)[:, None]
        ends = torch.cat((last, torch.zeros_like(last)), 1).repeat_interleave(states.shape[2] // 2, 1)
        return Encoded(states, lengths, states.gather(1, ends[:, None]).squeeze(1))

    def flops(self, segments: int) -> int | None:
        """Two directions per layer."""
        sizes = [layer.input_size for layer in self.forwards if isinstance(layer, nn.GRU)]
        return segments * sum(2 * gru_flops(size, self.output_dim // 2) for size in sizes)
