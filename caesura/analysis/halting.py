"""What the halting unit does: its scores along a sentence, their distribution, and their training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.analysis.characters import visible
from caesura.model import Translator
from caesura.output import Segmentation
from caesura.segmenters.act import ActSegmenter
from caesura.training.journal import read_records

BINS = 20


@dataclass(frozen=True)
class HaltingTrace:
    """The scores h_t along one sentence, the running sum that they add up to, and where it halts."""

    labels: list[str]  # one a symbol; </s> is left out
    scores: list[float]
    sums: list[float]  # H after each symbol of its segment; the next segment starts from 0
    halts: list[bool]
    threshold: float  # 1 - epsilon


@dataclass(frozen=True)
class HaltingStatistics:
    """The scores of a text."""

    symbols: int
    mean: float
    halting: list[int]  # symbols that end a segment, by score: BINS of equal width from 0 to 1
    going_on: list[int]  # symbols that do not, and whose score gets a gradient if the unit learns
    gradient_share: float  # of symbols whose score gets a gradient: those, or none
    learns: bool
    cut_after: str = ""  # characters that end a segment whatever their score is


@dataclass(frozen=True)
class History:
    """One training run as its log has it; lists of one length, nan where a value is missing."""

    sentences: list[float]  # training sentences seen, at the start and at each validation
    segment_length: list[float]
    bleu: list[float]
    exact: list[float]  # share of the dev set that is translated exactly as its reference
    gradient_share: list[float] | None  # None: no halting unit
    penalty_at: list[float]  # training sentences seen where the penalty was logged
    penalty: list[float]  # the segmenter's, mean over sentences, before tau


def halting_trace(model: Translator, text: str, cut: Segmentation) -> HaltingTrace | None:
    """The halting of one sentence; None where the segmenter has no halting unit."""
    if cut.scores is None or not isinstance(model.segmenter, ActSegmenter):
        return None
    spans = model.src_vocabulary.encode_spans(text)[1]
    sums, running = [], 0.0
    for score, end in zip(cut.scores, cut.ends, strict=True):
        running += score
        sums.append(running)
        if end:
            running = 0.0
    return HaltingTrace(
        labels=[visible(text[start:end]) for start, end in spans],
        scores=cut.scores,
        sums=sums,
        halts=cut.ends,
        threshold=1 - model.segmenter.epsilon,
    )


class HaltingTally:
    """Counts halting scores sentence by sentence."""

    def __init__(self, learns: bool = True, cut_after: str = "") -> None:
        self._learns = learns
        self._cut_after = cut_after
        self._bins = {True: [0] * BINS, False: [0] * BINS}
        self._total = 0.0

    def add(self, cut: Segmentation) -> None:
        """Count the scores of one sentence."""
        for score, end in zip(cut.scores or (), cut.ends, strict=False):
            self._bins[end][min(int(score * BINS), BINS - 1)] += 1
            self._total += score

    def result(self) -> HaltingStatistics | None:
        """The distribution; None where no symbol had a score."""
        symbols = sum(map(sum, self._bins.values()))
        if not symbols:
            return None
        return HaltingStatistics(
            symbols=symbols,
            mean=self._total / symbols,
            halting=self._bins[True],
            going_on=self._bins[False],
            gradient_share=self._learns * sum(self._bins[False]) / symbols,
            learns=self._learns,
            cut_after=self._cut_after,
        )


def history(folder: Path) -> History | None:
    """The training run of a model folder, from its metrics.jsonl; None where that is not there."""
    records = read_records(folder)
    points = [r for r in records if r["kind"] in ("start", "validation")]
    logged = [r for r in records if r["kind"] == "train"]
    if not any(r["kind"] == "validation" for r in points):
        return None
    shares = [_number(r.get("gradient_share")) for r in points]
    return History(
        sentences=[_number(r.get("sentences", 0)) for r in points],
        segment_length=[_number(r.get("segment_length")) for r in points],
        bleu=[_number(r.get("bleu")) for r in points],
        exact=[_number(r.get("exact")) for r in points],
        gradient_share=None if all(map(math.isnan, shares)) else shares,
        penalty_at=[_number(r.get("sentences")) for r in logged],
        penalty=[_number(r.get("penalty")) for r in logged],
    )


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan
