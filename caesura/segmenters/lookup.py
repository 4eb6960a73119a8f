"""The segmenter of word, BPE, wordpiece and character models: one vector per symbol."""

from __future__ import annotations

from torch import Tensor, nn

from caesura.layers.checks import check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.masks import positions_mask
from caesura.segmenters.base import BaseSegmenter, Cuts, Draft, Segments


class LookupSegmenter(BaseSegmenter):
    """A table: every symbol, </s> too, is a segment, and its embedding is the segment's vector."""

    takes_cuts = False

    def __init__(self, vocab_size: int, embedding_dim: int) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim)
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.output_dim = embedding_dim

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """Everywhere; pieces of a sentence need no state, and cuts that are given can only agree."""
        mask = positions_mask(lengths, symbols.shape[1])
        if given is not None and bool((given < 0)[mask].any()):
            raise ValueError("a lookup segmenter cuts after every symbol: it cannot leave a cut out")
        return Draft(Cuts(mask, mask.to(self.embedding.weight.dtype), symbols.shape[1]), (symbols, lengths))

    def emit(self, draft: Draft, size: int) -> Segments:
        """Look each symbol up."""
        symbols, lengths = draft.parts
        vectors = self.embedding(symbols).masked_fill(~draft.cuts.ends[..., None], 0)
        return Segments(vectors, lengths, draft.cuts)

    def share_table(self, table: nn.Embedding) -> None:
        """It takes the place of its own."""
        (symbols, size), (others, width) = self.embedding.weight.shape, table.weight.shape
        if size != width:
            sizes = f"embedding_dim is {size} and size is {width}"
            raise ValueError(f"share needs the same sizes in segmenter and decoder: {sizes}")
        if symbols != others:
            raise ValueError(f"share needs one vocabulary for both sides, not {symbols} and {others} symbols")
        self.embedding = table

    def room(self, symbols: int) -> int:
        """As many as symbols."""
        return symbols

    def flops(self, symbols: int, segments: int) -> int:
        """Looking up is not counted."""
        return 0
