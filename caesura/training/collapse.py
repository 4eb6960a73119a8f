"""Segments that collapse: to single symbols, to a few per sentence, or away from the length asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from caesura.evaluation.boundaries import segment_length
from caesura.evaluation.evaluate import Evaluation
from caesura.evaluation.rates import TOLERANCE, rate_error
from caesura.inference import Translator
from caesura.output import Segmentation

Kind = Literal["", "single", "long", "off"]

# Where each kind begins and ends: a run that stays near a bound gets one warning.
SINGLE, SINGLE_OVER = 1.15, 1.3  # symbols per segment
LONG, LONG_OVER = 20.0, 15.0  # symbols per segment
FEW, FEW_OVER = 1.5, 2.0  # segments per sentence
OFF, OFF_OVER = TOLERANCE, TOLERANCE / 2  # of the target length
SHORT = 8.0  # symbols per sentence: in shorter text, one segment per sentence may be right


@dataclass(frozen=True)
class CutCounts:
    """Cuts of a text in numbers."""

    symbols: int  # </s> left out
    segments: int  # without segments of </s> alone
    sentences: int  # without empty ones

    @classmethod
    def of(cls, cuts: Iterable[Segmentation]) -> CutCounts:
        """The counts over a text's sentences."""
        filled = [cut for cut in cuts if cut.ends]
        segments = segment_length(cut.covered for cut in filled).segments
        return cls(sum(len(cut.ends) for cut in filled), segments, len(filled))

    @property
    def length(self) -> float:
        """Symbols per segment."""
        return self.symbols / max(1, self.segments)


def collapse(counts: CutCounts, before: str) -> Kind:
    """How free segments have collapsed, if they have; `before` is the result of the last validation."""
    if not counts.segments or counts.symbols < 2 * counts.sentences:
        return ""
    if counts.length <= (SINGLE_OVER if before == "single" else SINGLE):
        return "single"
    if counts.symbols < SHORT * counts.sentences:
        return ""
    again = before == "long"
    few = counts.segments <= (FEW_OVER if again else FEW) * counts.sentences
    return "long" if few or counts.length >= (LONG_OVER if again else LONG) else ""


def departure(length: float, target: float, before: str) -> Kind:
    """Whether segments of this length are off the target length."""
    return "off" if abs(rate_error(length, target)) > (OFF_OVER if before == "off" else OFF) else ""


def watch(
    model: Translator, evaluation: Evaluation, before: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """How parts of the model have collapsed at a validation, and a notice of each new collapse.

    Only learned cuts and cuts at a target rate can collapse; `before` is the result of the last validation.
    """
    kinds: dict[str, str] = {}
    notices, data = [], model.config.data
    segmenter, target = model.segmenter, evaluation.target
    if target is not None:
        kinds["segmenter"] = departure(evaluation.segments.mean, target, before.get("segmenter", ""))
        if kinds["segmenter"] and not before.get("segmenter"):
            short = evaluation.segments.mean < target
            remedy = f"{'raise' if short else 'lower'} data.cuts.target"  # a rate of cuts that are given
            if segmenter.control is not None:
                remedy = segmenter.remedy(short, 0.0)
            notices.append(f"segments do not have the length that is asked for: {remedy}")
    elif segmenter.learns:
        counts = CutCounts.of(output.segmentation for output in evaluation.outputs)
        kind = kinds["segmenter"] = collapse(counts, before.get("segmenter", ""))
        if kind and kind != before.get("segmenter"):
            remedy = segmenter.remedy(kind == "single", model.tau.value.item())
            notices.append(f"{_shape('segments', kind, counts, data.src.level)}: {remedy}")
    if model.decoder.segmenting:
        counts = CutCounts.of(output.targets[0] for output in evaluation.outputs if output.targets)
        kind = kinds["decoder"] = collapse(counts, before.get("decoder", ""))
        if kind and kind != before.get("decoder"):
            single = kind == "single"
            setting = "tau" if model.decoder_tau.value.item() > 0 or not single else "halting_bias"
            remedy = f"{'lower' if single else 'raise'} model.decoder.{setting}"
            notices.append(f"{_shape('output segments', kind, counts, data.trg.level)}: {remedy}")
    return {part: kind for part, kind in kinds.items() if kind}, notices


def _shape(what: str, kind: str, counts: CutCounts, level: str) -> str:
    symbols = "characters" if level == "char" else "symbols"
    if kind == "single":
        return f"{what} are single {symbols} ({counts.length:.2f} per segment)"
    each = counts.segments / counts.sentences
    return f"{what} have {counts.length:.1f} {symbols}, and a sentence has {each:.1f} of them"
