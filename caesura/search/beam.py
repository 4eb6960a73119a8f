"""Beam search over any decoder, batched over sentences of different length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.hypothesis import Hypothesis, length_penalty
from caesura.search.rounds import Check, Standing, run

GROUP, SMALL = 64, 2048  # symbols; a vocabulary that is not small is searched in groups


@dataclass(frozen=True)
class Beams(Standing):
    """K open hypotheses per sentence, best first, and up to K finished ones, best first; sums in float64."""

    totals: Tensor  # [B, K]     log-probabilities of open hypotheses; -inf: none
    scores: Tensor  # [B, K]     ranks the finished ones; -inf: a free place
    log_probs: Tensor  # [B, K]  of the finished ones
    ends: Tensor  # [B, K]       of the finished ones: K * symbols before </s> + place of the last in the beam


@dataclass(frozen=True)
class Widest:
    """The best `width` continuations of a sentence go on."""

    width: int
    alpha: float
    beta: float

    def __call__(self, scores: Tensor, progress: Beams) -> tuple[Beams, Tensor]:
        """One symbol further."""
        K, going = self.width, progress.left > 0
        candidates, parents, choices = _best(progress.totals, scores, 2 * K)
        length = progress.length + going
        penalty = length_penalty(length.double(), self.alpha, self.beta)[:, None]
        ending = choices == EOS
        closing = ending[:, :K] & going[:, None] & (candidates[:, :K] > -torch.inf)
        closed = (candidates[:, :K] / penalty).where(closing, -torch.inf)
        pool, order = torch.cat((progress.scores, closed), 1).sort(dim=1, descending=True, stable=True)
        order = order[:, :K]  # at a tie, the earlier one keeps its place
        ends = K * progress.length[:, None] + parents[:, :K]
        # Each hypothesis ends once, so at least K of the 2 K candidates go on.
        on = ending.byte().sort(dim=1, stable=True).indices[:, :K]
        totals, parents = candidates.gather(1, on), parents.gather(1, on)
        may_improve = totals[:, 0] / penalty[:, 0] > pool[:, K - 1]
        progress = replace(
            progress,
            symbols=choices.gather(1, on),
            length=length,
            left=(progress.left - 1).clamp(min=0) * may_improve,
            totals=totals.where(going[:, None], progress.totals),
            scores=pool[:, :K],
            log_probs=torch.cat((progress.log_probs, candidates[:, :K]), 1).gather(1, order),
            ends=torch.cat((progress.ends, ends), 1).gather(1, order),
        )
        return progress, parents


def beam_search(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    beam: int = 5,
    alpha: float = 1.0,
    beta: float = 0.0,
    check: Check | None = None,
) -> list[list[Hypothesis]]:
    """Up to `beam` hypotheses per sentence, best first, each of at most `limits` [B] symbols, </s> included.

    A hypothesis is finished when </s> is among the best `beam` continuations of its sentence. A sentence is
    done when it has `beam` finished ones and none that is open scores better, at its present length, than
    the worst of those. Open hypotheses at the limit are returned as they are, after the finished ones.
    """
    if beam < 1:
        raise ValueError(f"beam must be at least 1, not {beam}")
    nothing = torch.zeros_like(limits)
    free = torch.full((len(limits), beam), -torch.inf, dtype=torch.float64, device=limits.device)
    first = free.clone()
    first[:, 0] = 0.0
    symbols, ends = (limits.new_full(free.shape, value) for value in (BOS, 0))
    progress = Beams(symbols, nothing, limits, first, free, torch.zeros_like(free), ends)
    progress, symbols, parents = run(decoder, encoded, progress, Widest(beam, alpha, beta), check)
    return [] if parents is None else _hypotheses(progress, symbols, parents, alpha, beta)


def _best(totals: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best `count` sums of `totals` [B, K] and `scores` [B, K, V] per sentence, with parents and symbols.

    They are compared without the last bits of float64, in whose place stands the index: equal ones rank by
    hypothesis, then by symbol, on every device.
    """
    (_, K, V), device = scores.shape, scores.device
    # Of numbers that are not positive, the bits without the sign are the larger the smaller the number.
    last, low = torch.iinfo(torch.int64).max, (1 << (K * V - 1).bit_length()) - 1

    def first(sums: Tensor, index: Tensor, there: Tensor | None = None) -> Tensor:
        """[B, count] of the `index` [B, N], by `sums` of this shape."""
        keys = (sums.view(torch.int64) & (last - low)) | index
        keys = keys if there is None else keys.where(there, last)
        return keys.topk(count, 1, largest=False, sorted=True).values & low

    if V <= SMALL:
        sums = (totals[..., None] + scores).flatten(1)
        order = first(sums, torch.arange(K * V, device=device))
        return sums.gather(1, order), order // V, order % V
    # They are in the `count` groups of symbols whose best are the best.
    tops = _tops(scores)
    G = tops.shape[2]
    groups = first((totals[..., None] + tops).flatten(1), torch.arange(K * G, device=device))
    symbols = (groups % G * GROUP)[..., None] + torch.arange(GROUP, device=device)
    index = ((groups // G * V)[..., None] + symbols.clamp(max=V - 1)).flatten(1)
    order = first(_sums(totals, scores, index), index, (symbols < V).flatten(1))
    return _sums(totals, scores, order), order // V, order % V


def _tops(scores: Tensor) -> Tensor:
    """[B, K, G]: the best of each group of symbols; the last group may be smaller."""
    whole = scores.shape[2] // GROUP * GROUP
    parts = [scores[..., :whole].unflatten(2, (-1, GROUP)).amax(3)]
    if whole < scores.shape[2]:
        parts.append(scores[..., whole:].amax(2, keepdim=True))
    return torch.cat(parts, 2)


def _sums(totals: Tensor, scores: Tensor, index: Tensor) -> Tensor:
    """[B, N] of totals and scores, by the `index` [B, N] of hypothesis and symbol."""
    return totals.gather(1, index // scores.shape[2]) + scores.flatten(1).gather(1, index)


def _hypotheses(
    progress: Beams, symbols: Tensor, parents: Tensor, alpha: float, beta: float
) -> list[list[Hypothesis]]:
    """The finished hypotheses, then open ones as far as there is room; `symbols`, `parents` [U, B, K]."""
    K = progress.totals.shape[1]
    finished = progress.scores > -torch.inf
    totals, places = progress.totals.sort(dim=1, descending=True, stable=True)
    room = torch.arange(K, device=totals.device) - finished.sum(1, keepdim=True)
    places, totals = places.gather(1, room.clamp(min=0)), totals.gather(1, room.clamp(min=0))
    length = progress.length[:, None]
    scores = totals / length_penalty(length.double(), alpha, beta)
    ends = progress.ends.where(finished, K * length + places)
    texts = _texts(symbols, parents, ends).flatten(0, 1).cpu().numpy()
    columns = (
        ends // K,
        finished,
        progress.log_probs.where(finished, totals),
        progress.scores.where(finished, scores),
    )
    hypotheses: list[list[Hypothesis]] = [[] for _ in range(len(finished))]
    for i, (size, ended, log_prob, score) in enumerate(
        zip(*(column.flatten().tolist() for column in columns), strict=True)
    ):
        if log_prob > -torch.inf:
            text = texts[i, :size].tolist()
            hypotheses[i // K].append(Hypothesis((*text, EOS) if ended else tuple(text), log_prob, score))
    return hypotheses


def _texts(symbols: Tensor, parents: Tensor, ends: Tensor) -> Tensor:
    """[B, K, U]: the symbols that led to `ends` [B, K], traced back from parent to parent."""
    sizes, places = ends // ends.shape[1], ends % ends.shape[1]
    texts = []
    for t in range(len(symbols) - 1, -1, -1):
        texts.append(symbols[t].gather(1, places))
        places = parents[t].gather(1, places).where(t < sizes, places)
    return torch.stack(texts[::-1], 2)
