"""The result of one line of text: its cuts and its translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caesura.layers.masks import positions_mask
from caesura.search.hypothesis import Hypothesis


@dataclass(frozen=True)
class Segmentation:
    """How a model cut one text."""

    pieces: list[str]  # their concatenation is the text; "": the segment begins within a character
    covered: list[int]  # characters that each piece's symbols cover; spaces between words count for none
    ends: list[bool]  # per symbol, </s> left out
    weights: list[float]
    scores: list[float] | None  # None where there are none
    # By the name of each of the segmenter's figures, a number to sum over a text, and one to divide by.
    figures: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        """The pieces without empty ones: a cut between the bytes of a character is shown after it."""
        return [piece for piece in self.pieces if piece]

    @property
    def bounds(self) -> list[int]:
        """Character offsets, strictly inside the text, at which a piece begins."""
        return list(accumulate(map(len, self.shown[:-1])))


@dataclass(frozen=True)
class Output:
    """The cuts and translations of one line."""

    segmentation: Segmentation
    hypotheses: list[Hypothesis]  # best first; none for an empty line or where nothing was searched
    texts: list[str]  # of the hypotheses
    targets: list[Segmentation] = field(default_factory=list)  # of the texts; none where nothing cuts them

    @property
    def best(self) -> str:
        """The translation; of an empty line, an empty one."""
        return self.texts[0] if self.texts else ""

    def record(self, n_best: int) -> dict[str, Any]:
        """Pieces and up to `n_best` hypotheses, for JSON."""
        pairs = zip(self.hypotheses[:n_best], self.texts, strict=False)
        hypotheses: list[dict[str, Any]] = [
            {"text": text, "score": h.score, "log_prob": h.log_prob, "finished": h.finished}
            for h, text in pairs
        ]
        for hypothesis, cut in zip(hypotheses, self.targets, strict=False):
            hypothesis["pieces"] = cut.shown
        return {"pieces": self.segmentation.shown, "hypotheses": hypotheses}


def segmentations(
    texts: Sequence[str],
    places: Sequence[NDArray[np.int32]],
    ends: Tensor,
    weights: Tensor,
    scores: Tensor | None,
) -> list[Segmentation]:
    """Cut each text, given with the places [n, 2] of its symbols, where the symbols' segments end."""
    text = positions_mask(torch.tensor([*map(len, places)]), ends.shape[1])  # </s> is left out
    halting = None if scores is None else scores.cpu()[text].tolist()
    return cut_texts(texts, places, ends.cpu()[text].tolist(), weights.cpu()[text].tolist(), halting)


def cut_texts(
    texts: Sequence[str],
    places: Sequence[NDArray[np.int32]],
    ends: list[bool],
    weights: list[float],
    scores: list[float] | None,
) -> list[Segmentation]:
    """The same with ends, weights and scores of symbols as lists, one text after the other, without </s>."""
    if not texts:
        return []
    starts, stops = np.concatenate(places).T
    to = np.cumsum([*map(len, places)])  # where the symbols of each text end
    last = np.array(ends, bool)
    last[to[to > 0] - 1] = True
    lasts = np.flatnonzero(last)  # the last symbol of each segment
    covered = np.diff((stops - starts).cumsum()[lasts], prepend=0).tolist()
    bounds = stops[lasts].tolist()
    cuts, a, c = [], 0, 0
    for text, b, d in zip(texts, to.tolist(), np.searchsorted(lasts, to).tolist(), strict=True):
        pieces = [text[i:j] for i, j in pairwise([0, *bounds[c : d - 1], len(text)])] if d > c else []
        halting = None if scores is None else scores[a:b]
        cuts.append(Segmentation(pieces, covered[c:d], ends[a:b], weights[a:b], halting))
        a, c = b, d
    return cuts


def uncut(text: str) -> Segmentation:
    """A text of which no symbol was read."""
    return Segmentation([text] if text else [], [], [], [], None)
