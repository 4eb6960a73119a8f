"""Where the decoder looks: a map of a sentence, and over a corpus how much falls on first characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from caesura.analysis.characters import END, labels, units, visible
from caesura.analysis.means import Means
from caesura.inference import Translator
from caesura.layers.modes import evaluating
from caesura.output import Segmentation

PLACES = 8  # characters of a word; the last stands for all that follow
_BATCH = 50  # sentences


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights of one sentence pair; one row per target symbol, each with sum 1.

    </s> is included, unless the translation ran into its limit.
    """

    source: list[str]  # labels of the encoder's steps
    target: list[str]
    weights: list[list[float]]


@dataclass(frozen=True)
class AttentionStatistics:
    """Attention over a sample: shares of the weight, each beside the share of steps of that kind."""

    sentences: int
    targets: Literal["references", "translations"]
    first: float  # on steps that hold the first character of a word
    first_uniform: float  # their share if all steps got the same
    space: float  # on steps with white space
    space_uniform: float
    end: float  # on </s> by itself
    end_uniform: float
    place: Means  # mean weight of a step by its place in the word, over that of any step; counted in steps


@torch.no_grad()
def attention_maps(
    model: Translator,
    texts: Sequence[str],
    targets: Sequence[str],
    cuts: Sequence[Segmentation],
) -> Iterator[AttentionMap]:
    """The attention of each pair, teacher-forced; nothing where the decoder shows none."""
    with evaluating(model):
        for begin in range(0, len(texts), _BATCH):
            rows = range(begin, min(begin + _BATCH, len(texts)))
            batch = model.batch([texts[i] for i in rows], [targets[i] for i in rows])
            assert batch.trg_in is not None
            assert batch.trg_lengths is not None
            _, encoded = model.encode(batch.src, batch.src_lengths, batch.src_cuts)
            weights = model.decoder(encoded, batch.trg_in, batch.trg_lengths).attention
            if weights is None:
                return
            steps, sizes = encoded.lengths.tolist(), batch.trg_lengths.tolist()
            for row, i in enumerate(rows):
                written = model.trg_vocabulary.encode(targets[i])
                seen = attention_map(model, cuts[i], written, weights[row, : sizes[row]], steps[row])
                assert seen is not None
                yield seen


def attention_map(
    model: Translator,
    cut: Segmentation,
    written: Sequence[int],
    weights: Tensor | None,
    steps: int,
    finished: bool = True,
) -> AttentionMap | None:
    """The map of symbols `written`, and of </s> if they are `finished`; None without `weights` [U, S]."""
    if weights is None:
        return None
    shown = [visible(s) for s in model.trg_vocabulary.display(written)]
    ending = [END] if finished else []
    return AttentionMap(labels(cut.pieces, steps), [*shown, *ending], weights[:, :steps].tolist())


class AttentionTally:
    """Adds attention up over sentences."""

    def __init__(self) -> None:
        self.sentences = 0
        self._rows = 0.0  # target symbols
        self._mass = {"first": 0.0, "space": 0.0, "end": 0.0}
        self._uniform = {"first": 0.0, "space": 0.0, "end": 0.0}
        self._place = [0.0] * PLACES
        self._place_uniform = [0.0] * PLACES
        self._place_counts = [0] * PLACES

    def add(self, attention: AttentionMap, text: str, cut: Segmentation) -> None:
        """One sentence."""
        self.sentences += 1
        rows, steps = len(attention.weights), len(attention.source)
        self._rows += rows
        mass = [sum(column) for column in zip(*attention.weights, strict=True)]
        read = units(text, cut)
        kinds = {
            "first": [i for i, unit in enumerate(read) if unit.first],
            "space": [i for i, unit in enumerate(read) if unit.space],
            "end": list(range(len(read), steps)),
        }
        for kind, places in kinds.items():
            self._mass[kind] += sum(mass[i] for i in places)
            self._uniform[kind] += rows * len(places) / steps
        for i, unit in enumerate(read):
            if unit.place is not None and not unit.punctuation:
                at = min(unit.place, PLACES) - 1
                self._place[at] += mass[i]
                self._place_uniform[at] += rows / steps
                self._place_counts[at] += 1

    def result(self, targets: Literal["references", "translations"]) -> AttentionStatistics | None:
        """The shares; None where nothing was added."""
        if not self._rows:
            return None
        share = {kind: value / self._rows for kind, value in self._mass.items()}
        uniform = {kind: value / self._rows for kind, value in self._uniform.items()}
        pairs = zip(self._place, self._place_uniform, strict=True)
        return AttentionStatistics(
            sentences=self.sentences,
            targets=targets,
            first=share["first"],
            first_uniform=uniform["first"],
            space=share["space"],
            space_uniform=uniform["space"],
            end=share["end"],
            end_uniform=uniform["end"],
            place=Means([got / even if even else float("nan") for got, even in pairs], self._place_counts),
        )


def attention_statistics(
    model: Translator,
    texts: Sequence[str],
    targets: Sequence[str],
    cuts: Sequence[Segmentation],
    kind: Literal["references", "translations"] = "references",
) -> AttentionStatistics | None:
    """How much attention falls on first characters, spaces and </s>; None where the decoder shows none."""
    tally = AttentionTally()
    for attention, text, cut in zip(attention_maps(model, texts, targets, cuts), texts, cuts, strict=False):
        tally.add(attention, text, cut)
    return tally.result(kind)
