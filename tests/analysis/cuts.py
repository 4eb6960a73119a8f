"""Segmentations as a test wants them, without a model."""

from itertools import accumulate

from caesura.output import Segmentation


def cut(shown: str, scores: list[float] | None = None) -> Segmentation:
    """A character model's segmentation of `ti|er|e`; with scores, those that end no segment are live."""
    pieces = shown.split("|") if shown else []
    ends_at = set(accumulate(map(len, pieces)))
    size = sum(map(len, pieces))
    ends = [i + 1 in ends_at for i in range(size)]
    figures = {} if scores is None else {"live": (float(ends.count(False)), float(size))}
    return Segmentation(pieces, [len(p) for p in pieces], ends, [1.0] * size, scores, figures)
