"""The flip oracle: the loss of a translation after one gap of its source is flipped, for every gap.

The model's own cuts, passed to it as given, are the baseline. The oracle says what the best single move would
gain, whatever the cutter, and whether the cutter's gradient points the same way.
N rows, B sentences, T source symbols.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from caesura.analysis.losses import Pairs, resting
from caesura.data.cuts import GivenCuts
from caesura.inference import Translator
from caesura.search.rounds import Check

ROUNDS = 8  # greedy flips, at most
NEGLIGIBLE = 1e-6  # nats per symbol: a smaller difference may be rounding


@dataclass(frozen=True)
class Pull:
    """The scores' gradient against the cost of a cut, L(cut) - L(joined), at each gap.

    Gaps where the loss does not reach the score, or where a cut changes nothing, are not compared.
    """

    gradient: list[float]  # by the score of each gap, with the model's own cuts; positive: joining is better
    compared: int  # gaps
    agreeing: float | None  # the share of these whose signs agree; None where there are none
    weighted: float | None  # the same, each weighted by the cut's cost or gain
    cosine: float | None  # between the two over all gaps


@dataclass(frozen=True)
class Flips:
    """The effect of other cuts of a sentence. Losses: nats per target symbol, </s> counted."""

    source: str
    target: str
    symbols: list[str]  # the source's, as its vocabulary has them
    cuts: list[bool]  # the model's own, at each gap between two symbols
    soft: float  # the loss with these cuts as the model makes them
    hard: float  # the loss with the same cuts given to it
    flipped: list[float | None]  # the loss with this gap flipped; None where the segmenter keeps it as it is
    greedy: list[int]  # gaps flipped one after the other, the best first, each while it gains
    reached: float  # the loss after these
    pull: Pull | None  # None where the segmenter has no scores that learn

    @property
    def hardening(self) -> float:
        """The cost of making the model's own cuts hard; exactly 0 if they are hard."""
        return self.hard - self.soft

    @property
    def best(self) -> float:
        """The gain of the best single flip; negative where every flip costs."""
        return max((-change for change in self.changes if change is not None), default=0.0)

    @property
    def gain(self) -> float:
        """The gain of the greedy flips together."""
        return self.hard - self.reached

    @property
    def changes(self) -> list[float | None]:
        """The change of the loss by each flip; negative: it gains."""
        return [None if loss is None else loss - self.hard for loss in self.flipped]


@dataclass(frozen=True)
class FlipStatistics:
    """Flips of several sentences. Losses and gains are means over sentences, in nats per target symbol."""

    sentences: int
    gaps: int
    soft: float
    hard: float
    hardening: float
    best: float  # the gain of the best single flip
    greedy: float  # the gain of greedy flips
    rounds: float  # how many these are
    gaining: float | None  # the share of gaps whose flip gains
    compared: int  # gaps whose gradient is compared with their flip
    agreeing: float | None  # the share of these whose signs agree
    weighted: float | None
    cosine: float | None


def flips(
    model: Translator,
    source: str,
    target: str,
    rounds: int = ROUNDS,
    cuts: GivenCuts = None,
    check: Check | None = None,
) -> Flips:
    """Cut or join every gap of a sentence, one at a time and then greedily in at most so many `rounds`.

    `cuts`, as an entry of `Translator.process`, are flipped in place of the model's own. `check` is called
    before each batch of flips; it may raise to end the work.
    """
    if not (isinstance(source, str) and isinstance(target, str)):
        raise TypeError("flips takes one sentence and its translation; all_flips takes several")
    return all_flips(model, [source], [target], rounds, None if cuts is None else [cuts], check)[0]


def all_flips(
    model: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    rounds: int = ROUNDS,
    cuts: Sequence[GivenCuts] | None = None,
    check: Check | None = None,
) -> list[Flips]:
    """`flips` of several sentences, whose rows share batches; an empty source has none."""
    if not model.segmenter.takes_cuts:
        raise ValueError(f"{model.segmenter.kind} takes no cuts that could be flipped")
    if any(not source for source in sources):
        raise ValueError("an empty source has no gaps that could be flipped")
    pairs = Pairs.of(model, model.batch(sources, targets, cuts), check)
    with resting(model), torch.no_grad():
        search = FlipSearch(pairs)
        flipped = search.flipped
        for _ in range(rounds):
            if not search.step():
                break
        pulls = _pulls(pairs, search.cuts, flipped - search.hard[:, None])
    results = []
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        spans = model.src_vocabulary.encode_spans(source)[1]
        gaps = max(0, len(spans) - 1)
        losses = flipped[i, :gaps].tolist()
        results.append(
            Flips(
                source=source,
                target=target,
                symbols=[source[start:end] for start, end in spans],
                cuts=search.cuts[i, :gaps].tolist(),
                soft=float(search.soft[i]),
                hard=float(search.hard[i]),
                flipped=[None if math.isnan(loss) else loss for loss in losses],
                greedy=search.taken[i],
                reached=float(search.loss[i]),
                pull=None if pulls is None else pulls[i],
            )
        )
    return results


