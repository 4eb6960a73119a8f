"""Which segments a model makes: their lengths, the frequent ones, and the same string cut differently."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from caesura.analysis.characters import is_word
from caesura.analysis.training_text import TrainingText
from caesura.data.words import COUNTED, BoundedCounter
from caesura.evaluation.boundaries import pieces_of, segment_length
from caesura.output import Segmentation

SINGLES = 100  # characters listed
TOP = 10  # segments listed of each length, as in the paper's Table 5
_WITHIN = 12  # characters: parts of other segments are looked up to this length
_SHORTEST, _LONGEST = 3, 8  # characters of a string whose cuts are compared
WAYS = 4  # of cutting it that are listed
_CANDIDATES = 20_000
_VARYING = 20  # strings listed


@dataclass(frozen=True)
class Segment:
    """A segment and how often it occurs."""

    text: str
    length: int  # characters that its symbols cover
    count: int  # as a segment of its own
    within: int | None  # as a part of longer segments; None: too long to be looked up
    training: int | None  # in the training text, wherever it is cut; None: not known


@dataclass(frozen=True)
class Character:
    """A character as a segment of its own, and as a part of longer ones (the paper's き)."""

    text: str
    alone: int
    within: int


@dataclass(frozen=True)
class SegmentStatistics:
    """The segments of a text."""

    sentences: int
    characters: int
    segments: int
    mean: float
    median: float
    longest: int
    histogram: dict[int, int]  # by length
    distinct: int  # a lower bound where `missed` is not 0
    missed: int  # a count may be too low by so much; 0 until there were too many distinct ones
    top: dict[int, list[Segment]]  # by length, the most frequent first
    singles: list[Character]  # the most frequent characters first
    within: list[Character]  # those most often within longer segments first


class SegmentTally:
    """Counts segments sentence by sentence; memory is bounded by `limit` distinct ones."""

    def __init__(self, limit: int = COUNTED) -> None:
        self.sentences = 0
        self._lengths: Counter[int] = Counter()
        self._texts: dict[int, BoundedCounter] = {}
        self._limit = limit

    def add(self, cut: Segmentation) -> None:
        """Count the segments of one sentence."""
        self.sentences += 1
        self._lengths.update(cut.covered)
        for piece, covered in zip(cut.pieces, cut.covered, strict=False):
            if covered:
                if (counter := self._texts.get(covered)) is None:
                    counter = self._texts[covered] = BoundedCounter(self._limit)
                counter.update([piece if len(piece) == covered else piece.strip()])
        if sum(len(counter.counts) for counter in self._texts.values()) > self._limit:
            largest = max(self._texts.values(), key=lambda counter: len(counter.counts))
            largest.limit = max(len(largest.counts) - 1, 1)
            largest.update(())
            largest.limit = self._limit

    def ranked(self) -> dict[int, list[tuple[str, int]]]:
        """The most frequent segments of each length."""
        ranked = {}
        for length, counter in sorted(self._texts.items()):
            items = sorted(counter.counts.items(), key=lambda item: (-item[1], item[0]))
            ranked[length] = items[:TOP]
        return ranked

    def result(self, training: TrainingText | None = None) -> SegmentStatistics:
        """The figures of all sentences so far."""
        counts: dict[str, int] = {}
        for counter in self._texts.values():
            for text, n in counter.counts.items():
                counts[text] = counts.get(text, 0) + n
        ranked = self.ranked()
        listed = {text for items in ranked.values() for text, _ in items}
        characters = {character for text in counts for character in text}
        within = _within(counts, listed | characters)
        trained = training.occurrences(listed) if training else {}
        length = segment_length([[n] * count for n, count in self._lengths.items()])
        return SegmentStatistics(
            sentences=self.sentences,
            characters=length.characters,
            segments=length.segments,
            mean=length.mean,
            median=_median(length.histogram),
            longest=length.longest,
            histogram=length.histogram,
            distinct=sum(len(counter.counts) for counter in self._texts.values()),
            missed=max((counter.missed for counter in self._texts.values()), default=0),
            top={
                n: [
                    Segment(text, n, count, within.get(text, 0) if n <= _WITHIN else None, trained.get(text))
                    for text, count in items
                ]
                for n, items in ranked.items()
            },
            singles=(singles := _singles(counts, within, characters))[:SINGLES],
            within=sorted((c for c in singles if c.within), key=lambda c: -c.within)[:SINGLES],
        )


def segment_statistics(
    cuts: Iterable[Segmentation], training: TrainingText | None = None
) -> SegmentStatistics:
    """The lengths and the most frequent segments of some sentences."""
    tally = SegmentTally()
    for cut in cuts:
        tally.add(cut)
    return tally.result(training)


def _within(counts: Mapping[str, int], parts: set[str]) -> Counter[str]:
    """How often each wanted string is a part of a longer segment; overlapping places count each."""
    counted: Counter[str] = Counter()
    lengths = sorted({len(text) for text in parts if len(text) <= _WITHIN})
    for text, count in counts.items():
        for n in lengths:
            if n >= len(text):
                break
            for start in range(len(text) - n + 1):
                part = text[start : start + n]
                if part in parts:
                    counted[part] += count
    return counted


def _singles(counts: Mapping[str, int], within: Mapping[str, int], characters: set[str]) -> list[Character]:
    rows = [Character(c, counts.get(c, 0), within.get(c, 0)) for c in characters]
    return sorted(rows, key=lambda row: (-row.alone - row.within, row.text))


def _median(histogram: Mapping[int, int]) -> float:
    """The median of counted values, which are in rising order; 0 of none."""
    values, ends = [*histogram], [*accumulate(histogram.values())]
    if not values:
        return 0.0
    return sum(values[bisect(ends, place)] for place in ((ends[-1] - 1) // 2, ends[-1] // 2)) / 2


@dataclass(frozen=True)
class Varying:
    """A string that is cut differently in different contexts (the paper's 'tiere')."""

    text: str
    occurrences: int
    unusual: int  # occurrences that are not cut in the most usual way
    cuts: list[tuple[list[str], int]]  # its pieces and how often, the most usual first; a few of them


def varying_cuts(texts: Sequence[str], cuts: Sequence[Segmentation]) -> tuple[list[Varying], int]:
    """Strings that are cut in different ways, those with most unusual ones first; how many were compared.

    The strings are the words of the text wherever they occur, inside longer words too; in a text whose words
    hardly come twice (no spaces, compounds), frequent strings of letters. Of nested ones the first is told.
    """
    candidates = _candidates(texts)
    seen: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for text, cut in zip(texts, cuts, strict=True):
        bounds = set(cut.bounds)
        for start in range(len(text)):
            for end in range(start + _SHORTEST, min(start + _LONGEST, len(text)) + 1):
                part = text[start:end]
                if part in candidates:
                    seen[part][tuple(b - start for b in range(start + 1, end) if b in bounds)] += 1
    rows = []
    for part, ways in seen.items():
        unusual = ways.total() - max(ways.values())
        if unusual:
            usual_first = sorted(ways.items(), key=lambda item: (-item[1], item[0]))[:WAYS]
            shown = [(pieces_of(part, way), count) for way, count in usual_first]
            rows.append(Varying(part, ways.total(), unusual, shown))
    rows.sort(key=lambda row: (-row.unusual, -len(row.text), row.text))
    return _without_nested(rows), sum(ways.total() > 1 for ways in seen.values())


def _candidates(texts: Sequence[str]) -> set[str]:
    """The strings that are looked at: words of letters that come twice, or frequent strings of letters."""
    words = Counter(word for text in texts for word in text.split() if is_word(word))
    fit = {w for w, n in words.items() if n > 1 and _SHORTEST <= len(w) <= _LONGEST}
    if len(fit) >= 50:
        return set(sorted(fit, key=lambda w: (-words[w], w))[:_CANDIDATES])
    parts: Counter[str] = Counter()
    for text in texts[:2000]:
        for start in range(len(text)):
            for end in range(start + _SHORTEST, min(start + _LONGEST, len(text)) + 1):
                parts[text[start:end]] += 1
    frequent = ((part, n) for part, n in parts.items() if n > 1 and is_word(part))
    return {part for part, _ in sorted(frequent, key=lambda item: (-item[1], item[0]))[:_CANDIDATES]}


def _without_nested(rows: Sequence[Varying]) -> list[Varying]:
    """The first rows, without strings that contain an earlier one or are contained in one."""
    kept: list[Varying] = []
    for row in rows:
        if not any(row.text in other.text or other.text in row.text for other in kept):
            kept.append(row)
            if len(kept) == _VARYING:
                break
    return kept
