"""The scores of a cutter, such as a halting unit: along a sentence, over a text, and in training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.analysis.characters import visible
from caesura.inference import Translator
from caesura.output import Segmentation
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.figures import LIVE, FigureSums
from caesura.training.journal import read_records

BINS = 20


@dataclass(frozen=True)
class HaltingTrace:
    """The scores along one sentence, the running sum that they add up to, and where segments end."""

    labels: list[str]  # one per symbol; </s> is left out
    scores: list[float]
    sums: list[float] | None  # after each symbol of its segment; None: scores are not summed
    halts: list[bool]
    threshold: float | None  # the sum at which a segment ends


@dataclass(frozen=True)
class HaltingStatistics:
    """The scores of a text."""

    symbols: int
    mean: float
    halting: list[int]  # symbols that end a segment, by score: BINS of equal width from 0 to 1
    going_on: list[int]  # symbols that do not
    live: float | None  # share of characters at which the loss reaches the cutter; None: nothing learns
    unit: bool = True  # whether it is a halting unit: a sum that starts again from 0 at each end
    cut_after: str = ""  # characters that end a segment whatever their score is

    @property
    def learns(self) -> bool:
        """Whether training moves the scores."""
        return self.live is not None


@dataclass(frozen=True)
class History:
    """One training run from its log; lists of one length, nan for missing values."""

    sentences: list[float]  # training sentences seen, at the start and at each validation
    segment_length: list[float]
    bleu: list[float]
    exact: list[float]  # share of the dev set that is translated exactly as its reference
    live: list[float] | None  # share of characters at which the loss reaches the cutter; None: nothing learns
    penalty_at: list[float]  # training sentences seen where the penalty was logged
    penalty: list[float]  # the segmenter's, mean over sentences, before tau


def halting_trace(model: Translator, text: str, cut: Segmentation) -> HaltingTrace | None:
    """The scores of one sentence; None where the segmenter has none."""
    if cut.scores is None:
        return None
    spans, segmenter = model.src_vocabulary.encode_spans(text)[1], model.segmenter
    return HaltingTrace(
        labels=[visible(text[start:end]) for start, end in spans],
        scores=cut.scores,
        sums=None if segmenter.sums_to is None else _sums(cut, segmenter.sums_to, segmenter.carries),
        halts=cut.ends,
        threshold=segmenter.sums_to,
    )


def _sums(cut: Segmentation, threshold: float, carries: bool) -> list[float]:
    """The sum after each symbol; the next segment starts from 0, or from the excess of the last one."""
    sums, running = [], 0.0
    for score, end in zip(cut.scores or (), cut.ends, strict=True):
        running += score
        sums.append(running)
        if end:
            running = max(0.0, running - threshold) if carries else 0.0
    return sums


def has_halting_unit(segmenter: BaseSegmenter) -> bool:
    """Whether its scores halt: summed within each segment, from 0."""
    return segmenter.sums_to is not None and not segmenter.carries


class HaltingTally:
    """Counts scores and figures sentence by sentence."""

    def __init__(self, unit: bool = True, cut_after: str = "") -> None:
        self._unit, self._cut_after = unit, cut_after
        self._figures = FigureSums()
        self._bins = {True: [0] * BINS, False: [0] * BINS}
        self._total = 0.0

    def add(self, cut: Segmentation) -> None:
        """Count the scores of one sentence."""
        for score, end in zip(cut.scores or (), cut.ends, strict=False):
            self._bins[end][min(int(score * BINS), BINS - 1)] += 1
            self._total += score
        self._figures.add(cut.figures)

    def figures(self) -> dict[str, float]:
        """The segmenter's figures over the text, by name; those with nothing to count are left out."""
        return self._figures.values()

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
            live=self.figures().get(LIVE.name),
            unit=self._unit,
            cut_after=self._cut_after,
        )


def history(folder: Path) -> History | None:
    """The training run of a model folder, from its metrics.jsonl; None where that is not there."""
    records = read_records(folder)
    points = [r for r in records if r["kind"] in ("start", "validation")]
    logged = [r for r in records if r["kind"] == "train"]
    if not any(r["kind"] == "validation" for r in points):
        return None
    shares = [_number(r.get(LIVE.name)) for r in points]
    return History(
        sentences=[_number(r.get("sentences", 0)) for r in points],
        segment_length=[_number(r.get("segment_length")) for r in points],
        bleu=[_number(r.get("bleu")) for r in points],
        exact=[_number(r.get("exact")) for r in points],
        live=None if all(map(math.isnan, shares)) else shares,
        penalty_at=[_number(r.get("sentences")) for r in logged],
        penalty=[_number(r.get("penalty")) for r in logged],
    )


def _number(value: Any) -> float:
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan
