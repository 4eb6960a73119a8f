"""What a model makes of a line of text: where it cut it, and what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress, pairwise
from operator import sub
from typing import Any

from torch import Tensor

from caesura.data.vocabulary import UNK, Spans
from caesura.search.hypothesis import Hypothesis


@dataclass(frozen=True)
class Segmentation:
    """How a model cut one text."""

    pieces: list[str]  # their concatenation is the text
    covered: list[int]  # characters that each piece's symbols cover; spaces between words count for none
    ends: list[bool]  # per symbol, </s> left out
    weights: list[float]
    scores: list[float] | None  # halting scores; None where there are none
    unknown: list[str] = field(default_factory=list)  # what of a text that was given is read as <unk>

    @property
    def bounds(self) -> list[int]:
        """Character offsets, strictly inside the text, at which a piece begins."""
        bounds, at = [], 0
        for piece in self.pieces[:-1]:
            at += len(piece)
            bounds.append(at)
        return bounds


@dataclass(frozen=True)
class Output:
    """What a model made of one line."""

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
        found = zip(self.hypotheses[:n_best], self.texts, strict=False)
        hypotheses: list[dict[str, Any]] = [
            {"text": text, "score": h.score, "log_prob": h.log_prob, "finished": h.finished}
            for h, text in found
        ]
        for hypothesis, cut in zip(hypotheses, self.targets, strict=False):
            hypothesis["pieces"] = cut.pieces
        return {"pieces": self.segmentation.pieces, "hypotheses": hypotheses}


def segmentations(
    texts: Sequence[tuple[str, Spans]], ends: Tensor, weights: Tensor, scores: Tensor | None
) -> list[Segmentation]:
    """Cut each text, given with the places of its symbols, where the symbols' segments end."""
    by_row = (ends.tolist(), weights.tolist(), [None] * len(texts) if scores is None else scores.tolist())
    return [segmentation(*text, *row) for text, *row in zip(texts, *by_row, strict=True)]


def segmentation(
    text: str, spans: Spans, ends: list[bool], weights: list[float], scores: list[float] | None
) -> Segmentation:
    """One of them; </s> is left out, and so is a segment of </s> alone."""
    count = len(spans)
    starts, stops = zip(*spans, strict=True) if spans else ((), ())
    last = [*compress(range(count - 1), ends), *range(count)[-1:]]  # the last symbol of each segment
    widths = list(map(list(accumulate(map(sub, stops, starts))).__getitem__, last))
    covered = list(map(sub, widths, [0, *widths]))
    bounds = [0, *map(stops.__getitem__, last[:-1]), len(text)][: len(last) + 1]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    return Segmentation(pieces, covered, ends[:count], weights[:count], scores and scores[:count])


def with_unknown(cut: Segmentation, text: str, ids: list[int], spans: Spans) -> Segmentation:
    """The cut of a text with the symbols of it that the vocabulary does not have."""
    if UNK not in ids:
        return cut
    return replace(cut, unknown=[text[a:b] for i, (a, b) in zip(ids, spans, strict=True) if i == UNK])


def uncut(text: str) -> Segmentation:
    """A text of which no symbol was read."""
    return Segmentation([text] if text else [], [], [], [], None)
