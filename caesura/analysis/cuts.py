"""Measurements of a model's cuts without a report: boundaries, and the effect of moving cuts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from caesura.analysis.agreement import Agreement, Agreements
from caesura.analysis.findings import plain
from caesura.analysis.lines import Line, Sample
from caesura.analysis.moved import Moved, StageReport, move_some
from caesura.errors import InputError
from caesura.inference import Translator

LINES = 10_000  # whose boundaries are counted, at most
REFERENCE = "white space"


@dataclass(frozen=True)
class CutMeasures:
    """Measurements of a model's cuts on one text."""

    moved: Moved | None
    boundaries: Agreement | None  # against white space; None where the text has none

    def record(self) -> dict[str, Any]:
        """All of it, for JSON; null where there is no number."""
        moved, table = self.moved, self.boundaries
        boundaries = {}
        if table is not None:
            model = table.rows["model"]
            scores = {"f1": model.f1, "precision": model.precision, "recall": model.recall}
            boundaries[table.reference] = {**scores, "chance": table.chance}
        counts: dict[str, Any] = {"sentences": 0, "fidelity": None, "flips": None}
        return {**counts, **(plain(moved) if moved else {}), "boundaries": plain(boundaries)}


def measure_cuts(
    model: Translator,
    lines: Iterable[Line],
    text: str,
    moved: int,
    seed: int = 1,
    report: StageReport = lambda *_: None,
) -> CutMeasures:
    """Boundaries on the lines of a `text`, or a sample of 10,000; of `moved` of these the cuts are moved."""
    sample = Sample(LINES, seed)
    for line in lines:
        sample.add(line)
    kept = [line for line in sample.lines if line.source.strip()]
    if not kept:
        raise InputError(f"{text}: no sentences to analyse")
    sources = [line.source for line in kept]
    outputs = model.process(sources, None, lambda done: report("segmenting", done, len(kept)))
    agreements = Agreements(None, None)
    for line, output in zip(kept, outputs, strict=True):
        agreements.add(line.number, line.source, output.segmentation.bounds, None)
    spaces = next((table for table in agreements.result() if table.reference == REFERENCE), None)
    return CutMeasures(move_some(model, kept, moved, seed, report), spaces)
