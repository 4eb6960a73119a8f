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
    done when it has `beam` finished ones and none that is open scores better, at its present length, than
    the worst of those. What is open at the limit is returned as it is, after the finished ones.
    """
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    pools = [_Pool(beam, alpha, beta, limit) for limit in limits.tolist()]
    alive = pools  # of each row
    written = limits.new_full((len(pools), 1, 0), EOS)  # [B', K', t]
    totals = torch.zeros(len(pools), 1, dtype=torch.float64, device=limits.device)  # [B', K']
    symbols = limits.new_full((len(pools), 1), BOS)
    state = decoder.start(encoded) if pools else None
    while alive:
        step, state = decoder.step(state, symbols)
        candidates, parents, choices = _best(totals[..., None] + log_probs(step.logits), 2 * beam)
        ending = (choices == EOS) & (candidates > -torch.inf)
        for row, rank in ending[:, :beam].nonzero().tolist():
            stem = written[row, parents[row, rank]].tolist()
            alive[row].add([*stem, EOS], float(candidates[row, rank]))
        # The best continuations that go on take the beam.
        going = candidates.masked_fill(choices == EOS, -torch.inf)
        totals, order = going.topk(min(beam, going.shape[1]), 1, sorted=True)
        parents, symbols = parents.gather(1, order), choices.gather(1, order)
        rows = torch.arange(len(alive), device=limits.device)[:, None]
        written = torch.cat((written[rows, parents], symbols[..., None]), 2)
        length, best = written.shape[2], totals[:, 0].tolist()
        kept = [row for row, pool in enumerate(alive) if pool.may_improve(best[row], length)]
        for row in set(range(len(alive))).difference(kept):
            alive[row].fill(written[row].tolist(), totals[row].tolist())
        if len(kept) == len(alive):
            state = decoder.reorder(state, None, parents)
        elif kept:
            chosen = torch.tensor(kept, device=limits.device)
            state = decoder.reorder(state, chosen, parents[chosen])
            written, totals, symbols = written[chosen], totals[chosen], symbols[chosen]
        alive = [alive[row] for row in kept]
    return [pool.hypotheses for pool in pools]


class _Pool:
    """The hypotheses that one sentence has closed: at most `beam`, best first."""

    def __init__(self, beam: int, alpha: float, beta: float, limit: int) -> None:
        self.beam, self.alpha, self.beta, self.limit = beam, alpha, beta, limit
        self.hypotheses: list[Hypothesis] = []

    def add(self, symbols: list[int], log_prob: float) -> None:
        score = log_prob / length_penalty(len(symbols), self.alpha, self.beta)
        self.hypotheses.append(Hypothesis(tuple(symbols), log_prob, score))
        self.hypotheses.sort(key=lambda h: (h.finished, h.score), reverse=True)
        del self.hypotheses[self.beam :]

    def may_improve(self, log_prob: float, length: int) -> bool:
        """Whether the best open hypothesis is worth going on with."""
        if length >= self.limit or log_prob == float("-inf"):
            return False
        score = log_prob / length_penalty(length, self.alpha, self.beta)
        return len(self.hypotheses) < self.beam or score > self.hypotheses[-1].score

    def fill(self, written: list[list[int]], totals: list[float]) -> None:
        """Take what is still open into the free places."""
        places = self.beam - len(self.hypotheses)
        for symbols, total in list(zip(written, totals, strict=True))[:places]:
            if total > float("-inf"):
                self.add(symbols, total)


def _best(scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best `count` continuations of each sentence: scores, parents and symbols, each [B, count]."""
    flat = scores.flatten(1)
    values, order = flat.topk(min(count, flat.shape[1]), 1, sorted=True)
    return values, order // scores.shape[2], order % scores.shape[2]
