"""Greedy search, and the walk that it shares with sampling: one hypothesis a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.hypothesis import Hypothesis, length_penalty, log_probs

# (log-probabilities [B', V], sentences [B'], position) -> symbols [B']
Choice = Callable[[Tensor, Tensor, int], Tensor]


def greedy(
    decoder: Decoder[Any], encoded: Encoded, limits: Tensor, alpha: float = 1.0, beta: float = 0.0
) -> list[Hypothesis]:
    """The most probable next symbol, always; at most `limits` [B] symbols, </s> included."""
    return walk(decoder, encoded, limits, lambda scores, _, __: scores.argmax(1), alpha, beta)


@torch.no_grad()
def walk(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    choose: Choice,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> list[Hypothesis]:
    """Write one hypothesis a sentence by `choose`; finished sentences leave the batch."""
    if len(limits) == 0:
        return []
    longest = int(limits.max())
    written = limits.new_full((len(limits), longest), EOS)
    totals = torch.zeros(len(limits), dtype=torch.float64, device=limits.device)
    alive = torch.arange(len(limits), device=limits.device)
    symbols = limits.new_full((len(limits),), BOS)
    state = decoder.start(encoded)
    for t in range(longest):
        step, state = decoder.step(state, symbols[:, None])
        scores = log_probs(step.logits[:, 0])
        symbols = choose(scores, alive, t)
        written[alive, t] = symbols
        totals[alive] += scores.gather(1, symbols[:, None]).squeeze(1)
        going = ((symbols != EOS) & (t + 1 < limits[alive])).nonzero().squeeze(1)
        if len(going) == 0:
            break
        if len(going) < len(alive):  # nothing moves where all go on
            state = decoder.reorder(state, going, going.new_zeros(len(going), 1))
            alive, symbols = alive[going], symbols[going]
    rows = zip(written.tolist(), totals.tolist(), limits.tolist(), strict=True)
    found = []
    for row, total, limit in rows:
        symbols = row[: row.index(EOS) + 1] if EOS in row[:limit] else row[:limit]
        score = total / length_penalty(len(symbols), alpha, beta)
        found.append(Hypothesis(tuple(symbols), total, score))
    return found
