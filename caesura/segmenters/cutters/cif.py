"""Continuous integrate-and-fire (Dong & Xu 2020): a segment for every whole unit of accumulated weight.

c_t is the sum of the weights a up to t; symbol t gives segment k what [c_{t-1}, c_t] and [k - 1, k] have in
common. A symbol meets at most two segments, so `weights` and `spill` describe it fully, and the weights
change continuously as a boundary moves: the gradient reaches the cuts.

With `stein`, training cuts each sentence twice, by the logits l + s z and l - s z with z normal. By Stein's
identity, the mean of (L+ - L-) z / 2s, from the two losses, is the gradient of E f(l + s z), whether f jumps
or not. The gradient is `stein` times this estimate plus 1 - `stein` times that of backpropagation.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from caesura.kernels.cif import SMALL, fire
from caesura.schedules import Setting
from caesura.segmenters.base import Cuts
from caesura.segmenters.cutters.act import logits, temperature_knob
from caesura.segmenters.cutters.fired import SPILL, settled
from caesura.segmenters.figures import LIVE
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind
from caesura.segmenters.spans import totals

NOISE = 0.3  # the standard deviation that gradient fidelity has, too


class Cif(Cutter):
    """A learned weight per symbol; one shift of all scores of a sentence makes the rate exact.

    Sentences of n characters get round(n / target) segments; </s> closes the last one with weight 0.
    `stein`: the share of the cutter's gradient that is estimated from the losses of two cuttings.
    `noise`: the standard deviation of the noise that one cutting adds to the logits and the other subtracts.
    """

    figures = (LIVE, SPILL)
    sums_to, carries = 1.0, True
    shiftable = imitates = True
    rate_kinds: tuple[Kind, ...] = ("scaling",)
    needs_rate = True

    def __init__(
        self, input_dim: int, temperature: Setting = 1.0, stein: float = 0.0, noise: float = NOISE
    ) -> None:
        super().__init__()
        if not 0 <= stein <= 1:
            raise ValueError(f"stein must be from 0 to 1, not {stein:g}")
        if not noise > 0 or not math.isfinite(noise):
            raise ValueError(f"noise must be more than 0, not {noise:g}")
        if noise != NOISE and not stein:
            raise ValueError("noise is for stein, which is 0; leave it out")
        self.input_dim, self.stein, self.noise = input_dim, stein, noise
        self.cuttings, self.jitter = (2, noise) if stein else (1, 0.0)
        self.temperature = temperature_knob(temperature)
        self.knobs = {"temperature": self.temperature}
        self.score = nn.Linear(input_dim, 1)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        settings = [] if self.control is None else [f"rate={self.control.rate}"]
        settings += [f"stein={self.stein:g}, noise={self.noise:g}"] if self.stein else []
        return ", ".join(settings)

    def needs_weights(self) -> bool:
        """It learns through them."""
        return True

    def whole_only(self) -> str:
        """The length decides."""
        return "cutter cif has to know a sentence's length before it cuts"

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """As many segments as the rate asks for, whatever the scores are."""
        scores = logits(self.score, reading, self.temperature)
        if not self.stein or not self.training:
            return self._cut(scores, reading, gaps)
        centre = self._cut(scores, reading, gaps)
        noise = self.noise * torch.randn_like(scores)
        shared = scores.detach() + (1 - self.stein) * (scores - scores.detach())
        plus, minus = (self._cut(shared + apart, reading, gaps) for apart in (noise, -noise))
        assert plus.spill is not None
        assert minus.spill is not None
        return replace(
            centre,
            ends=torch.cat((plus.ends, minus.ends)),
            weights=torch.cat((plus.weights, minus.weights)),
            spill=torch.cat((plus.spill, minus.spill)),
            noise=noise,
            copies=2,
        )

    def feedback(self, cuts: Cuts, losses: Tensor) -> Tensor:
        """[B]: zeros whose gradient by the logits is Stein's estimate from the losses [2, B], times `stein`.

        If all logits of a sentence move together, neither the loss nor the mean of this changes.
        """
        assert cuts.logits is not None
        assert cuts.noise is not None
        change = (losses[0] - losses[1]).detach() / (2 * self.noise**2)
        value = self.stein * change * (cuts.noise * cuts.logits).sum(1)
        return value - value.detach()

    def _cut(self, scores: Tensor, reading: Reading, gaps: Gaps) -> Cuts:
        """By these scores [B, T]."""
        assert self.control is not None
        number = self.control.segments(reading.characters)  # [B]
        fired = fire(scores, reading.characters, number)
        learns = reading.text & (number < reading.characters)[:, None]
        ends, weights, spill = settled(fired, reading, gaps)
        if gaps.given is not None:
            # All scores share one shift: where a segment has two symbols, every score of its sentence counts.
            shared = (reading.text & (totals(ends, reading.text.long()) > 1)).any(1, keepdim=True)
            learns = torch.where(gaps.given, reading.text & shared, learns)
        full = torch.promote_types(reading.states.dtype, torch.float32)
        return Cuts(
            ends=ends,
            weights=weights.to(full),
            spill=spill.to(full),
            scores=fired.a.to(full),
            live=learns,
            logits=torch.logit(fired.a, SMALL).to(full),
        )

    def room(self, characters: int) -> int | None:
        """What the rate asks for."""
        return None if self.control is None else self.control.most(characters)

    def flops(self, symbols: int) -> int:
        """One product per symbol."""
        return 2 * symbols * self.score.in_features
