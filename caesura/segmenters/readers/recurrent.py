"""Readers that know what came before a symbol (gru), or also what comes after it (bigru)."""

from __future__ import annotations

from itertools import zip_longest

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.depth import Depth, dropout_layer, make_orthogonal
from caesura.layers.masks import positions_mask
from caesura.layers.recurrent import gru, gru_flops
from caesura.segmenters.readers.lookup import Lookup


class Gru(Lookup):
    """`num_layers` GRUs of `size` that read from left to right; options as in `RecurrentEncoder`."""

    directions = 1

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        size: int,
        dropout: float = 0.0,
        num_layers: int = 1,
        residual: bool = False,
        norm: bool = False,
        variational: bool = False,
        orthogonal: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(vocab_size, embedding_dim, dropout)
        check_sizes(size=size)
        check_shares(recurrent_dropout=recurrent_dropout)
        self.dropout, self.recurrent_dropout = dropout_layer(dropout, variational), recurrent_dropout
        self.ahead = nn.GRU(embedding_dim, size, batch_first=True)
        self.back = nn.GRU(embedding_dim, size, batch_first=True) if self.directions == 2 else None
        self.output_dim = self.directions * size
        self.depth = Depth(self.output_dim, num_layers, residual, norm)
        above = [self.output_dim] * (num_layers - 1)
        self.above = nn.ModuleList(nn.GRU(width, size, batch_first=True) for width in above)
        above = [] if self.back is None else above
        self.above_back = nn.ModuleList(nn.GRU(width, size, batch_first=True) for width in above)
        if orthogonal:
            both = (self.ahead, self.back, *self.above, *self.above_back)
            make_orthogonal(layer for layer in both if layer is not None)

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, output_dim]."""
        drop = self.recurrent_dropout if self.training else 0.0
        if self.training and self.dropout.p:
            states = gru(Lookup.forward(self, symbols, lengths), lengths, self.ahead, self.back, drop=drop)
        else:
            states = gru(self.embedding.weight, lengths, self.ahead, self.back, symbols, drop)
        for layer, (ahead, back) in enumerate(zip_longest(self.above, self.above_back), 1):
            inputs = self.dropout(self.depth.before(layer, states))
            states = self.depth.after(layer, states, gru(inputs, lengths, ahead, back, drop=drop))
        return self.depth.top(states, lengths)

    def resume(self, symbols: Tensor, lengths: Tensor, state: object | None) -> tuple[Tensor, object]:
        """Go on from each layer's state [B, size] after each sentence's last symbol so far."""
        before = state if isinstance(state, tuple) else (None,) * (1 + len(self.above))
        states, after = _resumed(self.ahead, Lookup.forward(self, symbols, lengths), lengths, before[0])
        reached = [after]
        for layer, (ahead, at) in enumerate(zip(self.above, before[1:], strict=True), 1):
            inputs = self.dropout(self.depth.before(layer, states))
            made, after = _resumed(ahead, inputs, lengths, at)
            states = self.depth.after(layer, states, made)
            reached.append(after)
        return self.depth.top(states, lengths), tuple(reached)

    def flops(self, symbols: int) -> int:
        """One step per symbol, layer and direction."""
        size = self.ahead.hidden_size
        above = len(self.above) * gru_flops(self.output_dim, size)
        return symbols * self.directions * (gru_flops(self.embedding.embedding_dim, size) + above)


class BiGru(Gru):
    """Two GRUs of `size` per layer, one in each direction; a state is both of theirs, 2 * size."""

    directions = 2

    def whole_only(self) -> str:
        """It reads from the end too."""
        return "reader bigru reads from the end as well"


def _resumed(
    layer: nn.Module, inputs: Tensor, lengths: Tensor, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The GRU's states [B, T, H] of a piece, and its state [B, H] after the piece."""
    size = layer.get_parameter("weight_hh_l0").shape[1]
    if before is None:
        before = inputs.new_zeros(len(inputs), size)
    if not inputs.shape[:2].numel():
        return inputs.new_zeros(*inputs.shape[:2], size), before
    states, _ = layer(inputs, before[None])
    at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, size)
    after = torch.where((lengths > 0)[:, None], states.gather(1, at).squeeze(1), before)
    return states.masked_fill(~positions_mask(lengths, states.shape[1])[..., None], 0), after
