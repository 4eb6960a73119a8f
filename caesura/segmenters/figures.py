"""Figures: measurements of a cutter, which it defines once and which logs, tables and reports all show.

A figure is a ratio of two sums over sentences, so that batches, intervals of a log and whole texts are
reduced in the same way: the value is the sum of the first over the sum of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from caesura.layers.masks import positions_mask

if TYPE_CHECKING:
    from caesura.segmenters.base import Cuts

# From the cuts and the lengths [B], </s> included: what to sum [B], and what to divide the sum by [B].
Count = Callable[["Cuts", Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Figure:
    """One figure: its key in logs, how it is shown, what it means, and how it is counted."""

    name: str
    heading: str
    unit: str
    definition: str
    count: Count
    format: str = ".3f"
    headline: bool = False  # whether it is worth a place in the one line that a validation prints

    def shown(self, value: float) -> str:
        """The value as text."""
        return format(value, self.format)


def sums(figures: Iterable[Figure], cuts: Cuts, lengths: Tensor, real: Tensor) -> Tensor:
    """[F, 2]: the two sums of each figure over the sentences that are `real` [B], in float64."""
    parts = [part.detach().double() for figure in figures for part in figure.count(cuts, lengths)]
    if not parts:
        return real.new_zeros(0, 2, dtype=torch.float64)
    return (torch.stack(parts) * real).sum(1).view(-1, 2)


def per_sentence(
    figures: Iterable[Figure], cuts: Cuts, lengths: Tensor
) -> list[dict[str, tuple[float, float]]]:
    """For each sentence, by name, the two numbers that a figure sums up."""
    rows: list[dict[str, tuple[float, float]]] = [{} for _ in range(len(lengths))]
    for figure in figures:
        pairs = torch.stack([part.detach().double() for part in figure.count(cuts, lengths)], 1)
        for row, (above, below) in zip(rows, pairs.tolist(), strict=True):
            row[figure.name] = above, below
    return rows


class FigureSums:
    """Adds up what `per_sentence` found."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, figures: Mapping[str, tuple[float, float]]) -> None:
        """Add the figures of one more sentence."""
        for name, (above, below) in figures.items():
            before = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = before[0] + above, before[1] + below

    def values(self) -> dict[str, float]:
        """The figures of all sentences, by name; one with nothing to count is left out."""
        return {name: ratio for name, sums in self._sums.items() if (ratio := value(sums)) is not None}


def value(sums: tuple[float, float]) -> float | None:
    """The ratio of the two sums; None where there was nothing to count."""
    above, below = sums
    return above / below if below else None


def _live(cuts: Cuts, lengths: Tensor) -> tuple[Tensor, Tensor]:
    assert cuts.live is not None
    text = positions_mask(lengths - 1, cuts.live.shape[1])  # </s> is not text
    return (cuts.live & text).sum(1), text.sum(1)


LIVE = Figure(
    name="live",
    heading="live",
    unit="of characters",
    definition="share of characters at which the loss reaches the cutter; at 0 nothing moves the cuts",
    count=_live,
    format=".1%",
    headline=True,
)
