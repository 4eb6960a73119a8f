"""What a model costs: parameters, training time, speed, and the arithmetic of a sentence."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from caesura.decoders.act import ActDecoder
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.model import Translator
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.lookup import LookupSegmenter
from caesura.training.journal import VALIDATIONS


@dataclass(frozen=True)
class Cost:
    """The price of a model beside its quality."""

    parameters: int
    parts: dict[str, int]  # parameters of segmenter, encoder, decoder
    training_seconds: float | None  # to the best validation, as the model folder has it
    device: str  # on which the speeds were measured
    segmenting: float | None  # sentences a second: segmenter and encoder
    translating: float | None  # sentences a second, with the search that was used
    flops: dict[str, float] | None  # a sentence, by part; None where a part's formula is not known
    sizes: dict[str, float]  # means of a sentence: source symbols T, segments S, target symbols U


def gru_flops(inputs: int, hidden: int) -> int:
    """One GRU step: three gates, each a product with the input and one with the state."""
    return 2 * 3 * hidden * (inputs + hidden)


def flops(
    model: Translator, symbols: int, segments: int, targets: int, written: int | None = None
) -> dict[str, int] | None:
    """Floating-point operations of one sentence, teacher-forced or greedy; None for parts of another kind.

    Element-wise operations, softmax and look-ups are not counted; docs/analysis.md has the formulas. Source
    symbols, segments, target symbols and segments `written` (None: one a symbol) are all with </s>.
    """
    segmenter, encoder, decoder = model.segmenter, model.encoder, model.decoder
    if isinstance(segmenter, LookupSegmenter):
        first = 0
    elif isinstance(segmenter, ActSegmenter):
        cell, width = segmenter.cell, segmenter.cell.hidden_size
        each = gru_flops(cell.input_size, width) + 2 * width
        first = symbols * each + segments * 2 * width * segmenter.output_dim
    else:
        return None
    if not isinstance(encoder, RecurrentEncoder):
        return None
    layers = [gru for gru in encoder.forwards if isinstance(gru, nn.GRU)]
    second = segments * sum(2 * gru_flops(gru.input_size, gru.hidden_size) for gru in layers)
    third = _decoder_flops(decoder, segments, targets, targets if written is None else written)
    return None if third is None else {"segmenter": first, "encoder": second, "decoder": third}


def _decoder_flops(decoder: nn.Module, segments: int, targets: int, written: int) -> int | None:
    if isinstance(decoder, RecurrentDecoder):
        moves, cell, each = targets, decoder.cell, 2 * decoder.output.weight.numel()
    elif isinstance(decoder, ActDecoder):
        moves, cell = written, decoder.outer
        layers = decoder.halting, decoder.output, decoder.symbols
        each = gru_flops(decoder.inner.input_size, decoder.inner.hidden_size)
        each += sum(2 * layer.weight.numel() for layer in layers)
    else:
        return None
    memory, inner = decoder.attention.key.in_features, decoder.attention.key.out_features
    move = 2 * cell.hidden_size * inner + 2 * segments * inner + 2 * segments * memory
    move += gru_flops(cell.input_size, cell.hidden_size)
    if isinstance(decoder, ActDecoder):
        between = (layer for layer in (decoder.enter, decoder.leave) if isinstance(layer, nn.Linear))
        move += sum(2 * layer.weight.numel() for layer in between)
    return segments * 2 * memory * inner + moves * move + targets * each


def mean_flops(
    model: Translator, sizes: Iterable[tuple[int, ...]]
) -> tuple[dict[str, float] | None, dict[str, float]]:
    """The mean over sentences of T, S, U (and O) each, as `flops` counts them, and the means of the three."""
    total: dict[str, float] | None = {}
    sums, count = [0, 0, 0], 0
    for size in sizes:
        count += 1
        sums = [a + b for a, b in zip(sums, size, strict=False)]
        found = flops(model, *size)
        if found is None or total is None:
            total = None
        else:
            total = {part: total.get(part, 0) + n for part, n in found.items()}
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


def training_seconds(folder: Path) -> float | None:
    """Seconds of training to the best validation, from the model folder's own log."""
    try:
        with (folder / VALIDATIONS).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        return float([row["seconds"] for row in rows if row["verdict"] == "best"][-1])
    except (OSError, KeyError, IndexError, ValueError):
        return None
