"""What a model costs: parameters, training time, speed, and the arithmetic of a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from caesura.analysis.speed import Speed
from caesura.inference import Translator


@dataclass(frozen=True)
class Cost:
    """The price of a model beside its quality."""

    parameters: int
    parts: dict[str, int]  # parameters of segmenter, encoder, decoder
    training_seconds: float | None  # to the best validation, as the model folder has it
    device: str  # on which the speeds were measured
    segmenting: Speed | None  # without a search: segmenter and encoder
    translating: Speed | None  # with the search that was used
    flops: dict[str, float] | None  # per sentence, by part; None where a part's formula is not known
    sizes: dict[str, float]  # means of a sentence: source symbols T, segments S, target symbols U


def flops(
    model: Translator, symbols: int, segments: int, targets: int, written: int | None = None
) -> dict[str, int] | None:
    """Floating-point operations of one sentence, teacher-forced or greedy; None where a part has no formula.

    Element-wise operations, softmax and look-ups are not counted; docs/analysis.md has the formulas. Source
    symbols, segments, target symbols and segments `written` (None: one per symbol) are all with </s>.
    """
    parts = {
        "segmenter": model.segmenter.flops(symbols, segments),
        "encoder": model.encoder.flops(segments),
        "decoder": model.decoder.flops(segments, targets, targets if written is None else written),
    }
    counted = {part: count for part, count in parts.items() if count is not None}
    return counted if len(counted) == len(parts) else None


def mean_flops(
    model: Translator, sizes: Iterable[tuple[int, ...]]
) -> tuple[dict[str, float] | None, dict[str, float]]:
    """The mean over sentences of T, S, U (and O) each, as `flops` counts them, and the means of the three."""
    total: dict[str, float] | None = {}
    sums, count = [0, 0, 0], 0
    for size in sizes:
        count += 1
        sums = [a + b for a, b in zip(sums, size, strict=False)]
        parts = flops(model, *size)
        if parts is None or total is None:
            total = None
        else:
            total = {part: total.get(part, 0) + n for part, n in parts.items()}
    means = {name: value / count if count else 0.0 for name, value in zip("TSU", sums, strict=True)}
    if not total:
        return None, means
    return {part: n / count for part, n in total.items()}, means


def part_sizes(model: Translator) -> dict[str, int]:
    """The parameters of each part."""
    parts = {"segmenter": model.segmenter, "encoder": model.encoder, "decoder": model.decoder}
    return {
        name: sum(p.numel() for p in part.parameters() if p.requires_grad) for name, part in parts.items()
    }
