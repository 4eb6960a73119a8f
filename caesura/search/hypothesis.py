"""The result of every search, and its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS, PAD
from caesura.kernels.precision import full


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A target side that a search has written."""

    symbols: tuple[int, ...]  # </s> included where the search wrote it
    log_prob: float  # natural logarithm of its probability
    score: float  # ranks hypotheses: log_prob over the length penalty

    @property
    def finished(self) -> bool:
        """Whether it ends in </s>; otherwise it ran into the length limit."""
        return self.symbols[-1:] == (EOS,)


L = TypeVar("L", int, Tensor)


def length_penalty(length: L, alpha: float, beta: float) -> L:
    """((beta + length) / (beta + 1)) ** alpha; </s> counts (docs/paper_notes.md).

    A hypothesis of no symbols, which a limit of 0 gives, counts as one of 1: its log-probability is 0.
    """
    size = length.clamp(min=1) if isinstance(length, Tensor) else max(1, length)
    return ((beta + size) / (beta + 1)) ** alpha


def log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities of the next symbol, in float32 or better; <pad> and <s> are never written."""
    scores = torch.log_softmax(full(logits), -1)
    for never in (PAD, BOS):  # one by one: a list of indices would be copied to the device
        scores[..., never] = -torch.inf
    return scores
