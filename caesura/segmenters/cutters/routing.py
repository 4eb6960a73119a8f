"""Routing (H-Net: Hwang, Wang & Gu 2025): a segment starts where a symbol is unlike the one before it.

p_t = (1 - cos(W_q e_{t-1}, W_k e_t)) / 2 belongs to the gap before symbol t, so it is the score of symbol
t - 1. A cut has no gradient: the loss reaches p through the confidence of a segment and through smoothing.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
from caesura.segmenters.base import Cuts
from caesura.segmenters.figures import LIVE
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind
from caesura.segmenters.spans import even_weights, slots

Smoothing = Literal["segment", "character", "none"]
SMOOTHINGS: tuple[Smoothing, ...] = get_args(Smoothing)
HALF = 0.5  # a segment ends where the score is above this, unless the rate is kept by quantile
BOUND = math.log((1 - 1e-4) / 1e-4)  # of logits: H-Net keeps p between 1e-4 and 1 - 1e-4
TINY = 1e-6  # the same before a shift is added, so that every logit is finite


class Routing(Cutter):
    """A segment ends where the states on both sides of a gap, each through its own matrix, are unlike.

    The confidence P of a segment is the p of the gap that opens it, and 1 for the first segment. A segment's
    vector is multiplied by a factor with the value 1 and the gradient of P. `smoothing`: with "segment", a
    vector becomes P times itself plus 1 - P times that of the segment before it; with "character", the states
    are smoothed in this way before pooling, with the p of every gap (SOMBRERO, 2601.22805). H-Net smooths
    what comes out of the network behind the segments. Here that is a decoder, so "segment" smooths what goes
    in, and is not H-Net's own.
    """

    figures = (LIVE,)
    shiftable = imitates = True
    rate_kinds: tuple[Kind, ...] = ("quantile", "ratio", "logits")

    def __init__(self, input_dim: int, smoothing: Smoothing = "none") -> None:
        super().__init__()
        check_sizes(input_dim=input_dim)
        if smoothing not in SMOOTHINGS:
            raise ValueError(f"smoothing must be one of {', '.join(SMOOTHINGS)}, not {smoothing}")
        self.input_dim, self.smoothing = input_dim, smoothing
        self.query = nn.Linear(input_dim, input_dim, bias=False)
        self.key = nn.Linear(input_dim, input_dim, bias=False)
        # H-Net starts from identity matrices. Neighbouring states of a fresh GRU are so much alike that
        # nothing would be cut. With two unrelated matrices, about half of the gaps are cut.
        # A cosine does not depend on their scale, but Adam does: it moves every weight by about the learning
        # rate, which should be small beside the weight. So weights start at about 1.
        for projection in (self.query, self.key):
            nn.init.orthogonal_(projection.weight, gain=input_dim**0.5)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"smoothing={self.smoothing}"

    def whole_only(self) -> str:
        """A gap has two sides."""
        return "cutter routing compares each symbol with the next one"

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """All gaps at once."""
        logits = self._logits(reading)
        scores = torch.sigmoid(logits) * reading.text
        threshold = None if self.control is None else self.control.current_threshold
        ends = gaps.settle(scores > (HALF if threshold is None else threshold.to(scores.dtype)))
        reached = reading.text & (logits.abs() < BOUND)
        return Cuts(
            ends=ends,
            weights=even_weights(ends, reading.mask, scores.dtype),
            scores=scores,
            live=reached if self.smoothing == "character" else reached & ends,
            logits=logits,
        )

    def _logits(self, reading: Reading) -> Tensor:
        """[B, T]: the logit of each symbol's gap to the next one, in float32 or better."""
        full = torch.promote_types(reading.states.dtype, torch.float32)
        with torch.autocast(reading.states.device.type, enabled=False):
            states = reading.states.to(full)
            left = F.linear(states[:, :-1], self.query.weight.to(full))
            right = F.linear(states[:, 1:], self.key.weight.to(full))
            likeness = F.cosine_similarity(left, right, dim=2)
        p = ((1 - likeness) / 2).clamp(TINY, 1 - TINY)
        logits = F.pad(torch.logit(p), (0, 1))[:, : reading.mask.shape[1]]
        if reading.shift is not None:
            logits = logits + reading.shift
        return logits.clamp(-BOUND, BOUND)

    def ends_at(self, scores: Tensor, gaps: Gaps, threshold: float) -> Tensor:
        """Where scores are above the threshold."""
        return gaps.settle(scores > scores.new_tensor(threshold))

    def blend(self, states: Tensor, cuts: Cuts) -> Tensor:
        """With smoothing per character, m_t = p_t x_t + (1 - p_t) m_{t-1}."""
        if self.smoothing != "character":
            return states
        assert cuts.logits is not None
        padding = cuts.ends.flip(1).cumsum(1).flip(1) == 0
        return smoothed(states, _shifted(cuts.logits)).masked_fill(padding[..., None], 0)

    def finish(self, vectors: Tensor, cuts: Cuts) -> Tensor:
        """Smooth per segment, z_k = P_k u_k + (1 - P_k) z_{k-1}; then let the gradient reach P."""
        assert cuts.logits is not None
        opening = _shifted(_at_ends(cuts.logits, cuts.ends, vectors.shape[1]))  # [B, S]
        if self.smoothing == "segment":
            vectors = smoothed(vectors, opening)
        confidence = torch.sigmoid(opening)
        reaching = 1 + (confidence - confidence.detach())  # exactly 1
        reaching = torch.cat((torch.ones_like(reaching[:, :1]), reaching[:, 1:]), 1)
        return vectors * reaching[..., None].to(vectors.dtype)

    def flops(self, symbols: int) -> int:
        """Two products with a matrix per symbol."""
        return 4 * symbols * self.key.in_features**2


def smoothed(values: Tensor, logits: Tensor) -> Tensor:
    """[B, N, D]: m_n = P_n x_n + (1 - P_n) m_{n-1} with P = sigmoid(logits) [B, N], and m_1 = x_1.

    One product with a matrix: x_j has the weight P_j (1 - P_{j+1}) ... (1 - P_n) in m_n. The logarithms of
    the weights are differences of running sums, in float64 because long sentences would cost digits.
    """
    full = torch.promote_types(values.dtype, torch.float32)
    size = values.shape[1]
    places = torch.arange(size, device=values.device)
    first, later = places == 0, places[:, None] < places
    wide = logits.double()
    passed = F.logsigmoid(-wide).masked_fill(first, 0).cumsum(1)
    between = (passed[:, :, None] - passed[:, None]).masked_fill(later, -torch.inf)
    given = between.exp() * torch.sigmoid(wide).masked_fill(first, 1)[:, None]
    with torch.autocast(values.device.type, enabled=False):
        return torch.bmm(given.to(full), values.to(full)).to(values.dtype)


def _shifted(values: Tensor) -> Tensor:
    """[B, N]: each value moved from a gap's left side to its right side; the first symbol gets 0."""
    return F.pad(values, (1, 0))[:, : values.shape[1]]


def _at_ends(values: Tensor, ends: Tensor, size: int) -> Tensor:
    """[B, size]: the value [B, T] of the symbol that ends each segment; 0 beyond the last one."""
    k = torch.arange(size, device=ends.device)[:, None]
    ending = (slots(ends)[:, None] == k) & ends[:, None]  # [B, size, T]
    return (ending * values[:, None]).sum(2)
