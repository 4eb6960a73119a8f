"""The rate of cuts that a user asks for, and six ways to keep it.

Rate = segments over characters of text; the last segment counts, </s> does not. It is asked for as
characters per segment, N. What is measured of a batch acts on later updates only, so that a sentence's
gradient does not depend on its company.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_finite, check_sizes
from caesura.layers.knobs import Knob
from caesura.schedules import Setting, extremes, first, shown

Kind = Literal["scaling", "quantile", "logits", "ratio", "prior", "pi"]
NEEDS = {  # what each kind asks of a cutter
    "scaling": "weights that can be scaled to a number of segments",
    "quantile": "scores with a threshold that training can move",
    "logits": "logits that a loss can push",
    "ratio": "scores that a loss can push",
    "prior": "drawn cuts with gradient: straight-through",
    "pi": "a penalty whose weight can be controlled",
}
REMEDIES = {  # what keeps a rate better, by kind; {way}: lower or raise
    "scaling": "sentences are too short for it; lower model.segmenter.rate.target",
    "quantile": "the threshold is that of training text; {way} model.segmenter.rate.target",
    "logits": "raise model.segmenter.rate.weight or lower training.learning_rate",
    "ratio": "raise model.segmenter.rate.weight or lower training.learning_rate",
    "prior": "raise model.segmenter.rate.weight or lower training.learning_rate",
    "pi": "raise model.segmenter.rate.gain or lower training.learning_rate",
}
WEIGHTED = "logits", "ratio", "prior"  # kinds with a loss, which has a weight
SMOOTHING = 0.9  # of the cuts that are seen: what each update leaves of the counts before it
NEAR = 0.5  # relative error within which `pi` adds up errors: further off, a sum would only have to be undone
THRESHOLD_GAIN = 0.1  # how fast the threshold of `quantile` follows the rate in training
BISECTIONS, WIDEST = 40, 1024.0  # steps of the search for a threshold, and the largest one
TRIES, CLOSE = 8, 1e-3  # thresholds tried where each is costly, and the relative error that ends the search


class CutCount(NamedTuple):
    """The two counts whose ratio is a rate."""

    characters: Tensor  # [] of text, </s> not counted
    segments: Tensor  # []  the last one counted, a segment of </s> alone not


def count_cuts(ends: Tensor, lengths: Tensor) -> CutCount:
    """Characters and segments of `ends` [B, T], the one definition of rate.

    The last of `lengths` [B] symbols is </s> and ends a segment; a row of padding has one or none.
    """
    if len(ends) != len(lengths):
        raise ValueError(f"ends have {len(ends)} rows and lengths {len(lengths)}; repeat lengths per cutting")
    characters, halted = (lengths - 1).clamp(min=0).sum(), ends.sum() - (lengths > 0).sum()
    if not ends.shape[1]:
        return CutCount(characters, halted)
    last = ends.gather(1, (lengths - 2).clamp(min=0)[:, None]).squeeze(1)
    open_ended = (~last & (lengths > 1)).sum()  # sentences whose last segment has </s> in it as well
    return CutCount(characters, halted + open_ended)


@dataclass(frozen=True)
class Rate:
    """The characters per segment that are asked for, and how they are kept; None: in the cutter's usual way.

    `scaling`: every sentence gets round(characters / target) segments, at least one.
    `quantile`: a threshold for the scores, which is set on training text.
    `logits`: a loss pushes all logits up or down by how far the rate is from the target.
    `ratio`: the ratio loss of H-Net, with the rate of earlier updates.
    `prior`: minus the log-probability of a sentence's number of segments, binomial around the target.
    `pi`: a controller sets the weight of the penalty, tau.

    `weight` belongs to the losses of `logits`, `ratio` and `prior`; `gain` and `integral` belong to `pi`.
    """

    target: Setting
    by: Kind | None = None
    weight: Setting = 1.0
    gain: float = 2.0
    integral: float = 0.02

    def __post_init__(self) -> None:
        least, most = extremes(self.target)
        check_finite(target=most, gain=self.gain, integral=self.integral)
        check_sizes(target=least)
        if self.by is not None and self.by not in NEEDS:
            raise ValueError(f"by must be one of {', '.join(NEEDS)}, not {self.by}")
        if self.by in ("ratio", "prior") and least <= 1:
            raise ValueError(f"by {self.by} needs a target above 1: at 1 its loss is not defined")
        check_finite(weight=extremes(self.weight)[1])
        numbers = {"weight": extremes(self.weight)[0], "gain": self.gain, "integral": self.integral}
        for name, value in numbers.items():
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value:g}")

    def __str__(self) -> str:
        return f"{shown(self.target)} by {self.by}"


class RateControl(nn.Module):
    """Keeps the rate of one segmenter. All that it measures and sets is on the device and in the weights."""

    def __init__(self, rate: Rate, name: str, kinds: Sequence[Kind]) -> None:
        """For a cutter of this `name` that can keep a rate in these ways, its usual one first."""
        super().__init__()
        self.by: Kind = rate.by or kinds[0]
        if self.by not in kinds:
            reason = f"needs {NEEDS[self.by]}, which {name} does not have"
            raise ValueError(f"rate.by {self.by} {reason}; it takes {', '.join(kinds)}")
        _check_used(rate, self.by)
        self.rate = replace(rate, by=self.by)
        self.target = Knob(rate.target)
        self.weight = Knob(rate.weight) if self.by in WEIGHTED else None
        self.tau = Knob(0.0, kept=True) if self.by == "pi" else None
        if self.by != "scaling":
            self._keep("characters", 0.0)
            self._keep("segments_seen", 0.0)
        if self.by == "pi":
            self._keep("total", 0.0)
        self.training_threshold = Knob(0.5, kept=True) if self.by == "quantile" else None
        if self.by == "quantile":
            self._keep("threshold", 0.5)

    characters: Tensor  # [] of earlier updates, smoothed
    segments_seen: Tensor  # [] the same
    total: Tensor  # [] sum of errors: characters for which there was no segment, over those of an update
    threshold: Tensor  # [] that was set on training text; training itself has `training_threshold`

    def _keep(self, name: str, value: float) -> None:
        self.register_buffer(name, torch.tensor(value, dtype=torch.float64, device="cpu"))

    @property
    def seen(self) -> Tensor:
        """[] segments per character of earlier updates; before the first, what is asked for."""
        goal, some = 1 / self.target.value, self.characters > 0
        return torch.where(some, self.segments_seen / self.characters.clamp(min=1e-9), goal)

    @property
    def current_threshold(self) -> Tensor | None:
        """[] by which `quantile` divides: while training, the one that moves; None for other kinds."""
        if self.training_threshold is None:
            return None
        return self.training_threshold.value if self.training else self.threshold

    @property
    def knobs(self) -> dict[str, Knob]:
        """The numbers that it sets, by their names in logs."""
        named = {"target_length": self.target, "rate_weight": self.weight, "tau": self.tau}
        named |= {"threshold": self.training_threshold}
        return {name: knob for name, knob in named.items() if knob is not None}

    @property
    def loss_weights(self) -> dict[str, Knob]:
        """The weights that it sets, by the names of losses."""
        weights = {"rate": self.weight, "penalty": self.tau}
        return {name: knob for name, knob in weights.items() if knob is not None}

    def remedy(self, short: bool) -> str:
        """The setting to change where segments are too short for the target, or too long."""
        return REMEDIES[self.by].format(way="raise" if short else "lower")

    def segments(self, characters: Tensor) -> Tensor:
        """[B] whole numbers of segments for sentences of so many characters [B], </s> not counted."""
        return (characters.double() / self.target.value).round().clamp(min=1).long()

    def most(self, characters: int) -> int:
        """The most segments that so many characters, or fewer, ever get."""
        return max(1, round(characters / extremes(self.rate.target)[0]))  # both round half to even

    def start_at(self, threshold: float) -> None:
        """Where `quantile` starts from, before anything is measured."""
        if self.training_threshold is not None:
            self.training_threshold.value.fill_(threshold)
            self.threshold.fill_(threshold)

    def losses(self, logits: Tensor | None, scores: Tensor | None, text: Tensor) -> dict[str, Tensor]:
        """Its own losses [B], before their weight, of logits and scores [B, T] on `text` [B, T]."""
        counts = text.sum(1).clamp(min=1)
        if self.by == "logits":
            assert logits is not None
            error = (self.seen - 1 / self.target.value).to(logits.dtype)
            return {"rate": (logits * text).sum(1) / counts * error}
        if self.by == "ratio":
            assert scores is not None
            share = (scores * text).sum(1) / counts  # G
            n, seen = self.target.value.to(share.dtype), self.seen.to(share.dtype)  # N and F
            return {"rate": n / (n - 1) * ((n - 1) * seen * share + (1 - seen) * (1 - share))}
        return {}

    def prior(self, segments: Tensor, characters: Tensor) -> Tensor:
        """[B]: -log Binomial(segments; characters, 1 / target) / characters, differentiable by `segments`."""
        n, q = characters.to(segments.dtype), 1 / self.target.value.to(segments.dtype)
        k = segments.clamp(max=n)
        choices = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        return -(choices + k * q.log() + (n - k) * torch.log1p(-q)) / n.clamp(min=1) * (n > 0)

    @torch.no_grad()
    def observe(self, count: CutCount, good: Tensor) -> None:
        """Learn from the cuts of an update, for later ones; where it was not `good` [], nothing changes."""
        if self.by == "scaling":
            return
        good = good & (count.characters > 0)
        share = torch.where(self.characters > 0, 1 - SMOOTHING, 1.0)  # the first update counts in full
        usual = torch.where(self.characters > 0, self.characters, count.characters.double().clamp(min=1))
        # Both counts are smoothed, not their ratio: a batch of short sentences has few characters.
        for mean, value in ((self.characters, count.characters), (self.segments_seen, count.segments)):
            mean.copy_(torch.where(good, (1 - share) * mean + share * value, mean))
        error = (1 - self.seen * self.target.value).clamp(-1.0, 1.0)  # above 0: too few cuts
        if self.training_threshold is not None:
            before = self.training_threshold.value
            after = (before * torch.exp(-THRESHOLD_GAIN * error)).clamp(1 / WIDEST, WIDEST)
            before.copy_(torch.where(good, after, before))
        if self.tau is not None:
            short = (count.characters - count.segments * self.target.value) / usual
            total = self.total + torch.where(error.abs() < NEAR, short, 0.0)
            self.total.copy_(torch.where(good, total, self.total))
            tau = self.rate.gain * error + self.rate.integral * total
            self.tau.value.copy_(torch.where(good, tau, self.tau.value))


def threshold_for(count_at: Callable[[float], tuple[int, int]], target: float) -> float:
    """The threshold that gives a text `target` characters per segment.

    `count_at` gives the characters and segments of the text under a threshold.
    """

    def too_many(threshold: float) -> bool:
        characters, segments = count_at(threshold)
        return segments * target > characters

    low, high = 0.0, 1.0
    while high < WIDEST and too_many(high):
        low, high = high, 2 * high
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if too_many(middle):
            low = middle
        else:
            high = middle
    return high


def threshold_near(count_at: Callable[[float], tuple[int, int]], target: float, start: float) -> float:
    """Of some thresholds tried from `start` on, the one that brings a text nearest to `target`.

    For a text that each threshold costs much to count, and of which a higher one need not leave fewer cuts.
    """
    at, best, nearest, factor = start, start, math.inf, 2.0
    low: tuple[float, float] | None = None  # of a threshold: its log, and the log of length over target
    high: tuple[float, float] | None = None
    for _ in range(TRIES):
        characters, segments = count_at(at)
        if not characters:
            return start
        off = math.log(characters / (segments * target))
        if abs(off) < nearest:
            best, nearest = at, abs(off)
        if nearest < CLOSE:
            break
        if off < 0:
            low = math.log(at), off
        else:
            high = math.log(at), off
        if low is None or high is None:
            at, factor = at * (factor if off < 0 else 1 / factor), factor**2
        else:  # where a straight line between the two meets the target, and not too near either
            share = min(max(low[1] / (low[1] - high[1]), 0.1), 0.9)
            at = math.exp(low[0] + share * (high[0] - low[0]))
        at = min(max(at, 1 / WIDEST), WIDEST)
    return best


def _check_used(rate: Rate, by: Kind) -> None:
    """Refuse options that this way of keeping a rate does not read."""
    usual = Rate(rate.target)
    for name, kinds in {"weight": WEIGHTED, "gain": ("pi",), "integral": ("pi",)}.items():
        if by not in kinds and getattr(rate, name) != getattr(usual, name):
            raise ValueError(f"rate.{name} is for {', '.join(kinds)}, not for {by}; leave it out")


def start_logit(target: Setting, whole: float = 1.0) -> float:
    """The logit of equal scores that add up to `whole` after as many symbols as the target has at first."""
    symbols = first(target) - 0.5  # half a symbol less, as the last one may pass `whole`
    share = min(whole / symbols, 1 - 1e-4)
    return math.log(share / (1 - share))


def kept_control(module: nn.Module) -> RateControl | None:
    """The rate control that was added to a module, if any."""
    control = module._modules.get("rate_control")
    return control if isinstance(control, RateControl) else None
