"""All measures of a model on a text: scores, segments, boundaries."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from caesura.evaluation.boundaries import BoundaryScores, SegmentLength, boundary_table, segment_length
from caesura.evaluation.scores import Scores, score
from caesura.inference import Search, Translator
from caesura.output import Output, Segmentation
from caesura.segmenters.figures import FigureSums


@dataclass(frozen=True)
class Evaluation:
    """A model on a text."""

    scores: Scores
    segments: SegmentLength
    figures: dict[str, float]  # the segmenter's figures of its cuts, by name
    output_segments: SegmentLength | None  # of the translations; None where the decoder does not cut
    output_live: float | None  # of their characters: where the loss reaches the decoder's cuts
    # The model's row first, then trivial ones; None without gold boundaries.
    boundaries: dict[str, BoundaryScores] | None
    outputs: list[Output]
    target: float | None = None  # target characters per segment; None: no target

    def record(self) -> dict[str, Any]:
        """The figures, for JSON."""
        rows = self.boundaries.items() if self.boundaries is not None else ()
        return {
            "scores": asdict(self.scores),
            "segments": asdict(self.segments) | {"target": self.target},
            "figures": self.figures,
            "output_segments": None if self.output_segments is None else asdict(self.output_segments),
            "output_live": self.output_live,
            "boundaries": {name: asdict(row) for name, row in rows} or None,
        }


@contextmanager
def _uncollected() -> Iterator[None]:
    """Turn garbage collection off: it would visit all numbers of all lines many times, and find no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def evaluate(
    model: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    gold: Sequence[Sequence[int]] | None = None,
    search: Search | None = None,
    progress: Callable[[int], None] | None = None,
    outputs: list[Output] | None = None,
) -> Evaluation:
    """Translate `sources` with `search` (by default the configured beam search) and measure the result.

    If `outputs` are given, they are measured instead.
    """
    testing = model.config.testing
    if outputs is None:
        outputs = model.process(sources, search or model.searcher(), progress)
    cuts = [output.segmentation for output in outputs]
    written = [output.targets[0] for output in outputs if output.targets]
    boundaries = None
    if gold is not None:
        boundaries = boundary_table(sources, [cut.bounds for cut in cuts], gold)
    return Evaluation(
        scores=score(
            [output.best for output in outputs], references, testing.bleu_tokenize, testing.lowercase
        ),
        segments=segment_length(cut.covered for cut in cuts),
        figures=figure_values(cuts),
        output_segments=segment_length(cut.covered for cut in written) if model.decoder.segmenting else None,
        output_live=output_live(written),
        boundaries=boundaries,
        outputs=outputs,
        target=model.target_length,
    )


def figure_values(cuts: Iterable[Segmentation]) -> dict[str, float]:
    """The segmenter's figures of these cuts, by name, without those that have no values."""
    sums = FigureSums()
    for cut in cuts:
        sums.add(cut.figures)
    return sums.values()


def output_live(cuts: Iterable[Segmentation]) -> float | None:
    """The share of written characters whose score has a gradient: all that end no segment."""
    ends = [cut.ends for cut in cuts if cut.scores is not None]
    count = sum(map(len, ends))
    return sum(sentence.count(False) for sentence in ends) / count if count else None
