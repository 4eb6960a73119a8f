"""Where segments end: their length, and how well they agree with gold boundaries.

A text of n characters has n - 1 places for a boundary: the offsets b with 0 < b < n. The pieces between
are text[previous:b], so a space belongs to the piece that follows it: `in|␣g|ru|pp|en`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

from caesura.errors import InputError

_BEFORE_A_WORD = re.compile(r"(?<=\S)(?=\s+\S)")


@dataclass(frozen=True)
class SegmentLength:
    """Characters over segments of a whole corpus, with the longest segment and the count of each length."""

    characters: int
    segments: int
    mean: float  # 0.0 without segments
    longest: int
    histogram: dict[int, int]


@dataclass(frozen=True)
class BoundaryScores:
    """Agreement of predicted with gold boundaries, counted over a whole corpus (micro-averaged)."""

    precision: float
    recall: float
    f1: float
    predicted: int
    gold: int
    correct: int


def segment_length(lengths: Iterable[Sequence[int]]) -> SegmentLength:
    """Counts segments and the characters they cover; lengths are given by sentence.

    A segment that covers no text (one of `</s>` alone) has length 0 and is left out.
    """
    counts = Counter(map(int, chain.from_iterable(lengths)))
    if min(counts, default=0) < 0:
        raise ValueError(f"a segment cannot cover {min(counts)} characters")
    counts.pop(0, None)
    segments = counts.total()
    characters = sum(length * count for length, count in counts.items())
    return SegmentLength(
        characters=characters,
        segments=segments,
        mean=characters / segments if segments else 0.0,
        longest=max(counts, default=0),
        histogram=dict(sorted(counts.items())),
    )


def boundary_scores(predicted: Iterable[Collection[int]], gold: Iterable[Collection[int]]) -> BoundaryScores:
    """Micro-averaged precision, recall and F1 of boundaries, sentence by sentence.

    Nothing predicted where nothing was to be found is right: all three are 1. Otherwise a ratio over zero
    is 0, so that predicting nothing is not taken for perfect precision.
    """
    guesses, truths = [set(p) for p in predicted], [set(g) for g in gold]
    if len(guesses) != len(truths):
        raise InputError(f"{len(guesses)} segmented sentences but {len(truths)} with gold boundaries")
    counts = BoundaryCounts()
    for guess, truth in zip(guesses, truths, strict=True):
        counts.add(guess, truth)
    return counts.scores()


@dataclass
class BoundaryCounts:
    """Counts boundaries sentence by sentence, for `boundary_scores` of a text that is not held in memory."""

    predicted: int = 0
    gold: int = 0
    correct: int = 0

    def add(self, predicted: set[int], gold: set[int]) -> None:
        """Count the boundaries of one more sentence."""
        self.predicted += len(predicted)
        self.gold += len(gold)
        self.correct += len(predicted & gold)

    def scores(self) -> BoundaryScores:
        """The scores of all sentences so far."""
        return scores_of_counts(self.predicted, self.gold, self.correct)


def f1(predicted: float, gold: int, correct: float) -> float:
    """The harmonic mean of precision and recall; 0 where there are no boundaries at all."""
    return 2 * correct / (predicted + gold) if predicted + gold else 0.0


def scores_of_counts(predicted: int, gold: int, correct: int) -> BoundaryScores:
    """The scores of boundaries that were counted, as `boundary_scores` has them."""
    if predicted == gold == 0:
        return BoundaryScores(1.0, 1.0, 1.0, 0, 0, 0)
    return BoundaryScores(
        precision=correct / predicted if predicted else 0.0,
        recall=correct / gold if gold else 0.0,
        f1=f1(predicted, gold, correct),
        predicted=predicted,
        gold=gold,
        correct=correct,
    )


def trivial(text: str) -> dict[str, tuple[int, ...]]:
    """Trivial segmentations by name, for a model to be compared with.

    "whitespace" cuts where a word starts, before its space; spaces at the ends of the text make no cut.
    """
    n = len(text)
    return {
        "every character": tuple(range(1, n)),
        "every 2": tuple(range(2, n, 2)),
        "whitespace": tuple(match.start() for match in _BEFORE_A_WORD.finditer(text)),
        "none": (),
    }


def boundary_table(
    texts: Sequence[str], predicted: Sequence[Collection[int]], gold: Sequence[Collection[int]]
) -> dict[str, BoundaryScores]:
    """Scores the model (row "model", first) and each trivial segmentation against gold boundaries."""
    for name, bounds in (("predicted", predicted), ("gold", gold)):
        if len(bounds) != len(texts):
            raise InputError(f"{len(texts)} texts but {len(bounds)} with {name} boundaries")
        for number, (text, offsets) in enumerate(zip(texts, bounds, strict=True), start=1):
            _check_inside(text, offsets, f"sentence {number}: {name} boundary")
    table = {"model": boundary_scores(predicted, gold)}
    rules = [trivial(text) for text in texts]
    for name in trivial(""):
        table[name] = boundary_scores((rule[name] for rule in rules), gold)
    return table


def bounds_of(pieces: Sequence[str]) -> tuple[int, ...]:
    """Gives the boundaries between pieces as offsets into their joined text."""
    if not all(pieces):
        raise InputError(f"piece {list(map(bool, pieces)).index(False) + 1} of {len(pieces)} is empty")
    return tuple(accumulate(map(len, pieces)))[:-1]


def pieces_of(text: str, bounds: Collection[int]) -> list[str]:
    """Cuts a text at its boundaries, given in any order: the inverse of `bounds_of`."""
    _check_inside(text, bounds, "boundary")
    if not text:
        return []
    return [text[start:end] for start, end in pairwise([0, *sorted(set(bounds)), len(text)])]


def _check_inside(text: str, bounds: Collection[int], where: str) -> None:
    for bound in bounds:
        if not 0 < bound < len(text):
            raise InputError(
                f"{where} {bound} is not inside a text of {len(text)} characters (0 < b < {len(text)})"
            )
