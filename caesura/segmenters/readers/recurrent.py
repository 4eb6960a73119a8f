"""Readers that know what came before a symbol (gru), or also what comes after it (bigru)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_sizes
from caesura.layers.masks import positions_mask
from caesura.layers.recurrent import gru, gru_flops
from caesura.segmenters.readers.lookup import Lookup


class Gru(Lookup):
    """A GRU of `size` that reads from left to right."""

    def __init__(self, vocab_size: int, embedding_dim: int, size: int, dropout: float = 0.0) -> None:
        super().__init__(vocab_size, embedding_dim, dropout)
        check_sizes(size=size)
        self.ahead = nn.GRU(embedding_dim, size, batch_first=True)
        self.output_dim = size

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, size]."""
        return self._read(symbols, lengths)

    def _read(self, symbols: Tensor, lengths: Tensor, back: nn.GRU | None = None) -> Tensor:
        if self.training and self.dropout.p:
            return gru(Lookup.forward(self, symbols, lengths), lengths, self.ahead, back)
        return gru(self.embedding.weight, lengths, self.ahead, back, symbols)

    def resume(self, symbols: Tensor, lengths: Tensor, state: object | None) -> tuple[Tensor, object]:
        """Go on from the state [B, size] after each sentence's last symbol so far."""
        before = (
            state
            if isinstance(state, Tensor)
            else self.embedding.weight.new_zeros(len(symbols), self.output_dim)
        )
        if not symbols.numel():
            return before.new_zeros(*symbols.shape, self.output_dim), before
        states, _ = self.ahead(Lookup.forward(self, symbols, lengths), before[None])
        at = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.output_dim)
        after = torch.where((lengths > 0)[:, None], states.gather(1, at).squeeze(1), before)
        mask = positions_mask(lengths, symbols.shape[1])
        return states.masked_fill(~mask[..., None], 0), after

    def flops(self, symbols: int) -> int:
        """One step per symbol."""
        return symbols * gru_flops(self.embedding.embedding_dim, self.ahead.hidden_size)


class BiGru(Gru):
    """Two GRUs of `size` each, one in each direction; a state is both of theirs, 2 * size."""

    def __init__(self, vocab_size: int, embedding_dim: int, size: int, dropout: float = 0.0) -> None:
        super().__init__(vocab_size, embedding_dim, size, dropout)
        self.back = nn.GRU(embedding_dim, size, batch_first=True)
        self.output_dim = 2 * size

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, 2 * size]."""
        return self._read(symbols, lengths, self.back)

    def whole_only(self) -> str:
        """It reads from the end too."""
        return "reader bigru reads from the end as well"

    def flops(self, symbols: int) -> int:
        """Two steps per symbol."""
        return 2 * super().flops(symbols)
