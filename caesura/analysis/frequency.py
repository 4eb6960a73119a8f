"""Words of translations by how often the training text has them: are rare words translated as well?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from caesura.data.words import WordCounts, words_of

EDGES = (1, 10, 100, 1000)  # occurrences at which a group begins; the first group is of none


@dataclass(frozen=True)
class FrequencyGroup:
    """The words of one group: how many were expected, were written, and were both in the same line."""

    name: str
    expected: int
    written: int
    matched: int

    @property
    def recall(self) -> float:
        """The share of expected words that were written; 0 of nothing."""
        return self.matched / self.expected if self.expected else 0.0


def by_frequency(
    translations: Sequence[str], references: Sequence[str], words: WordCounts
) -> list[FrequencyGroup]:
    """Count words by their occurrences in the target side of the training text, the rarest first."""
    expected, written, matched = Counter[int](), Counter[int](), Counter[int]()
    for translation, reference in zip(translations, references, strict=True):
        ours, theirs = Counter(words_of(translation)), Counter(words_of(reference))
        for counts, sums in ((theirs, expected), (ours, written), (ours & theirs, matched)):
            for word, count in counts.items():
                sums[sum(words.of(word) >= edge for edge in EDGES)] += count
    names = ["0", *(f"{a:,}–{b - 1:,}" for a, b in pairwise(EDGES)), f"{EDGES[-1]:,} or more"]
    return [FrequencyGroup(name, expected[i], written[i], matched[i]) for i, name in enumerate(names)]
