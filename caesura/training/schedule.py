"""When the learning rate is lowered, and when training ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["best", "wait", "halve", "stop"]


@dataclass
class HalveAndStop:
    """Lower the rate after `patience` validations without a new best; stop at the `max_halvings`-th in a row.

    A new best resets both counts; patience starts again after a halving; the rate never rises.
    """

    patience: int
    max_halvings: int
    best: float | None = None
    waited: int = 0
    halvings: int = 0

    def update(self, score: float) -> Verdict:
        """Judge one validation score; higher is better, and a tie is no new best."""
        if self.best is None or score > self.best:
            self.best, self.waited, self.halvings = score, 0, 0
            return "best"
        self.waited += 1
        if self.waited < self.patience:
            return "wait"
        self.waited = 0
        self.halvings += 1
        return "stop" if self.halvings >= self.max_halvings else "halve"
