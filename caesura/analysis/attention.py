"""Where the decoder looks: a map per sentence, and shares over a corpus, head by head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
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

    </s> is included, unless the translation ran into its limit. If the decoder has several heads, `weights`
    is their mean in `layer`. `heads` has all of them if the caller asked for them.
    """

    source: list[str]  # labels of the encoder's steps
    target: list[str]
    weights: list[list[float]]
    layer: int | None = None  # from 1; None: the decoder has a single attention
    heads: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)  # [L, N, U, S]

    def of(self, layer: int, head: int | None = None) -> NDArray[np.float32]:
        """[U, S]: the weights of one head, or the mean over a layer's heads; both count from 1."""
        if self.heads is None:
            raise ValueError("this map was made without heads; ask for it with heads=True")
        one: NDArray[np.float32] = self.heads[layer - 1]
        return one.mean(0) if head is None else one[head - 1]


@dataclass(frozen=True)
class HeadStatistics:
    """One head over a sample, in the measures of `AttentionStatistics`."""

    layer: int  # from 1, the lowest
    head: int  # from 1
    first: float
    space: float
    end: float
    entropy: float
    distance: float


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
    entropy: float  # bits, of the weights of a target symbol
    entropy_uniform: float
    # 0 to 1: from a target symbol's relative place in its sentence to those of the steps, weighted
    distance: float
    distance_uniform: float
    layer: int | None = None  # the numbers above are means over its heads; None: there is a single attention
    heads: list[HeadStatistics] = field(default_factory=list)  # of every layer


@torch.no_grad()
def attention_maps(
    model: Translator,
    texts: Sequence[str],
    targets: Sequence[str],
    cuts: Sequence[Segmentation],
    heads: bool = False,
) -> Iterator[AttentionMap]:
    """The attention of each pair, teacher-forced; empty if the decoder shows none.

    `heads`: also the attention of each head, if the decoder has several.
    """
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
                written, size = model.trg_vocabulary.encode(targets[i]), sizes[row]
                every = None  # sentence by sentence: all heads of a batch might not fit into memory
                if heads and model.decoder.looks:
                    alone = encoded.rows(torch.tensor([row], device=model.device))
                    every = model.decoder.look(alone, batch.trg_in[row : row + 1, :size])[0]
                seen = attention_map(model, cuts[i], written, weights[row, :size], steps[row], heads=every)
                assert seen is not None
                yield seen


def attention_map(
    model: Translator,
    cut: Segmentation,
    written: Sequence[int],
    weights: Tensor | None,
    steps: int,
    finished: bool = True,
    heads: Tensor | None = None,
) -> AttentionMap | None:
    """The map of symbols `written`, and of </s> if they are `finished`; None without `weights` [U, S].

    `heads` [L, N, U, S] are kept with it.
    """
    if weights is None:
        return None
    shown = [visible(s) for s in model.trg_vocabulary.display(written)]
    target = [*shown, END] if finished else shown
    return AttentionMap(
        labels(cut.pieces, steps),
        target,
        weights[:, :steps].tolist(),
        model.decoder.looks.shown if model.decoder.looks else None,
        None if heads is None else heads[..., : len(target), :steps].float().cpu().numpy(),
    )


Kinds = dict[str, list[int]]  # steps, by what they hold
_MEASURES = ("first", "space", "end", "entropy", "distance")


def _measure(weights: Tensor, kinds: Kinds) -> Tensor:
    """[..., len(_MEASURES)]: sums over the target symbols of weights [..., U, S]."""
    U, S = weights.shape[-2:]
    shares = [weights[..., kinds[kind]].sum((-2, -1)) for kind in ("first", "space", "end")]
    entropy = torch.special.entr(weights).sum((-2, -1)) / math.log(2)
    at, beside = ((torch.arange(n, dtype=weights.dtype) + 0.5) / n for n in (U, S))
    distance = (weights * (at[:, None] - beside).abs()).sum((-2, -1))
    return torch.stack((*shares, entropy, distance), -1)


class AttentionTally:
    """Adds attention up over sentences."""

    def __init__(self) -> None:
        self.sentences = 0
        self._rows = 0.0  # target symbols
        self._sums, self._uniform = (torch.zeros(len(_MEASURES), dtype=torch.float64) for _ in range(2))
        self._layer: int | None = None
        self._heads: Tensor | None = None  # [L, N, measures]
        self._place = [0.0] * PLACES
        self._place_uniform = [0.0] * PLACES
        self._place_counts = [0] * PLACES

    def add(self, attention: AttentionMap, text: str, cut: Segmentation) -> None:
        """One sentence."""
        self.sentences += 1
        rows, steps = len(attention.weights), len(attention.source)
        self._rows += rows
        weights = torch.tensor(attention.weights, dtype=torch.float64)
        mass = weights.sum(0).tolist()
        read = units(text, cut)
        kinds = {
            "first": [i for i, unit in enumerate(read) if unit.first],
            "space": [i for i, unit in enumerate(read) if unit.space],
            "end": list(range(len(read), steps)),
        }
        self._layer = attention.layer
        self._sums += _measure(weights, kinds)
        self._uniform += _measure(torch.full_like(weights, 1 / steps), kinds)
        if attention.heads is not None:
            heads = _measure(torch.from_numpy(attention.heads), kinds).double()
            self._heads = heads if self._heads is None else self._heads + heads
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
        means, even = ((sums / self._rows).tolist() for sums in (self._sums, self._uniform))
        share, uniform = (dict(zip(_MEASURES, values, strict=True)) for values in (means, even))
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
            entropy=share["entropy"],
            entropy_uniform=uniform["entropy"],
            distance=share["distance"],
            distance_uniform=uniform["distance"],
            layer=self._layer,
            heads=self._of_heads(),
        )

    def _of_heads(self) -> list[HeadStatistics]:
        if self._heads is None:
            return []
        means = (self._heads / self._rows).tolist()
        return [HeadStatistics(i, j, *one) for i, row in enumerate(means, 1) for j, one in enumerate(row, 1)]


def attention_statistics(
    model: Translator,
    texts: Sequence[str],
    targets: Sequence[str],
    cuts: Sequence[Segmentation],
    kind: Literal["references", "translations"] = "references",
) -> AttentionStatistics | None:
    """How much attention falls on first characters, spaces and </s>; None if the decoder shows none."""
    tally = AttentionTally()
    maps = attention_maps(model, texts, targets, cuts, heads=True)
    for attention, text, cut in zip(maps, texts, cuts, strict=False):
        tally.add(attention, text, cut)
    return tally.result(kind)
