"""ACT's halting unit as a cutter: the scores of a segment's symbols add up to its end."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_finite, check_shares
from caesura.layers.knobs import Knob
from caesura.schedules import Setting, extremes, shown
from caesura.segmenters.base import Cuts
from caesura.segmenters.figures import LIVE, Figure
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind, Rate, start_logit
from caesura.segmenters.spans import before

PENALTY = Figure(
    name="penalty",
    heading="penalty",
    unit="mean over sentences",
    definition="(1 - R) / T before tau, R the sum of the scores that ended no segment; it may be negative",
    count=lambda cuts, lengths: (cuts.losses["penalty"], torch.ones_like(cuts.losses["penalty"])),
)
REMAINDER = Figure(
    name="remainder",
    heading="remainder",
    unit="per symbol",
    definition="what a segment's earlier symbols left to its last one, over the symbols of the sentence",
    count=lambda cuts, lengths: (
        (cuts.weights * cuts.ends).sum(1) / lengths.clamp(min=1),
        torch.ones_like(cuts.weights[:, 0]) if cuts.weights.shape[1] else cuts.weights.sum(1),
    ),
)
FIGURES = (LIVE, PENALTY, REMAINDER)
FEW, MOST = 0.05, 0.9  # shares of live characters below and above which a model gets a remark
LITTLE = 0.1  # below which training warns as it starts


def remark(live: float | None, length: float, first: bool, section: str, rated: bool = False) -> str | None:
    """Advice on a halting unit that is close to one of its two extremes; `section` has its options.

    Where it is `rated`, neither of the two options that would help can be set.
    """
    if live is None or rated or (first and live >= LITTLE) or (not first and FEW <= live <= MOST):
        return None
    if first:
        return (
            "nearly every character halts at once, which leaves the halting unit little to learn from: "
            f"a lower {section}.halting_bias starts with longer segments"
        )
    advice = "which a larger model.segmenter.tau would shorten"
    if live < FEW:
        advice = "which leave the halting unit next to no gradient"
    return f"the best model has {length:.2f} characters per segment, {advice} (docs/results/freedom.md)"


class Act(Cutter):
    """A segment ends where the scores of its symbols reach 1 - epsilon.

    Unlike ACT-ENC, it scores the states of any reader, and a new segment does not start from the last one's
    mean. A symbol's weight is its score; the last one gets what is left of 1.
    """

    figures = FIGURES
    losses = ("penalty",)
    shiftable = True
    rate_kinds: tuple[Kind, ...] = ("pi", "logits", "ratio", "quantile")

    def __init__(
        self,
        input_dim: int,
        epsilon: float = 0.01,
        halting_bias: float = 1.0,
        temperature: Setting = 1.0,
    ) -> None:
        super().__init__()
        check_shares(epsilon=epsilon)
        check_finite(halting_bias=halting_bias)
        self.input_dim = input_dim
        self.halting = nn.Linear(input_dim, 1)
        nn.init.constant_(self.halting.bias, halting_bias)
        self.epsilon, self.sums_to = epsilon, 1 - epsilon
        self.temperature = temperature_knob(temperature)
        self.knobs = {"temperature": self.temperature}
        self.scale = 1.0  # of the states, as the halting unit reads them

    def extra_repr(self) -> str:
        """What its modules do not tell."""
        return f"epsilon={self.epsilon:g}"

    def needs_weights(self) -> bool:
        """It learns through them."""
        return True

    def whole_only(self) -> str:
        """Its loss counts over the sentence."""
        return "the penalty of cutter act is that of a whole sentence; ActSegmenter can"

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """The ends are found one after the other, all else at once."""
        unscaled = logits(self.halting, reading, self.temperature, self.scale)
        h = torch.sigmoid(unscaled) * reading.mask
        if self.control is not None and (threshold := self.control.current_threshold) is not None:
            h = _divided(h, threshold)
        ends = self._ends(h, gaps)
        left = 1 - before(ends, h.double()).to(h.dtype).clamp(max=1)  # of the 1 that a segment has to give
        going = reading.mask & ~ends & (h <= left)
        weights = torch.where(ends | ~going, left, h) * reading.mask
        penalty = (1 - (h * going).sum(1)) / reading.lengths.clamp(min=1)
        return Cuts(
            ends=ends,
            weights=weights,
            scores=h,
            losses={"penalty": penalty * (reading.lengths > 0)},
            live=going & reading.text,
            logits=unscaled,
        )

    def keep_rate(self, rate: Rate | None) -> None:
        """With a rate, the first segments are as long as it asks, whatever `halting_bias` is.

        Adam moves every weight by about the learning rate, and so a score of D features by D times that: with
        a wide reader, cuts would move faster than a loss can follow. So states count 1 / sqrt(D) then; a
        threshold follows at once.
        """
        super().keep_rate(rate)
        if rate is not None and self.control is not None:
            if self.control.by != "quantile":
                self.scale = self.halting.in_features**-0.5
            nn.init.constant_(self.halting.bias, start_logit(rate.target, 1 - self.epsilon))
            self.control.start_at(1.0)

    def ends_at(self, scores: Tensor, gaps: Gaps, threshold: float) -> Tensor:
        """Where segments end if the scores are divided by a threshold."""
        return self._ends(_divided(scores, scores.new_tensor(threshold)), gaps)

    @torch.no_grad()
    def _ends(self, scores: Tensor, gaps: Gaps) -> Tensor:
        """Algorithm 1's l. 10 and 12, symbol by symbol, for all sentences at once."""
        H, ends = scores.new_zeros(len(scores)), []
        for h_t, cut, keep in zip(scores.unbind(1), gaps.cut.unbind(1), gaps.keep.unbind(1), strict=True):
            f = ((H + h_t >= 1 - self.epsilon) & ~keep) | cut
            H = (H + h_t).masked_fill(f, 0)
            ends.append(f)
        return torch.stack(ends, 1) if ends else gaps.cut

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """Where it is close to an extreme."""
        return remark(live, length, first, "model.segmenter.cutter", self.control is not None)

    def flops(self, symbols: int) -> int:
        """One product per symbol."""
        return 2 * symbols * self.halting.in_features


def _divided(scores: Tensor, threshold: Tensor) -> Tensor:
    return (scores / threshold.to(scores.dtype)).clamp(max=1.0)


def temperature_knob(temperature: Setting) -> Knob:
    """The knob of a temperature, which has to be above 0."""
    if not extremes(temperature)[0] > 0:
        raise ValueError(f"temperature must be more than 0, not {shown(temperature)}")
    return Knob(temperature)


def logits(unit: nn.Linear, reading: Reading, temperature: Knob | None = None, scale: float = 1.0) -> Tensor:
    """[B, T]: a unit's product with each state times `scale`, over the temperature, in float32 or better.

    The bias, which sets the length of segments, and the shift of the reading come on top.
    """
    full = torch.promote_types(reading.states.dtype, torch.float32)
    with torch.autocast(reading.states.device.type, enabled=False):
        products = F.linear(reading.states.to(full), unit.weight.to(full)).squeeze(2)
    factor = scale if temperature is None else scale / temperature.value.to(full)
    scores = products * factor + unit.bias.to(full)
    return scores if reading.shift is None else scores + reading.shift
