"""Numbers from a block of lines: the ids of its pairs, or how often its symbols and words occur."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caesura.data.blocks import Block, in_order, workers_for
from caesura.data.cuts import AHEAD, CutsSource, places_of
from caesura.data.files import Errors
from caesura.data.utf8 import to_bytes
from caesura.data.vocabulary import FIRST_BYTE, SPECIALS, UNK, ByteVocabulary, CharVocabulary, Vocabulary
from caesura.data.vocabulary_training import COUNTED
from caesura.data.words import WordCounts, WordTally, count_words
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.data.corpus import ParallelText

Lines = list[tuple[str | None, str | None]]


class Numbers(NamedTuple):
    """The numbers of a block."""

    ids: NDArray[np.uint32]  # each source, then its target
    table: NDArray[np.int64]  # [n, 4] where source and target end in `ids`, and their lengths in characters
    cuts: NDArray[np.int8] | None  # of the sources
    read: int  # pairs
    dropped: Counter[str]  # by reason, in the order of the lines
    share: float  # of the text, up to the end of this block


@dataclass(frozen=True)
class Numbering:
    """Numbers the pairs of a block, without those that are unfit for training."""

    text: ParallelText
    vocabularies: tuple[Vocabulary, Vocabulary]
    longest: tuple[int | None, int | None]  # symbols of a side
    max_chars: int | None  # of either side
    errors: Errors
    cuts: CutsSource | None

    def __call__(self, block: Block) -> Numbers:
        lines: Lines = [(src, trg) for src, trg, _ in self.text.pairs_of(block, self.errors, False)]
        reasons = [self._unfit(src, trg) for src, trg in lines]
        fit = [i for i, reason in enumerate(reasons) if not reason]
        sides = [[str(lines[i][side]) for i in fit] for side in (0, 1)]
        ids, lengths = zip(*map(encode_all, self.vocabularies, sides), strict=True)
        table = np.stack([*lengths, *([*map(len, texts)] for texts in sides)], 1).astype(np.int64)
        over = table[:, :2] > [np.inf if most is None else most for most in self.longest]
        if over.any():
            for at in np.flatnonzero(over.any(1)):
                side = 0 if over[at, 0] else 1
                reasons[fit[at]] = f"{('source', 'target')[side]} longer than {self.longest[side]} symbols"
            kept = ~over.any(1)
            ids = tuple(side[np.repeat(kept, counts)] for side, counts in zip(ids, lengths, strict=True))
            table = table[kept]
        marks = None if self.cuts is None else self._cut(self.cuts, block, lines, reasons)
        source = np.repeat(np.tile([True, False], len(table)), table[:, :2].ravel())
        both = np.empty(len(source), np.uint32)
        both[source], both[~source] = ids
        table[:, :2] = table[:, :2].cumsum().reshape(-1, 2)
        return Numbers(both, table, marks, len(lines), Counter(filter(None, reasons)), block.share)

    def _unfit(self, src: str | None, trg: str | None) -> str:
        """Why a pair is left out before its symbols are counted; empty if it is not."""
        if src is None or trg is None:
            return "line over the limit"
        if not src.strip():
            return "empty source"
        if not trg.strip():
            return "empty target"
        if self.max_chars is not None and max(len(src), len(trg)) > self.max_chars:
            side = "source" if len(src) > self.max_chars else "target"
            return f"{side} longer than {self.max_chars} characters"
        return ""

    def _cut(self, cuts: CutsSource, block: Block, lines: Lines, reasons: Sequence[str]) -> NDArray[np.int8]:
        """The cuts of the sources that are kept; they may come from the last file of the block."""
        reader, marks = cuts.reader(self.errors, block), [np.empty(0, np.int8)]
        for number, (src, _) in enumerate(lines):
            if number % AHEAD == 0:
                reader.ahead(text for text, _ in lines[number : number + AHEAD])
            reader.advance(src)
            if not reasons[number] and src is not None:
                marks.append(reader.cuts(src, places_of(self.vocabularies[0].encode_spans(src)[1])))
        return np.concatenate(marks)


def encode_all(vocabulary: Vocabulary, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The ids of texts, one after the other, and how many each text has; equal to `Vocabulary.encode`."""
    if not isinstance(vocabulary, CharVocabulary | ByteVocabulary):
        rows = [vocabulary.encode(text) for text in texts]
        counts = np.fromiter(map(len, rows), np.int64, len(rows))
        return np.fromiter(chain.from_iterable(rows), np.uint32, int(counts.sum())), counts
    counts, points = np.fromiter(map(len, texts), np.int64, len(texts)), code_points("".join(texts))
    table = _by_code_point(vocabulary)
    ids = table[np.minimum(points, len(table) - 1)]
    spelled = ids == UNK
    if isinstance(vocabulary, CharVocabulary) or not spelled.any():
        return ids, counts
    widths = 1 + sum((spelled & (points >= least)).astype(np.int64) for least in (0x80, 0x800, 0x10000))
    text = points[spelled].tobytes().decode("utf-32-le", "surrogatepass")
    ids = np.repeat(ids, widths)
    ids[np.repeat(spelled, widths)] = np.frombuffer(to_bytes(text), np.uint8).astype(np.uint32) + FIRST_BYTE
    return ids, np.diff(np.append(0, widths.cumsum())[np.append(0, counts.cumsum())])


