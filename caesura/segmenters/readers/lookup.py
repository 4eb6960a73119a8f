"""A reader without context: a table of embeddings."""

from __future__ import annotations

from torch import Tensor, nn

from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.masks import positions_mask
from caesura.segmenters.parts import Reader


class Lookup(Reader):
    """Each symbol's embedding."""

    def __init__(self, vocab_size: int, embedding_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim)
        check_shares(dropout=dropout)
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.dropout = nn.Dropout(dropout)
        self.output_dim = embedding_dim

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """Look each symbol up."""
        mask = positions_mask(lengths, symbols.shape[1])
        embedded: Tensor = self.dropout(self.embedding(symbols)).masked_fill(~mask[..., None], 0)
        return embedded

    def resume(self, symbols: Tensor, lengths: Tensor, state: object | None) -> tuple[Tensor, object]:
        """A table needs no state."""
        return self(symbols, lengths), None

    def whole_only(self) -> str | None:
        """It looks at one symbol at a time."""
        return None

    def flops(self, symbols: int) -> int:
        """Looking up is not counted."""
        return 0
