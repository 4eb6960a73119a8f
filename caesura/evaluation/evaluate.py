"""Everything that is measured of a model on a text: scores, segments, boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from caesura.evaluation.boundaries import BoundaryScores, SegmentLength, boundary_table, segment_length
from caesura.evaluation.scores import Scores, score
from caesura.model import Output, Search, Translator


@dataclass(frozen=True)
class Evaluation:
    """A model on a text."""

    scores: Scores
    segments: SegmentLength
    gradient_share: float | None  # of characters, whose halting score gets a gradient; None: no halting unit
    boundaries: (
        dict[str, BoundaryScores] | None
    )  # the model's row first, then trivial ones; None without gold
    outputs: list[Output]

    def record(self) -> dict[str, Any]:
        """The figures, for JSON."""
        rows = self.boundaries.items() if self.boundaries is not None else ()
        return {
            "scores": asdict(self.scores),
            "segments": asdict(self.segments),
            "gradient_share": self.gradient_share,
            "boundaries": {name: asdict(row) for name, row in rows} or None,
        }


def evaluate(
    model: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    gold: Sequence[Sequence[int]] | None = None,
    search: Search | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Translate `sources` with `search` (by default the configured beam search) and measure the result."""
    testing = model.config.testing
    outputs = model.process(sources, search or model.searcher(), progress)
    boundaries = None
    if gold is not None:
        boundaries = boundary_table(sources, [output.segmentation.bounds for output in outputs], gold)
    return Evaluation(
        scores=score(
            [output.best for output in outputs], references, testing.bleu_tokenize, testing.lowercase
        ),
        segments=segment_length(output.segmentation.covered for output in outputs),
        gradient_share=gradient_share(outputs),
        boundaries=boundaries,
        outputs=outputs,
    )


def gradient_share(outputs: Sequence[Output]) -> float | None:
    """The share of source characters whose halting score gets a gradient: those that end no segment.

    At 0 the halting unit cannot learn any more: nothing pulls it back from single characters.
    """
    cuts = [output.segmentation for output in outputs if output.segmentation.scores is not None]
    characters = sum(len(cut.ends) for cut in cuts)
    return sum(end is False for cut in cuts for end in cut.ends) / characters if characters else None
