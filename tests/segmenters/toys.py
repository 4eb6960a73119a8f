"""A reader, a cutter and a pooling from outside the package, as CONTRIBUTING.md shows them."""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
from caesura.layers.masks import positions_mask
from caesura.segmenters.base import Cuts
from caesura.segmenters.figures import Figure
from caesura.segmenters.parts import CUTTERS, POOLINGS, READERS, Cutter, Gaps, Pooling, Reader, Reading
from caesura.segmenters.spans import even_weights, first_and_last, slots


class Bigrams(Reader):
    """Each symbol's embedding beside that of the symbol before it."""

    def __init__(self, vocab_size: int, embedding_dim: int) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim)
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.output_dim = 2 * embedding_dim

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, 2 * embedding_dim]."""
        embedded = self.embedding(symbols)
        both = torch.cat((F.pad(embedded, (0, 0, 1, 0))[:, :-1], embedded), 2)
        return both.masked_fill(~positions_mask(lengths, symbols.shape[1])[..., None], 0)


SCORE = Figure(
    name="score",
    heading="mean score",
    unit="per character",
    definition="mean of the characters' scores; a segment ends at a character whose score is above 0.5",
    count=lambda cuts, lengths: (cuts.scores.sum(1), (lengths - 1).clamp(min=0)),
)


class Threshold(Cutter):
    """A segment ends where a score is above one half; a loss pulls the mean score towards 1 / length."""

    figures = (SCORE,)
    losses = ("distance",)
    loss_weights = MappingProxyType({"distance": 0.5})

    def __init__(self, input_dim: int, length: float = 4.0) -> None:
        super().__init__()
        check_sizes(length=length)
        self.unit, self.length = nn.Linear(input_dim, 1), length

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Nothing in the translation teaches it: what it gives to a segment are plain means."""
        scores = torch.sigmoid(self.unit(reading.states)).squeeze(2) * reading.text
        ends = gaps.settle(scores > 0.5)
        mean = scores.sum(1) / reading.characters.clamp(min=1)
        return Cuts(
            ends=ends,
            weights=even_weights(ends, reading.mask, scores.dtype),
            scores=scores,
            losses={"distance": (mean - 1 / self.length).square() * (reading.characters > 0)},
        )


class Edges(Pooling):
    """The mean of a segment's first and last state."""

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """[B, size, D]."""
        first, _ = first_and_last(cuts.ends)
        both = (states + states.gather(1, first[..., None].expand_as(states))) / 2
        k = torch.arange(size, device=states.device)[:, None]
        chosen = (slots(cuts.ends)[:, None] == k) & cuts.ends[:, None]  # [B, size, T]
        return chosen.to(states.dtype) @ both


READERS["bigrams"], CUTTERS["threshold"], POOLINGS["edges"] = Bigrams, Threshold, Edges
