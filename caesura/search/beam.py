"""Beam search over any decoder, batched over sentences of different length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.hypothesis import Hypothesis, length_penalty, log_probs


@torch.no_grad()
def beam_search(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    beam: int = 5,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses a sentence, best first, each of at most `limits` [B] symbols, </s> included.

    A hypothesis is finished when </s> is among the best `beam` continuations of its sentence. A sentence is
    done when it has `beam` finished ones and none that is open scores better than the worst of those. What
    is open at the limit is returned as it is, after the finished ones.
    """
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    pools: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    if len(limits) == 0:
        return pools

    def close(sentence: int, symbols: list[int], log_prob: float) -> None:
        score = log_prob / length_penalty(len(symbols), alpha, beta)
        pool = pools[sentence]
        pool.append(Hypothesis(tuple(symbols), log_prob, score))
        pool.sort(key=lambda h: (h.finished, h.score), reverse=True)
        del pool[beam:]

    alive = list(range(len(limits)))  # sentence of each row
    limit_of = limits.tolist()
    device = limits.device
    written = limits.new_full((len(alive), 1, 0), EOS)  # [B', K', t]
    totals = torch.zeros(len(alive), 1, dtype=torch.float64, device=device)  # [B', K']
    symbols = limits.new_full((len(alive), 1), BOS)
    state = decoder.start(encoded)
    for t in range(max(limit_of)):
        step, state = decoder.step(state, symbols)
        candidates, parents, choices = _best(totals[..., None] + log_probs(step.logits), 2 * beam)
        ending = (choices == EOS) & (candidates > -torch.inf)
        hits = ending[:, :beam].nonzero().tolist()
        for row, rank in hits:
            stem = written[row, parents[row, rank]].tolist()
            close(alive[row], [*stem, EOS], float(candidates[row, rank]))
        # The best continuations that go on take the beam.
        totals, order = candidates.masked_fill(choices == EOS, -torch.inf).topk(
            min(beam, candidates.shape[1]), 1, sorted=True
        )
        parents, symbols = parents.gather(1, order), choices.gather(1, order)
        rows = torch.arange(len(alive), device=device)
        written = torch.cat((written[rows[:, None], parents], symbols[..., None]), 2)
        penalty = length_penalty(t + 1, alpha, beta)
        going = [
            row
            for row, total in enumerate(totals[:, 0].tolist())
            if total > -torch.inf
            and t + 1 < limit_of[alive[row]]
            and (len(pools[alive[row]]) < beam or total / penalty > pools[alive[row]][-1].score)
        ]
        for row in set(range(len(alive))) - set(going):
            _close_open(close, alive[row], written[row], totals[row], beam - len(pools[alive[row]]))
        if not going:
            break
        if len(going) == len(alive):
            state = decoder.reorder(state, None, parents)
            continue
        kept = torch.tensor(going, device=device)
        state = decoder.reorder(state, kept, parents[kept])
        written, totals, symbols = written[kept], totals[kept], symbols[kept]
        alive = [alive[row] for row in going]
    return pools


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best `count` continuations of each sentence: scores, parents and symbols, each [B, count]."""
    flat = scores.flatten(1)
    values, order = flat.topk(min(count, flat.shape[1]), 1, sorted=True)
    return values, order // scores.shape[2], order % scores.shape[2]


def _close_open(close: Any, sentence: int, written: Tensor, totals: Tensor, places: int) -> None:
    """Fill the free places of a sentence's pool with what is still open at its limit."""
    for symbols, total in list(zip(written.tolist(), totals.tolist(), strict=True))[: max(places, 0)]:
        if total > float("-inf"):
            close(sentence, symbols, total)
