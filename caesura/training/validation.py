"""The result of a validation: figures, some sentences, and how they are logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from caesura.evaluation.evaluate import Evaluation
from caesura.evaluation.rates import off_rate
from caesura.inference import Translator
from caesura.output import Output
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.figures import LIVE
from caesura.training.checkpoint import Progress
from caesura.training.interrupt import Stop
from caesura.training.schedule import Verdict
from caesura.training.world import World


class ValidationExample(NamedTuple):
    """A sentence of the dev set as the model cut and translated it."""

    source: str
    output: Output
    reference: str


@dataclass(frozen=True)
class Validation:
    """The logged figures of a validation."""

    update: int
    sentences: int
    epoch: int
    seconds: float
    learning_rate: float
    bleu: float
    chrf: float
    exact: float
    segment_length: float
    target_length: float | None  # None: there is no target
    longest_segment: int
    figures: dict[str, float]  # the segmenter's, by name
    output_segment_length: float | None  # of the translations; None where the decoder does not cut
    longest_output_segment: int | None
    output_live: float | None
    boundary_f1: float | None
    verdict: Verdict
    headline: list[str]  # the figures that are worth a place in one line, as text
    notices: list[str]  # of segments that have collapsed since the last validation
    remark: str | None  # on the cuts, for the end of training if this stays the best model

    def columns(self) -> dict[str, Any]:
        """All numbers by name, in one row."""
        values = asdict(self)
        del values["headline"], values["notices"], values["remark"]
        return {k: v for name, value in values.items() for k, v in _flat(name, value)}


def translated(
    model: Translator, sources: Sequence[str], progress: Callable[[int], None], world: World
) -> list[Output] | None:
    """The greedy translations, made by all processes; process 0 returns them, the others an empty list.

    None if `progress` has stopped a process. The batches are those of a single process.
    """
    outputs: list[Output] | None = None
    with suppress(Stop):
        outputs = model.process(sources, model.searcher(beam=1), progress, share=(world.rank, world.size))
    if world.any(outputs is None):
        return None
    shares = world.gathered(outputs or [])
    if shares is None:
        return []
    rows = zip(*shares, strict=True)
    return [next((output for output in row if output.hypotheses), row[0]) for row in rows]


def summarise(
    progress: Progress,
    rate: float,
    evaluation: Evaluation,
    verdict: Verdict,
    segmenter: BaseSegmenter,
    notices: Sequence[str] = (),
) -> Validation:
    """The figures of an evaluation at this point of training, reached with this learning rate."""
    boundaries = evaluation.boundaries["model"] if evaluation.boundaries else None
    written = evaluation.output_segments
    return Validation(
        update=progress.update,
        sentences=progress.sentences,
        epoch=progress.epoch,
        seconds=round(progress.seconds, 2),
        learning_rate=rate,
        bleu=evaluation.scores.bleu,
        chrf=evaluation.scores.chrf,
        exact=evaluation.scores.exact,
        segment_length=evaluation.segments.mean,
        target_length=evaluation.target,
        longest_segment=evaluation.segments.longest,
        figures=evaluation.figures,
        output_segment_length=written.mean if written else None,
        longest_output_segment=written.longest if written else None,
        output_live=evaluation.output_live,
        boundary_f1=boundaries.f1 if boundaries else None,
        verdict=verdict,
        headline=[
            f"{figure.heading} {figure.shown(evaluation.figures[figure.name])}"
            for figure in segmenter.figures
            if figure.headline and figure.name in evaluation.figures
        ],
        notices=[*notices],
        remark=_remark(evaluation, segmenter),
    )


def _remark(evaluation: Evaluation, segmenter: BaseSegmenter) -> str | None:
    """The segmenter's remark, and one on segments that miss their target length."""
    advice = segmenter.remark(evaluation.figures.get(LIVE.name), evaluation.segments.mean, first=False)
    off = off_rate(evaluation.segments.mean, evaluation.target)
    remarks = [advice, f"the best model is off its rate: {off}" if off else None]
    return "\n".join(filter(None, remarks)) or None


def _flat(name: str, value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else [(name, value)]


def log_record(
    validation: Validation, evaluation: Evaluation, examples: Sequence[ValidationExample]
) -> dict[str, Any]:
    """All of it as a line of metrics.jsonl."""
    values = validation.columns()
    del values["update"]
    if evaluation.boundaries is not None:
        values["boundaries"] = {name: asdict(row) for name, row in evaluation.boundaries.items()}
    values["examples"] = [
        {
            "source": source,
            "pieces": output.segmentation.shown,
            "translation": output.best,
            "translation_pieces": output.targets[0].shown if output.targets else None,
            "reference": reference,
        }
        for source, output, reference in examples
    ]
    texts = {"headline": validation.headline, "notices": validation.notices}
    return {**values, **texts, "signatures": evaluation.scores.signatures}
