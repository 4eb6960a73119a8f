"""Cuts that are drawn: each gap is cut with a probability of its own (Nawrot et al. 2023).

Evaluation cuts where the probability is above a threshold. Training draws cuts and can learn from them in
four ways. B sentences, T source symbols, K cuttings of each sentence, l the logits of p.

    straight-through  Gumbel-sigmoid with a temperature, through the weights of symbols; it is biased
    score             (1/K) sum_i (L_i - mean_{j != i} L_j) grad log pi(b_i), K draws (Kool et al. 2019)
    disarm            two draws b = 1[u > 1 - p], b' = 1[u < p] of one u (Dong et al. 2020)
    self-critical     L_i - L(likeliest cuts) in place of score's difference (Rennie et al. 2017)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.masks import positions_mask
from caesura.schedules import Setting, first
from caesura.segmenters.base import Cuts
from caesura.segmenters.cutters.act import logits, temperature_knob
from caesura.segmenters.figures import LIVE, Figure
from caesura.segmenters.parts import Cutter, Gaps, Reading, ScoredText
from caesura.segmenters.rate import Kind, Rate
from caesura.segmenters.spans import even_weights, totals

Gradient = Literal["straight-through", "score", "disarm", "self-critical"]
TEMPERATURE = 0.5  # of straight-through, as in Nawrot et al.
MOST_LIKELY = 0.999  # the largest probability that training starts with


def _sureness(cuts: Cuts, lengths: Tensor) -> tuple[Tensor, Tensor]:
    assert cuts.scores is not None
    inner = positions_mask(lengths - 2, cuts.scores.shape[1])  # the gap in front of </s> is never cut
    return ((2 * cuts.scores - 1).abs() * inner).sum(1), inner.sum(1)


SURENESS = Figure(
    name="sureness",
    heading="sureness",
    unit="per gap",
    definition="mean of |2 p - 1| over the gaps that may be cut or joined; 1: nothing is left to chance",
    count=_sureness,
)


class Bernoulli(Cutter):
    """Each gap is cut with a learned probability: at random in training, above a threshold in evaluation.

    `cuttings`: how many cuttings of each sentence training compares; straight-through has one, disarm two.
    `threshold`: None sets it on training text, so that evaluation cuts as often as the rate asks or, without
    a rate, as often as training does. `start`: characters per segment at the start of training, without a
    rate.
    """

    shiftable = draws = imitates = True

    def __init__(
        self,
        input_dim: int,
        gradient: Gradient = "score",
        cuttings: int | None = None,
        temperature: Setting | None = None,
        threshold: float | None = None,
        start: float = 2.0,
    ) -> None:
        super().__init__()
        if gradient not in get_args(Gradient):
            raise ValueError(f"gradient must be one of {', '.join(get_args(Gradient))}, not {gradient}")
        check_sizes(start=start)
        self.input_dim, self.gradient = input_dim, gradient
        self.cuttings = _cuttings(gradient, cuttings)
        self.temperature = None
        if gradient == "straight-through":
            self.temperature = temperature_knob(TEMPERATURE if temperature is None else temperature)
            self.knobs = {"temperature": self.temperature}
        elif temperature is not None:
            raise ValueError(
                f"temperature is for gradient straight-through, not for {gradient}; leave it out"
            )
        if threshold is not None:
            check_shares(threshold=threshold)
        self.fixed_threshold = threshold
        self.figures = LIVE, SURENESS
        self.rate_kinds: tuple[Kind, ...] = ("logits", "ratio")
        if gradient == "straight-through":
            self.rate_kinds = "logits", "prior", "ratio"
        self.score = nn.Linear(input_dim, 1)
        self.scale = input_dim**-0.5  # of the states, so that Adam moves wide readers' scores no faster
        at = torch.tensor(0.5 if threshold is None else threshold, dtype=torch.float64, device="cpu")
        self.register_buffer("evaluation_threshold", at)
        self._start_at(start)

    evaluation_threshold: Tensor  # [] the probability above which evaluation cuts

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"gradient={self.gradient}, cuttings={self.cuttings}"

    def _start_at(self, length: float) -> None:
        share = min(1 / length, MOST_LIKELY)
        nn.init.constant_(self.score.bias, math.log(share / (1 - share)))
        if self.fixed_threshold is None:
            self.evaluation_threshold.fill_(share)

    def keep_rate(self, rate: Rate | None) -> None:
        """With a rate, training starts at its target."""
        super().keep_rate(rate)
        if rate is not None:
            if self.fixed_threshold is not None:
                reason = "a rate sets the threshold on training text"
                raise ValueError(f"threshold is {self.fixed_threshold:g}, but {reason}; leave it out")
            self._start_at(first(rate.target))

    def needs_weights(self) -> bool:
        """Straight-through learns through them, the others from losses alone."""
        return self.gradient == "straight-through"

    def whole_only(self) -> str | None:
        """A drawn cutting belongs to a whole sentence; a threshold looks at one gap at a time."""
        return "cutter bernoulli draws the cuts of whole sentences in training" if self.training else None

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """One cutting of each sentence; in training K of them, unless it is straight-through."""
        scores = logits(self.score, reading, scale=self.scale)
        free = ~gaps.cut & ~gaps.keep
        if self.training and self.temperature is not None:
            return self._relaxed(scores, free, reading, gaps)
        p = torch.sigmoid(scores)
        chosen = (
            self._draw(scores, free) if self.training else p[None] > self.evaluation_threshold.to(p.dtype)
        )
        ends = gaps.settle(chosen).flatten(0, 1)
        mask = reading.mask.repeat(len(chosen), 1)
        # With straight-through, a gap that is cut gets no gradient.
        live = free if self.temperature is None else free & ~ends
        return Cuts(
            ends=ends,
            weights=even_weights(ends, mask, p.dtype),
            scores=p * reading.mask,
            live=live,
            logits=scores,
            copies=len(chosen),
        )

    def _relaxed(self, scores: Tensor, free: Tensor, reading: Reading, gaps: Gaps) -> Cuts:
        """Drawn cuts with the gradient of soft ones, which passes through means as in dynamic pooling.

        With c_t the number of cuts before t, symbol t weighs (1 + c_t - detached c_t), divided by the sum of
        its segment.
        """
        assert self.temperature is not None
        u = torch.rand_like(scores).clamp(1e-6, 1 - 1e-6)
        noisy = scores + u.log() - (-u).log1p()
        ends = gaps.settle(noisy > 0)
        soft = torch.sigmoid(noisy / self.temperature.value.to(noisy.dtype)) * free
        hard = ends + soft - soft.detach()
        count = hard.cumsum(1) - hard
        share = 1 + count - count.detach()
        losses = {}
        if self.control is not None and self.control.by == "prior":
            losses["rate"] = self.control.prior(hard.sum(1), reading.characters)
        return Cuts(
            ends=ends,
            weights=share / totals(ends, share) * reading.mask if ends.shape[1] else share,
            scores=torch.sigmoid(scores) * reading.mask,
            losses=losses,
            live=free & ~ends,
            logits=scores,
        )

    @torch.no_grad()
    def _draw(self, scores: Tensor, free: Tensor) -> Tensor:
        """[K, B, T] bool: where each cutting would cut if every gap were free."""
        p, number = torch.sigmoid(scores), self.cuttings - (self.gradient == "self-critical")
        if self.gradient == "disarm":
            u = torch.rand_like(p)
            return torch.stack((u > 1 - p, u < p))
        drawn = torch.rand(number, *p.shape, dtype=p.dtype, device=p.device) < p
        if self.gradient == "self-critical":
            drawn = torch.cat((drawn, likeliest(p, free)[None]))
        return drawn

    def feedback(self, cuts: Cuts, losses: Tensor) -> Tensor:
        """[B]: zeros whose gradient by the logits is the estimate from the losses [K, B] of K cuttings."""
        assert cuts.logits is not None
        assert cuts.live is not None
        # A gap that was not free was not drawn: `live` leaves it out.
        drawn, losses = cuts.ends.view(len(losses), *cuts.logits.shape), losses.detach()
        if self.gradient == "disarm":
            sign = torch.where(drawn[1], -1.0, 1.0) * (drawn[0] != drawn[1])
            slope = 0.5 * (losses[0] - losses[1])[:, None] * sign * torch.sigmoid(cuts.logits.abs())
            value = (slope.detach() * cuts.logits * cuts.live).sum(1)
            return value - value.detach()
        logs = -(F.softplus(torch.where(drawn, -cuts.logits, cuts.logits)) * cuts.live).sum(2)  # log pi(b)
        if self.gradient == "self-critical":
            value = ((losses[:-1] - losses[-1]) * logs[:-1]).mean(0)
        else:  # L_i less the mean of the others is L_i less the mean of all, times K / (K - 1)
            value = ((losses - losses.mean(0)) * logs).sum(0) / (len(losses) - 1)
        return value - value.detach()

    @property
    def threshold(self) -> Tensor | None:
        """The threshold of evaluation, unless the caller fixed it."""
        return self.evaluation_threshold if self.fixed_threshold is None else None

    def ends_at(self, scores: Tensor, gaps: Gaps, threshold: float) -> Tensor:
        """Where probabilities are above the threshold."""
        return gaps.settle(scores > threshold)

    def settled_length(self, texts: Sequence[ScoredText]) -> float:
        """Without a rate, the mean length of drawn segments."""
        if self.control is not None:
            return super().settled_length(texts)
        segments = sum(float((s * (~g.cut & ~g.keep)).sum()) + int(g.cut[n > 1].sum()) for s, g, n in texts)
        return sum(int((n - 1).clamp(min=0).sum()) for _, _, n in texts) / max(segments, 1e-9)

    def flops(self, symbols: int) -> int:
        """One product per symbol."""
        return 2 * symbols * self.score.in_features


def likeliest(p: Tensor, free: Tensor) -> Tensor:
    """[B, T] bool: the free gaps with the largest p, as many per sentence as draws cut on average."""
    ranks = p.masked_fill(~free, -1.0).argsort(dim=1, descending=True, stable=True).argsort(1)
    return free & (ranks < (p * free).sum(1, keepdim=True).round())


def _cuttings(gradient: Gradient, number: int | None) -> int:
    """How many cuttings of a sentence this gradient compares."""
    usual = 1 if gradient == "straight-through" else 2
    if number is None or number == usual:
        return usual
    if gradient in ("straight-through", "disarm"):
        raise ValueError(f"cuttings must be {usual} for gradient {gradient}, not {number}")
    if number < 2:
        why = "each cutting is compared with another"
        raise ValueError(f"cuttings must be at least 2 for gradient {gradient}, not {number}: {why}")
    return number
