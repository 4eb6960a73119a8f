"""What a model costs: parameters, training time, speed, and the arithmetic of a sentence."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

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


def flops(model: Translator, symbols: int, segments: int, targets: int) -> dict[str, int] | None:
    """Floating-point operations of one sentence, teacher-forced or greedy; None for parts of another kind.

    A product of [m, n] with a vector is 2 m n; element-wise operations, softmax and look-ups are not counted.
    T source symbols, S segments and U target symbols are all with </s>. Beam search of K multiplies what the
    decoder does per target symbol by about K.

        lookup    0
        ACT-ENC   T (gru(E, A) + 2 A) + S 2 A D                       E embedding, A act_size, D output
        encoder   S Σ_layers 2 gru(D_layer, H)                        both directions
        decoder   S 2 M N + U (2 H N + 2 S N + 2 S M + gru(E + M, H) + 2 H V)      M memory, N attention
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
    if not isinstance(encoder, RecurrentEncoder) or not isinstance(decoder, RecurrentDecoder):
        return None
    layers = [gru for gru in encoder.forwards if isinstance(gru, nn.GRU)]
    second = segments * sum(2 * gru_flops(gru.input_size, gru.hidden_size) for gru in layers)
    memory, inner = decoder.attention.key.in_features, decoder.attention.key.out_features
    hidden, vocabulary = decoder.output.in_features, decoder.output.out_features
    step = 2 * hidden * inner + 2 * segments * inner + 2 * segments * memory
    step += gru_flops(decoder.cell.input_size, hidden) + 2 * hidden * vocabulary
    third = segments * 2 * memory * inner + targets * step
    return {"segmenter": first, "encoder": second, "decoder": third}


def mean_flops(
    model: Translator, sizes: Iterable[tuple[int, int, int]]
) -> tuple[dict[str, float] | None, dict[str, float]]:
    """The mean over sentences of T, S, U each, as `flops` counts them, and the means of the three."""
    total: dict[str, float] | None = {}
    sums, count = [0, 0, 0], 0
    for size in sizes:
        count += 1
        sums = [a + b for a, b in zip(sums, size, strict=True)]
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
