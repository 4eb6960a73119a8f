"""What a validation finds: its figures, some sentences, and how they are logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from caesura.evaluation.evaluate import Evaluation
from caesura.evaluation.rates import off_rate
from caesura.output import Output
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.figures import LIVE
from caesura.training.checkpoint import Progress
from caesura.training.schedule import Verdict


class ValidationExample(NamedTuple):
    """A sentence of the dev set as the model cut and translated it."""

    source: str
    output: Output
    reference: str


@dataclass(frozen=True)
class Validation:
    """What a validation found, as it is logged."""

    update: int
    sentences: int
    epoch: int
    seconds: float
    learning_rate: float
    bleu: float
    chrf: float
    exact: float
    segment_length: float
    target_length: float | None  # the one that was asked for; None: no rate is
    longest_segment: int
    figures: dict[str, float]  # the segmenter's, by name
    output_segment_length: float | None  # of the translations; None where the decoder does not cut
    longest_output_segment: int | None
    output_live: float | None
    boundary_f1: float | None
    verdict: Verdict
    headline: list[str]  # the figures that are worth a place in one line, as text
    notices: list[str]  # of segments that have collapsed since the last validation
    remark: str | None  # what is to be said of the cuts, should this stay the best model

    def columns(self) -> dict[str, Any]:
        """All numbers by name, in one row."""
        values = asdict(self)
        del values["headline"], values["notices"], values["remark"]
        return {k: v for name, value in values.items() for k, v in _flat(name, value)}


def summarise(
    progress: Progress,
    rate: float,
    found: Evaluation,
    verdict: Verdict,
    segmenter: BaseSegmenter,
    notices: Sequence[str] = (),
) -> Validation:
    """The figures of an evaluation at this point of training, reached with this learning rate."""
    own = found.boundaries["model"] if found.boundaries else None
    written = found.output_segments
    return Validation(
        update=progress.update,
        sentences=progress.sentences,
        epoch=progress.epoch,
        seconds=round(progress.seconds, 2),
        learning_rate=rate,
        bleu=found.scores.bleu,
        chrf=found.scores.chrf,
        exact=found.scores.exact,
        segment_length=found.segments.mean,
        target_length=found.target,
        longest_segment=found.segments.longest,
        figures=found.figures,
        output_segment_length=written.mean if written else None,
        longest_output_segment=written.longest if written else None,
        output_live=found.output_live,
        boundary_f1=own.f1 if own else None,
        verdict=verdict,
        headline=[
            f"{figure.heading} {figure.shown(found.figures[figure.name])}"
            for figure in segmenter.figures
            if figure.headline and figure.name in found.figures
        ],
        notices=[*notices],
        remark=_remark(found, segmenter),
    )


def _remark(found: Evaluation, segmenter: BaseSegmenter) -> str | None:
    """The segmenter's own, and whether its segments are of the length that was asked for."""
    own = segmenter.remark(found.figures.get(LIVE.name), found.segments.mean, first=False)
    off = off_rate(found.segments.mean, found.target)
    said = [own, f"the best model is off its rate: {off}" if off else None]
    return "\n".join(filter(None, said)) or None


def _flat(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else [(name, value)]


def log_record(
    validation: Validation, found: Evaluation, examples: Sequence[ValidationExample]
) -> dict[str, Any]:
    """All of it as a line of metrics.jsonl."""
    values = validation.columns()
    del values["update"]
    if found.boundaries is not None:
        values["boundaries"] = {name: asdict(row) for name, row in found.boundaries.items()}
    values["examples"] = [
        {
            "source": source,
            "pieces": output.segmentation.pieces,
            "translation": output.best,
            "translation_pieces": output.targets[0].pieces if output.targets else None,
            "reference": reference,
        }
        for source, output, reference in examples
    ]
    texts = {"headline": validation.headline, "notices": validation.notices}
    return {**values, **texts, "signatures": found.scores.signatures}
