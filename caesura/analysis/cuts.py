"""Measurements of a model's cuts without a report: where they fall, and the effect of moving them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from caesura.analysis.agreement import Agreement, Agreements, with_own_text
from caesura.analysis.findings import plain
from caesura.analysis.gold import Gold
from caesura.analysis.lines import Line, Sample, subsample
from caesura.analysis.moved import Moved, StageReport, move_some
from caesura.analysis.places import KeptCuts, Surprisal, learn_ngrams, surprisal
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.output import Segmentation

LINES = 10_000  # whose segments are counted, at most
KEPT = 1_000  # lines whose cuts are kept and whose surprisal is measured, at most


@dataclass(frozen=True)
class CutMeasures:
    """Measurements of a model's cuts on one text."""

    moved: Moved | None
    boundaries: list[Agreement]  # against each reference that has boundaries: white space, gold
    surprisal: Surprisal | None  # None where the training text is not there, or nothing is cut
    kept: KeptCuts

    def record(self) -> dict[str, Any]:
        """All of it, for JSON; null where there is no number."""
        boundaries = {}
        for table in self.boundaries:
            model = table.rows["model"]
            scores = {"f1": model.f1, "precision": model.precision, "recall": model.recall}
            boundaries[table.reference] = {**scores, "chance": table.chance}
        counts: dict[str, Any] = {"sentences": 0, "fidelity": None, "flips": None}
        bits = self.surprisal
        return {
            **counts,
            **(plain(self.moved) if self.moved else {}),
            "boundaries": plain(boundaries),
            "surprisal": None if bits is None else plain(bits) | {"enrichment": bits.enrichment},
            "cuts": self.kept.record(),
        }


def segmented(
    model: Translator, lines: Iterable[Line], text: str, seed: int, report: StageReport
) -> tuple[list[Line], dict[int, Segmentation]]:
    """The sentences of a `text`, or of 10,000 of its lines, and how the model cuts them, by line number."""
    sample = Sample(LINES, seed)
    for line in lines:
        sample.add(line)
    filled = [line for line in sample.lines if line.source.strip()]
    if not filled:
        raise InputError(f"{text}: no sentences to analyse")
    sources = [line.source for line in filled]
    outputs = model.process(sources, None, lambda done: report("segmenting", done, len(filled)))
    return filled, {line.number: out.segmentation for line, out in zip(filled, outputs, strict=True)}


def measure_cuts(
    model: Translator,
    lines: Iterable[Line],
    text: str,
    moved: int,
    seed: int = 1,
    report: StageReport = lambda *_: None,
    gold: Gold | None = None,
    training: Iterable[str] = (),
) -> CutMeasures:
    """Boundaries on the lines of a `text`, or a sample of 10,000; of `moved` of these the cuts are moved.

    `training`: the source side of the training text, which says what is surprising.
    """
    filled, segmentations = segmented(model, lines, text, seed, report)
    bounds = {number: segmentation.bounds for number, segmentation in segmentations.items()}
    agreements = Agreements(None, gold)
    for line in filled:
        agreements.add(line.number, line.source, bounds[line.number], None)
    tables = with_own_text(agreements.result(), model, gold)
    some = subsample(filled, KEPT, seed)
    texts, cuts = [line.source for line in some], [bounds[line.number] for line in some]
    ngrams = learn_ngrams(training)
    bits = None if ngrams is None else surprisal(ngrams, texts, cuts)
    return CutMeasures(move_some(model, filled, moved, seed, report), tables, bits, KeptCuts.of(texts, cuts))
