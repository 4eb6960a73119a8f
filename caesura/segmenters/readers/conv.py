"""Convolutions of several widths and highway layers (Lee, Cho & Hofmann 2017, 1610.03017).

Their max-pooling with a stride is left out: the cutter and the pooling do that work here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
from caesura.layers.masks import positions_mask
from caesura.segmenters.parts import Reader
from caesura.segmenters.readers.lookup import Lookup

FILTERS = (100, 100, 125, 125, 150, 150, 150, 150)  # of widths 1 to 8; the paper has twice as many of each
CARRY = -2.0  # the initial bias of a highway layer's gate: at first it passes most of its input on


class Conv(Lookup):
    """Filters of widths 1, 2, ... with ReLU over embeddings, side by side, then highway layers.

    `filters` lists the number of filters of each width (None: FILTERS); the size of a state is their sum.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        filters: list[int] | None = None,
        highway_layers: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocab_size, embedding_dim, dropout)
        numbers = FILTERS if filters is None else filters
        if not numbers:
            raise ValueError("filters must list the number of filters of each width, at least one, not []")
        for number in numbers:
            check_sizes(filters=number)
        if highway_layers < 0:
            raise ValueError(f"highway_layers must be at least 0, not {highway_layers}")
        sizes = [(width * embedding_dim, number) for width, number in enumerate(numbers, 1)]
        self.filters = nn.ModuleList(nn.Linear(*size) for size in sizes)
        self.output_dim, self.weights = sum(numbers), sum(width * number for width, number in sizes)
        self.highway = nn.ModuleList(Highway(self.output_dim) for _ in range(highway_layers))

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, sum(filters)]."""
        mask = positions_mask(lengths, symbols.shape[1])
        widest, D = len(self.filters), self.embedding.embedding_dim
        around = windows(super().forward(symbols, lengths), widest)
        parts = []
        for width, unit in enumerate(self.filters, 1):
            # A filter of even width sees one symbol more to the right than to the left.
            begin = (widest - 1) // 2 - (width - 1) // 2
            parts.append(unit(around[..., begin * D : (begin + width) * D]))
        states = torch.relu(torch.cat(parts, 2))
        for layer in self.highway:
            states = layer(states)
        return states.masked_fill(~mask[..., None], 0)

    resume = Reader.resume  # it reads whole sentences only

    def whole_only(self) -> str:
        """Its windows are centred."""
        return "reader conv sees the symbols after each one as well"

    def flops(self, symbols: int) -> int:
        """One product per width, and two per highway layer."""
        return 2 * symbols * (self.weights + 2 * len(self.highway) * self.output_dim**2)


class Highway(nn.Module):
    """g * ReLU(W x + b) + (1 - g) * x with a gate g = sigmoid(W' x + b') (Srivastava et al. 2015)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(size, size), nn.Linear(size, size)
        nn.init.constant_(self.gate.bias, CARRY)

    def forward(self, states: Tensor) -> Tensor:
        """[..., size]."""
        share = torch.sigmoid(self.gate(states))
        return share * torch.relu(self.change(states)) + (1 - share) * states


def windows(states: Tensor, width: int) -> Tensor:
    """[B, T, width * D]: states [B, T, D] around each symbol side by side; zeros before and after the text.

    A product with it is a convolution whose sums have a fixed order, so that results repeat on every device.
    """
    size = states.shape[1]
    wider = F.pad(states, (0, 0, (width - 1) // 2, width // 2))
    return torch.cat([wider[:, shift : shift + size] for shift in range(width)], 2)
