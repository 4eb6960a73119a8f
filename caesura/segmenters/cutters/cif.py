"""Continuous integrate-and-fire (Dong & Xu 2020): a segment for every whole unit of accumulated weight.

c_t is the sum of the weights a up to t; symbol t gives segment k what [c_{t-1}, c_t] and [k - 1, k] have in
common. A symbol meets at most two segments, so `weights` and `spill` describe it fully, and the weights
change continuously as a boundary moves: the gradient reaches the cuts.
"""

from __future__ import annotations

import torch
from torch import nn

from caesura.kernels.cif import SMALL, fire
from caesura.schedules import Setting
from caesura.segmenters.base import Cuts
from caesura.segmenters.cutters.act import logits, temperature_knob
from caesura.segmenters.cutters.fired import SPILL, settled
from caesura.segmenters.figures import LIVE
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind
from caesura.segmenters.spans import totals


class Cif(Cutter):
    """A learned weight per symbol; one shift of all scores of a sentence makes the rate exact.

    Sentences of n characters get round(n / target) segments; </s> closes the last one with weight 0.
    """

    figures = (LIVE, SPILL)
    sums_to, carries = 1.0, True
    shiftable = imitates = True
    rate_kinds: tuple[Kind, ...] = ("scaling",)
    needs_rate = True

    def __init__(self, input_dim: int, temperature: Setting = 1.0) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.temperature = temperature_knob(temperature)
        self.knobs = {"temperature": self.temperature}
        self.score = nn.Linear(input_dim, 1)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return "" if self.control is None else f"rate={self.control.rate}"

    def needs_weights(self) -> bool:
        """It learns through them."""
        return True

    def whole_only(self) -> str:
        """The length decides."""
        return "cutter cif has to know a sentence's length before it cuts"

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """As many segments as the rate asks for, whatever the scores are."""
        assert self.control is not None
        number = self.control.segments(reading.characters)  # [B]
        fired = fire(logits(self.score, reading, self.temperature), reading.characters, number)
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
