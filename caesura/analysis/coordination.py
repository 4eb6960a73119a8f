"""Whether sentences that share a batch halt together: the cost of nested loops in lock-step.

The paper (appendix A, limitations) runs the inner steps of a segment until every sentence of the batch has
halted, and finds halting "roughly coordinated". Here that is a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np

from caesura.output import Segmentation

BATCH = 40  # sentences, as in the paper's training of ACT-ENC
DRAWS = 20  # of segments at random, for the level of chance

Sizes = Sequence[int]  # of the segments of a sentence, in symbols


@dataclass(frozen=True)
class Coordination:
    """The price of lock-step for sentences in batches of similar length."""

    sentences: int
    batch: int
    overhead: float  # inner steps in lock-step, over the symbols of each batch's longest sentence; 1 at best
    chance: float  # the same if every symbol ended a segment with equal probability
    coordination: float | None  # (chance - overhead) / (chance - 1): 1 perfect, 0 chance; None: no room


def coordination(cuts: Iterable[Segmentation], batch: int = BATCH) -> Coordination | None:
    """How well the halting of these sentences is coordinated; None where there is no halting unit."""
    sentences = [segment_sizes(cut.ends) for cut in cuts if cut.scores is not None and cut.ends]
    if not sentences:
        return None
    sentences.sort(key=sum)
    symbols = [sum(sizes) for sizes in sentences]
    inner = sum(symbols) - len(sentences)  # places where a segment may end or not; at its last symbol it does
    rate = (sum(map(len, sentences)) - len(sentences)) / inner if inner else 0.0
    random = np.random.default_rng(1)
    drawn = [
        overhead([segment_sizes([*(random.random(n - 1) < rate), True]) for n in symbols], batch)
        for _ in range(DRAWS)
    ]
    cost, chance = overhead(sentences, batch), float(np.mean(drawn))
    room = chance - 1 > 1e-9
    return Coordination(len(sentences), batch, cost, chance, (chance - cost) / (chance - 1) if room else None)


def overhead(sentences: Sequence[Sizes], batch: int) -> float:
    """Steps of nested loops divided by steps of the longest sentence, summed over batches of neighbours.

    The j-th segments of a batch take as many inner steps as the longest of them has symbols.
    """
    steps = longest = 0
    for first in range(0, len(sentences), batch):
        together = sentences[first : first + batch]
        steps += sum(map(max, zip_longest(*together, fillvalue=0)))
        longest += max(map(sum, together))
    return steps / longest


def segment_sizes(ends: Sequence[bool]) -> list[int]:
    """The symbols of each segment; the last symbol ends one in any case."""
    places = [i for i, end in enumerate(ends, 1) if end or i == len(ends)]
    return [b - a for a, b in pairwise([0, *places])]