class FlipSearch:
    """Greedy flips of all sentences at once: one batch per round."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs, self.inner = pairs, pairs.inner
        count, device = len(pairs.batch), pairs.batch.src.device
        rows = torch.arange(count, device=device)
        self.cuts = torch.zeros_like(self.inner)  # [B, T]
        self.marks = torch.zeros_like(pairs.batch.src, dtype=torch.int8)  # 0: free
        self.soft = torch.zeros(count, dtype=torch.float64, device=device)
        self.hard = torch.zeros_like(self.soft)
        for part in pairs.chunks(rows):
            self.soft[part], segments = pairs.forced(part)
            self.cuts[part, : segments.ends.shape[1]] = segments.ends
            self.marks[part] = torch.where(self.cuts[part], 1, -1).to(torch.int8) * self.inner[part]
            self.hard[part] = pairs.losses(part, given=self.marks[part])
        self.cuts &= self.inner
        self.taken: list[list[int]] = [[] for _ in range(count)]
        self.loss, self.flipped = self.hard.clone(), self.flip(rows)
        self.next = self.flipped

    def flip(self, going: Tensor) -> Tensor:
        """The losses [B, T] of sentences that are `going` on, with each gap flipped; nan elsewhere."""
        at, gaps = self.inner[going].nonzero().T
        rows = going[at]
        marks, lines = self.marks[rows], torch.arange(len(rows), device=rows.device)
        marks[lines, gaps] *= -1
        flipped = torch.full(self.inner.shape, math.nan, dtype=torch.float64, device=rows.device)
        for part in self.pairs.chunks(rows):
            losses, segments = self.pairs.forced(rows[part], given=marks[part])
            # A segmenter may keep a cut whatever is given, as ACT-ENC does after symbols in `cut_after`.
            moved = segments.ends.gather(1, gaps[part, None])[:, 0] == (marks[part, gaps[part]] > 0)
            flipped[rows[part], gaps[part]] = torch.where(moved, losses, math.nan)
        return flipped

    def step(self) -> bool:
        """Make the best flip of each sentence that has one which gains; whether there was any."""
        losses, gaps = self.next.nan_to_num(math.inf).min(1)
        gains = losses < self.loss - NEGLIGIBLE
        going = gains.nonzero()[:, 0]
        if not len(going):
            return False
        for i, gap in zip(going.tolist(), gaps[going].tolist(), strict=True):
            self.taken[i].append(gap)
        self.marks[going, gaps[going]] *= -1
        self.loss = torch.where(gains, losses, self.loss)
        self.next = self.flip(going)
        return True


def _pulls(pairs: Pairs, cuts: Tensor, changes: Tensor) -> list[Pull] | None:
    """The gradient with respect to the scores at each gap, beside the change that a flip makes [B, T]."""
    if not pairs.model.segmenter.shiftable:
        return None
    rows = torch.arange(len(cuts), device=cuts.device)
    dtype = next(pairs.model.parameters()).dtype
    slopes = torch.zeros(cuts.shape, dtype=torch.float64, device=cuts.device)
    for part in pairs.chunks(rows):
        slopes[part] = pairs.slopes(part, torch.zeros_like(slopes[part], dtype=dtype))[1].double()
    costs = torch.where(cuts, -changes, changes)  # of a cut here: L(cut) - L(joined)
    pulls = []
    for slope, cost, inner in zip(slopes, costs, pairs.inner, strict=True):
        gradient, finite = slope[inner], cost[inner].nan_to_num(0.0)
        agreement = _agreement(gradient, finite)
        pulls.append(Pull(gradient.tolist(), *agreement))
    return pulls


def _agreement(gradient: Tensor, cost: Tensor) -> tuple[int, float | None, float | None, float | None]:
    """Gaps compared, the share of signs that agree, the same weighted by the cost, and the cosine."""
    compared = (gradient != 0) & (cost.abs() > NEGLIGIBLE)
    if not bool(compared.any()):
        return 0, None, None, None
    agree, size = ((gradient * cost) > 0)[compared].double(), cost[compared].abs()
    cosine = float(gradient @ cost / (gradient.norm() * cost.norm()))
    return int(compared.sum()), float(agree.mean()), float(agree @ size / size.sum()), cosine


def flip_statistics(sentences: Sequence[Flips]) -> FlipStatistics:
    """Means over sentences; the agreement with the gradient over all of their gaps."""
    changes = [change for one in sentences for change in one.changes if change is not None]
    compared_gaps = [
        (slope, change * (-1 if cut else 1))
        for one in sentences
        if one.pull is not None
        for slope, change, cut in zip(one.pull.gradient, one.changes, one.cuts, strict=True)
        if change is not None
    ]
    gradient, cost = torch.tensor(compared_gaps, dtype=torch.float64).reshape(-1, 2).T
    compared, agreeing, weighted, cosine = _agreement(gradient, cost)
    return FlipStatistics(
        sentences=len(sentences),
        gaps=sum(len(one.cuts) for one in sentences),
        soft=fmean(one.soft for one in sentences),
        hard=fmean(one.hard for one in sentences),
        hardening=fmean(one.hardening for one in sentences),
        best=fmean(one.best for one in sentences),
        greedy=fmean(one.gain for one in sentences),
        rounds=fmean(len(one.greedy) for one in sentences),
        gaining=fmean(change < -NEGLIGIBLE for change in changes) if changes else None,
        compared=compared,
        agreeing=agreeing,
        weighted=weighted,
        cosine=cosine,
    )
