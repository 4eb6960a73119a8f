"""ACT's halting unit as a cutter: the scores of a segment's symbols add up to its end."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels.cif import accumulate, passed
from caesura.layers.checks import check_finite, check_shares
from caesura.layers.knobs import Knob
from caesura.schedules import Setting, extremes, first, shown
from caesura.segmenters.base import Cuts
from caesura.segmenters.cutters.fired import SPILL, settled
from caesura.segmenters.figures import LIVE, Figure
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind, Rate, start_logit
from caesura.segmenters.spans import before, summed_ends, totals

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
        torch.ones_like(lengths),
    ),
)
FIGURES = (LIVE, PENALTY, REMAINDER)
CARRIED = replace(PENALTY, definition="(1 - R) / T before tau, R the sum of all scores; it may be negative")
EPSILON = 0.01  # the paper's
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

    With `carry`, the surplus of the last symbol's score goes to the next segment instead of being cut off:
    a segment ends where the sum of all scores passes a whole number. A sentence's last segment takes the rest
    as it is, without scaling to 1. This is CIF without scaling (docs/paper_notes.md, 18).
    """

    figures: tuple[Figure, ...]
    losses = ("penalty",)
    shiftable = imitates = True
    rate_kinds: tuple[Kind, ...] = ("pi", "logits", "ratio", "quantile")

    def __init__(
        self,
        input_dim: int,
        epsilon: float = EPSILON,
        halting_bias: float = 1.0,
        temperature: Setting = 1.0,
        carry: bool = False,
    ) -> None:
        super().__init__()
        check_shares(epsilon=epsilon)
        if carry and epsilon != EPSILON:
            reason = "with carry, segments end where scores pass a whole number; leave it out"
            raise ValueError(f"epsilon is {epsilon:g}, but {reason}")
        check_finite(halting_bias=halting_bias)
        self.input_dim = input_dim
        self.halting = nn.Linear(input_dim, 1)
        nn.init.constant_(self.halting.bias, halting_bias)
        self.epsilon, self.carries = epsilon, carry
        self.sums_to = 1.0 if carry else 1 - epsilon
        self.figures = (LIVE, CARRIED, SPILL) if carry else FIGURES
        self.temperature = temperature_knob(temperature)
        self.knobs = {"temperature": self.temperature}
        self.scale = 1.0  # of the states, as the halting unit reads them

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return "carry=True" if self.carries else f"epsilon={self.epsilon:g}"

    def needs_weights(self) -> bool:
        """It learns through them."""
        return True

    def whole_only(self) -> str:
        """Its loss counts over the sentence."""
        return "the penalty of cutter act is that of a whole sentence; ActSegmenter can"

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Scores, ends and weights, all symbols at once."""
        unscaled = logits(self.halting, reading, self.temperature, self.scale)
        h = torch.sigmoid(unscaled) * reading.mask
        if self.control is not None and (threshold := self.control.current_threshold) is not None:
            h = _divided(h, threshold)
        if self.carries:
            return self._carried(h, unscaled, reading, gaps)
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

    def _carried(self, h: Tensor, unscaled: Tensor, reading: Reading, gaps: Gaps) -> Cuts:
        """The surplus goes to the next segment; sums are in float64."""
        h, text = h * reading.text, reading.text
        ends, weights, spill = settled(accumulate(h.double(), reading.characters), reading, gaps)
        live = text & (h < 1)  # a threshold may have cut a score off at 1
        if gaps.given is not None:  # a symbol that is a whole segment weighs 1, whatever its score
            live = live & (~gaps.given | (totals(ends, text.long()) > 1))
        # As in ACT, but R has every score, because none is cut off. A higher tau shortens segments here too.
        penalty = (1 - h.sum(1)) / reading.lengths.clamp(min=1)
        return Cuts(
            ends=ends,
            weights=weights.to(h.dtype),
            spill=spill.to(h.dtype),
            scores=h,
            losses={"penalty": penalty * (reading.lengths > 0)},
            live=live,
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
            # With carry, the scores of a segment sum to 1 on average, not to half a score more.
            whole = 1 - 0.5 / first(rate.target) if self.carries else 1 - self.epsilon
            nn.init.constant_(self.halting.bias, start_logit(rate.target, whole))
            self.control.start_at(1.0)

    def ends_at(self, scores: Tensor, gaps: Gaps, threshold: float) -> Tensor:
        """Where segments end if the scores are divided by a threshold."""
        return self._ends(_divided(scores, scores.new_tensor(threshold)), gaps)

    def _ends(self, scores: Tensor, gaps: Gaps) -> Tensor:
        """Algorithm 1's l. 10 and 12, for all symbols at once."""
        if not self.carries:
            return summed_ends(scores, 1 - self.epsilon, gaps.cut, gaps.keep)
        numbers = F.pad(passed(scores.double().cumsum(1)), (1, 0))
        return gaps.settle(numbers[:, 1:] > numbers[:, :-1])

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """Advice near an extreme; none with carry, where every character is live at any length."""
        if self.carries:
            return None
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
