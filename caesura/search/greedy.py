"""Greedy search, and the walk that it shares with sampling: one hypothesis per sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.hypothesis import Hypothesis, length_penalty
from caesura.search.rounds import Check, Rule, Standing, run


@dataclass(frozen=True)
class Walk(Standing):
    """One hypothesis per sentence."""

    totals: Tensor  # [B] its log-probability, in float64


W = TypeVar("W", bound=Walk)


@dataclass(frozen=True)
class MostProbable:
    """The most probable next symbol, always; of equal ones the first."""

    width: ClassVar[int] = 1

    def __call__(self, scores: Tensor, progress: Walk) -> tuple[Walk, None]:
        """One symbol further."""
        return written(scores, progress, scores.argmax(2)), None


def greedy(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    check: Check | None = None,
) -> list[Hypothesis]:
    """The most probable next symbol, always; at most `limits` [B] symbols, </s> included."""
    return walk(decoder, encoded, Walk(*begin(limits)), MostProbable(), alpha, beta, check)


def begin(limits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first fields of a new `Walk`."""
    symbols, nothing = limits.new_full((len(limits), 1), BOS), torch.zeros_like(limits)
    return symbols, nothing, limits, nothing.double()


def written(scores: Tensor, progress: W, symbols: Tensor) -> W:
    """The progress after `symbols` [B, 1] were chosen by `scores` [B, 1, V]."""
    going = progress.left > 0
    gained = scores[:, 0].gather(1, symbols).squeeze(1).where(going, 0.0)
    return replace(
        progress,
        symbols=symbols,
        length=progress.length + going,
        left=(progress.left - 1).clamp(min=0) * (symbols[:, 0] != EOS),
        totals=progress.totals + gained,
    )


def walk(
    decoder: Decoder[Any],
    encoded: Encoded,
    progress: W,
    rule: Rule[W],
    alpha: float = 1.0,
    beta: float = 0.0,
    check: Check | None = None,
) -> list[Hypothesis]:
    """Write one hypothesis per sentence by `rule`."""
    progress, symbols, _ = run(decoder, encoded, progress, rule, check)
    texts = symbols.squeeze(2).T.contiguous().cpu().numpy()
    hypotheses = []
    for text, length, total in zip(texts, progress.length.tolist(), progress.totals.tolist(), strict=True):
        score = total / length_penalty(length, alpha, beta)
        hypotheses.append(Hypothesis(tuple(text[:length].tolist()), total, score))
    return hypotheses
