"""Averages, with how many observations each is made of."""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH = 30  # observations, for a point to be drawn or told


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
