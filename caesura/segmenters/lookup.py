"""The segmenter of word, BPE, wordpiece and character models: one vector a symbol."""

from __future__ import annotations

from torch import Tensor

from caesura.segmenters.base import Cuts, Segmenter, Segments, check_sizes, embedding_table, positions_mask


class LookupSegmenter(Segmenter):
    """A table: every symbol is a segment of its own, and its embedding is the segment's vector."""

    one_each = True

    def __init__(self, vocab_size: int, embedding_dim: int) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim)
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.output_dim = embedding_dim

    def cut(self, symbols: Tensor, lengths: Tensor, state: object | None = None, final: bool = True) -> Cuts:
        """Everywhere; pieces of a sentence need no state."""
        return Cuts(symbols.shape[1], (symbols, lengths))

    def emit(self, cuts: Cuts, size: int) -> Segments:
        """Look each symbol up."""
        symbols, lengths = cuts.parts
        mask = positions_mask(lengths, symbols.shape[1])
        vectors = self.embedding(symbols).masked_fill(~mask[..., None], 0)
        return Segments(
            vectors=vectors,
            lengths=lengths,
            ends=mask,
            weights=mask.to(vectors.dtype),
            penalty=vectors.new_zeros(len(symbols)),
        )
