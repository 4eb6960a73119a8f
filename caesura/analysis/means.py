"""Averages, with how many observations each is made of."""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH = 30  # observations that a point needs to be shown


class MeanTally:
    """Adds up observations by place."""

    def __init__(self, size: int) -> None:
        self._totals, self._counts = [0.0] * size, [0] * size

    def add(self, place: int, value: float) -> None:
        """One observation at a place."""
        self._totals[place] += value
        self._counts[place] += 1

    def means(self) -> Means:
        """The averages so far."""
        pairs = zip(self._totals, self._counts, strict=True)
        return Means([total / count if count else float("nan") for total, count in pairs], self._counts)


@dataclass(frozen=True)
class Means:
    """Averages and how many observations they are made of; nan where there was none."""

    values: list[float]
    counts: list[int]

    @property
    def solid(self) -> list[float]:
        """The averages of enough observations; nan where there were too few."""
        pairs = zip(self.values, self.counts, strict=True)
        return [value if count >= ENOUGH else float("nan") for value, count in pairs]
