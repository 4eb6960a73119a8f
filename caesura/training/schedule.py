"""The learning rate, the end of training, and the share of fed symbols that the model draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from caesura.config import Training

Verdict = Literal["best", "wait", "halve", "stop"]


@dataclass
class HalveAndStop:
    """Lower the rate after `patience` validations without a new best; stop at the `max_halvings`-th in a row.

    A new best resets both counts; patience starts again after a halving; the rate never rises. Where there is
    no end to patience (None), nothing is lowered and nothing stopped.
    """

    patience: int | None
    max_halvings: int
    best: float | None = None
    waited: int = 0
    halvings: int = 0
    best_chrf: float | None = None  # of the best; None: of a checkpoint that has none, and no tie is better

    def update(self, bleu: float, chrf: float) -> Verdict:
        """Judge one validation: BLEU decides, and chrF where BLEU is exactly that of the best.

        So BLEU's first zeros count as progress where chrF rises; a tie in both is not a new best.
        """
        tie_won = bleu == self.best and self.best_chrf is not None and chrf > self.best_chrf
        if self.best is None or bleu > self.best or tie_won:
            self.best, self.best_chrf, self.waited, self.halvings = bleu, chrf, 0, 0
            return "best"
        self.waited += 1
        if self.patience is None or self.waited < self.patience:
            return "wait"
        self.waited = 0
        self.halvings += 1
        return "stop" if self.stopped else "halve"

    @property
    def improved(self) -> bool:
        """Whether the last verdict was a new best."""
        return self.best is not None and not self.waited and not self.halvings

    @property
    def stopped(self) -> bool:
        """Whether the last verdict was to stop."""
        return self.halvings >= self.max_halvings


def bound_reached(settings: Training, update: int, epoch: int) -> str:
    """The upper bound that so many updates and epochs have reached; "" if they have reached none."""
    if settings.updates is not None and update >= settings.updates:
        return f"{settings.updates} updates"
    if settings.epochs is not None and epoch >= settings.epochs:
        return f"{settings.epochs} epochs"
    return ""


def rate_at(settings: Training, rate: float, update: int) -> float:
    """Adam's rate for the update that follows `update` others.

    It rises to `rate` at the `warmup`-th update and stays there. With decay, it falls from there: evenly, to
    0 after the last update, or with the inverse square root of the number of updates.
    """
    warmup, number = settings.warmup, update + 1
    if number <= warmup:
        return rate * (number / warmup)
    if settings.decay == "inverse-sqrt":
        return rate * math.sqrt(warmup / number)
    if settings.decay == "linear" and settings.updates is not None:
        return rate * (max(0, settings.updates - update) / (settings.updates - warmup))
    return rate


def sampled_share(settings: Training, update: int) -> float:
    """The probability with which a target symbol is drawn: from 0 to `sampling` in `sampling_updates`."""
    done = min(1.0, update / settings.sampling_updates)
    if settings.sampling_schedule == "exponential":  # Bengio et al.'s k ** i for the reference, 1% at the end
        done = (1 - 0.01**done) / 0.99
    elif settings.sampling_schedule == "sigmoid":  # slow, fast, slow
        low, high = (1 / (1 + math.exp(-x)) for x in (-5, 5))
        done = (1 / (1 + math.exp(5 - 10 * done)) - low) / (high - low)
    return settings.sampling * done
