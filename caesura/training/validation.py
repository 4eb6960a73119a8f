"""What a validation finds: its figures, some sentences, and how they are logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from caesura.evaluation.evaluate import Evaluation
from caesura.output import Output
from caesura.training.checkpoint import Progress
from caesura.training.schedule import Verdict


class Example(NamedTuple):
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
    longest_segment: int
    gradient_share: float | None
    output_segment_length: float | None  # of the translations; None where the decoder does not cut
    longest_output_segment: int | None
    output_gradient_share: float | None
    boundary_f1: float | None
    verdict: Verdict


def summarise(progress: Progress, rate: float, found: Evaluation, verdict: Verdict) -> Validation:
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
        longest_segment=found.segments.longest,
        gradient_share=found.gradient_share,
        output_segment_length=written.mean if written else None,
        longest_output_segment=written.longest if written else None,
        output_gradient_share=found.output_gradient_share,
        boundary_f1=own.f1 if own else None,
        verdict=verdict,
    )


def log_record(validation: Validation, found: Evaluation, examples: Sequence[Example]) -> dict[str, Any]:
    """All of it as a line of metrics.jsonl."""
    values = asdict(validation)
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
    return {**values, "signatures": found.scores.signatures}