def code_points(text: str) -> NDArray[np.uint32]:
    """The code point of each character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


@lru_cache(maxsize=8)
def _by_code_point(vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """The id of each code point up to the last that has one; the final entry is the id of all others."""
    symbols = enumerate(vocabulary.tokens[len(SPECIALS) :], len(SPECIALS))
    ids = {ord(symbol): number for number, symbol in symbols if len(symbol) == 1}
    table = np.full(max(ids, default=0) + 2, UNK, np.uint32)
    table[[*ids]] = [*ids.values()]
    return table


class Counts(NamedTuple):
    """Counts of a block, by side."""

    points: list[tuple[NDArray[np.int64], NDArray[np.int64]]]  # code points and their counts
    words: tuple[tuple[Counter[str], int], tuple[Counter[str], int]]  # of `count_words`
    split: tuple[Counter[str], Counter[str]]  # the text between white space, where a vocabulary needs it
    usable: bool  # whether a pair has text on both sides
    read: int
    share: float


@dataclass(frozen=True)
class Counting:
    """Counts the characters and words of both sides of a block."""

    text: ParallelText
    split: tuple[bool, bool]  # which side has a vocabulary of words
    errors: Errors

    def __call__(self, block: Block) -> Counts:
        lines: Lines = [(src, trg) for src, trg, _ in self.text.pairs_of(block, self.errors, False)]
        texts = ["\n".join(pair[side] or "" for pair in lines) for side in (0, 1)]
        often = [np.bincount(code_points(text.replace("\n", ""))) for text in texts]
        points = [(at, numbers[at]) for numbers in often for at in np.nonzero(numbers)]
        split = [
            Counter(text.split() if wanted else ()) for text, wanted in zip(texts, self.split, strict=True)
        ]
        usable = any(src and src.strip() and trg and trg.strip() for src, trg in lines)
        words = count_words(texts[0]), count_words(texts[1])
        return Counts(points, words, (split[0], split[1]), usable, len(lines), block.share)


class TextCounts(NamedTuple):
    """Counts of a text, by side."""

    characters: tuple[Counter[str], Counter[str]]
    split: tuple[Counter[str], Counter[str]]
    words: tuple[WordCounts, WordCounts]

    def symbols(self, side: int, level: str) -> Counter[str] | None:
        """How often each symbol occurs; None if the level's vocabulary is learned from lines."""
        return self.split[side] if level == "word" else self.characters[side] if level in COUNTED else None


def count_text(
    counting: Counting, progress: Callable[[int, int], None] = lambda read, total: None, cores: int = 1
) -> TextCounts:
    """Count a text in so many processes; its counts never depend on them."""
    text, split = counting.text, (Counter[str](), Counter[str]())
    tallies, points = (WordTally(), WordTally()), np.zeros((2, sys.maxunicode + 1), np.int64)
    read, usable = 0, False
    with closing(in_order(counting, text.blocks(), workers_for(text.files(), cores))) as results:
        for counts in results:
            for side in (0, 1):
                at, often = counts.points[side]
                points[side, at] += often
                tallies[side].merge(*counts.words[side])
                split[side].update(counts.split[side])
            read, usable = read + counts.read, usable or counts.usable
            progress(read, expected(read, counts.share))
    if not usable:
        raise InputError(f"{text.src}: nothing to train on; is the file empty?")
    src, trg = (Counter({chr(at): int(row[at]) for at in np.flatnonzero(row)}) for row in points)
    return TextCounts((src, trg), split, (tallies[0].result(), tallies[1].result()))


def expected(read: int, share: float) -> int:
    """About how many lines a text has of which `lines` are this `share`."""
    return max(read, round(read / max(share, 1e-9)))
