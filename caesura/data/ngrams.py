"""A character model of n-grams: it counts them, and says how uncertain the next character is.

Interpolated Witten-Bell: p_k(c|h) = (count(hc) + D(h) p_{k-1}(c|h')) / (count(h) + D(h)). Here h are the
k - 1 characters before c, h' is h without the first one, and D(h) is the number of different characters that
follow h; p_0 is uniform. A boundary, which counts as a character, stands before and after each line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BOUNDARY = 1  # the number of the boundary; 0: no character, or an unknown one; those of the alphabet follow
AT_ONCE = 1 << 22  # characters counted at once
_BITS = 63  # of a word that holds several characters


class Level(NamedTuple):
    """All n-grams of one length, sorted: each is one of the level before, and one more symbol."""

    parents: Ints  # places in the level before
    symbols: Ints
    counts: Ints


class Tables(NamedTuple):
    """Numbers that follow from the counts, by the length of n-grams."""

    entropies: list[
        Floats
    ]  # after each n-gram of 0 to order - 1 characters, in bits; nan: nothing follows it
    suffixes: list[Ints]  # of each n-gram of 1 to order characters: the place of it without the first one
    shares: list[Floats]  # the probability of its last character, of each n-gram of 1 to order characters
    factors: list[Floats]  # of the probabilities of the lower order, by n-grams of 0 to order - 1 characters


@dataclass(frozen=True, eq=False)
class NgramModel:
    """Counts of all n-grams of 1 to `order` characters."""

    alphabet: NDArray[np.uint32]  # code points, rising
    levels: Sequence[Level]

    @property
    def order(self) -> int:
        """The characters of the longest n-grams."""
        return len(self.levels)

    @property
    def base(self) -> int:
        """One more than the largest number of a character."""
        return len(self.alphabet) + 2

    def entropies(self, text: str) -> Floats:
        """Per character of a text, its entropy given the characters before it, in bits."""
        tables = self.tables.entropies
        entropies = np.full(len(text), tables[0][0])
        for entropy, places in zip(tables[1:], [*self._contexts(text)][1:], strict=True):
            seen = places >= 0
            entropies[seen] = entropy[places[seen]]
        return entropies

    def surprisals(self, text: str) -> Floats:
        """Per character of a text, its surprisal given the characters before it, in bits.

        A character that the counted text lacks gets its share of the uniform distribution.
        """
        symbols = numbers_of(points_of(text), self.alphabet)
        shares, factors = self.tables[2:]
        p = np.full(len(text), 1 / (len(self.alphabet) + 1))
        for n, places in enumerate(self._contexts(text)):
            keys = places * self.base + symbols  # of the n characters before and this one
            at = np.searchsorted(self._keys[n], keys)
            follows, seen = places >= 0, self._keys[n][at] == keys
            p[follows] *= factors[n][places[follows]]
            p[seen] = shares[n][at[seen]]
        return -np.log2(p)

    def _contexts(self, text: str) -> Iterator[Ints]:
        """Per character, the place of the n characters before it among n-grams, for n from 0; -1: of none."""
        numbers = np.empty(len(text) + 1, np.int64)
        numbers[0] = BOUNDARY
        numbers[1:] = numbers_of(points_of(text), self.alphabet)
        history = numbers[:-1]  # what is before each character ends here
        places = np.zeros(len(text), np.int64)
        yield places
        for n, keys in enumerate(self._keys[:-1], 1):
            if n > 1:
                places = np.concatenate(([-1], places[:-1]))[: len(text)]
            contexts = places * self.base + history  # below 0 where the level before does not have it
            at = np.searchsorted(keys, contexts)
            places = np.where(keys[at] == contexts, at, -1)
            yield places

    @cached_property
    def _keys(self) -> list[Ints]:
        """Per level, parents and symbols as one rising number; the last one is never found."""
        last = [np.iinfo(np.int64).max]
        return [np.append(level.parents * self.base + level.symbols, last) for level in self.levels]

    @cached_property
    def tables(self) -> Tables:
        """All of them, in one pass over the levels, the shortest n-grams first."""
        size = len(self.alphabet) + 1  # characters that can follow, the boundary included
        entropies: list[Floats] = []
        suffixes: list[Ints] = []
        probabilities: list[Floats] = []
        factors: list[Floats] = []
        values, shares = np.full(1, np.log2(size)), np.full(1, 1 / size)  # of p_{k-1}, where k - 1 = 0
        for n, level in enumerate(self.levels):
            before = values[suffixes[-1]] if n else values
            if n == 0:
                suffix = np.zeros(len(level.symbols), np.int64)
            else:
                keys = suffixes[-1][level.parents] * self.base + level.symbols
                suffix = np.searchsorted(self._keys[n - 1], keys)
                if (self._keys[n - 1][suffix] != keys).any():
                    raise ValueError("an n-gram should be there without its first character as well")
            values, shares, factor = _smoothed(level, shares[suffix], before)
            entropies.append(values)
            suffixes.append(suffix)
            probabilities.append(shares)
            factors.append(factor)
        return Tables(entropies, suffixes, probabilities, factors)


def _smoothed(level: Level, lower: Floats, before: Floats) -> tuple[Floats, Floats, Floats]:
    """The entropy after each n-gram of the level before, the probability of each one of `level`, the factor.

    Only characters that were seen after an n-gram are visited: the others have what the lower order gives
    them, times the same factor, so that its entropy `before` says what they add up to.
    """
    parents, size = level.parents, len(before)
    seen = np.bincount(parents, minlength=size)  # D(h)
    total = np.bincount(parents, level.counts, size) + seen
    follows = seen > 0
    factor = np.where(follows, seen / np.where(follows, total, 1), 1.0)
    shares = (level.counts + seen[parents] * lower) / total[parents]
    others = before + np.bincount(parents, lower * np.log2(lower), size)
    others -= np.log2(factor) * (1 - np.bincount(parents, lower, size))
    entropy = factor * others - np.bincount(parents, shares * np.log2(shares), size)
    return np.where(follows, entropy, np.nan), shares, factor


def count_ngrams(lines: Iterable[str], order: int) -> NgramModel:
    """Count the n-grams of a text; lines of white space alone are left out."""
    blocks = list(_blocks(lines))
    if not blocks:
        raise ValueError("need text to count n-grams in")
    kinds = [np.unique(block) for block in blocks]
    alphabet = np.unique(np.concatenate(kinds))
    alphabet = alphabet[alphabet != _NEWLINE]
    width = (len(alphabet) + 1).bit_length()
    words, counts = np.empty((-(-order // (_BITS // width)), 0), np.int64), np.empty(0, np.int64)
    for block in blocks:
        numbers = numbers_of(block, alphabet)
        numbers[block == _NEWLINE] = BOUNDARY
        more = _windows(numbers, order, width)
        words, counts = _merged(words, counts, *_counted(more))
    return NgramModel(alphabet, _levels(words, counts, order, width))


_NEWLINE = ord("\n")  # the boundary, while a text is counted


def _blocks(lines: Iterable[str]) -> Iterator[NDArray[np.uint32]]:
    """The code points of many lines together, each between two newlines, which neighbours share."""
    some: list[str] = []
    size = 0
    for line in lines:
        if line.strip():
            some.append(line)
            size += len(line) + 1
        if size >= AT_ONCE:
            yield points_of("\n".join(["", *some, ""]))
            some, size = [], 0
    if some:
        yield points_of("\n".join(["", *some, ""]))


def points_of(text: str) -> NDArray[np.uint32]:
    """The code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def numbers_of(points: NDArray[np.uint32], alphabet: NDArray[np.uint32]) -> Ints:
    """The numbers of characters; 0 for one that is not in the alphabet."""
    at = np.minimum(np.searchsorted(alphabet, points), len(alphabet) - 1)
    return np.where(alphabet[at] == points, at + BOUNDARY + 1, 0)


def _windows(numbers: Ints, order: int, width: int) -> Ints:
    """[W, N]: the n-gram that starts at each place but the last, in W words of characters of `width` bits.

    It ends at the next boundary, and is 0 from there on. The first boundary of a line is counted as its last
    one as well: an n-gram of one character has nothing before it.
    """
    ends = np.flatnonzero(numbers == BOUNDARY)
    left = np.repeat(ends[1:], np.diff(ends)) - np.arange(ends[-1])  # characters to the next boundary
    numbers = np.concatenate((numbers, np.zeros(order, np.int64)))
    room = _BITS // width
    words = np.zeros((-(-order // room), len(left)), np.int64)
    for n in range(order):
        words[n // room] <<= width
        words[n // room] |= numbers[n : n + len(left)] * (left >= n)
    return words


def _counted(words: Ints) -> tuple[Ints, Ints]:
    """The distinct words, sorted, and how often each occurs."""
    if len(words) > 1:
        return _merged(words, np.ones(words.shape[1], np.int64))
    distinct, counts = np.unique(words[0], return_counts=True)
    return distinct[None], counts


def _merged(words: Ints, counts: Ints, *more: Ints) -> tuple[Ints, Ints]:
    """The same for words that already have counts, and for `more` words with theirs."""
    if more:
        words, counts = np.concatenate((words, more[0]), axis=1), np.concatenate((counts, more[1]))
    order = np.lexsort(words[::-1])
    words = words[:, order]
    new = np.append(True, (words[:, 1:] != words[:, :-1]).any(0))
    starts = np.flatnonzero(new)
    return words[:, starts], np.add.reduceat(counts[order], starts)


def _levels(words: Ints, counts: Ints, order: int, width: int) -> list[Level]:
    """The n-grams of each length, from the sorted windows that start with them."""
    room, levels = _BITS // width, []
    new = np.zeros(len(counts), bool)
    new[:1] = True
    above = np.zeros(len(counts), np.int64)  # the place of what each window starts with, in the level before
    for n in range(order):
        last = (order - 1 if n // room == (order - 1) // room else (n // room + 1) * room - 1) - n
        symbols = words[n // room] >> last * width & (1 << width) - 1
        new[1:] |= symbols[1:] != symbols[:-1]
        mask = symbols > 0
        first = np.flatnonzero(new & mask)
        places = np.cumsum(new & mask) - 1
        sums = np.bincount(places[mask], counts[mask], len(first)).astype(np.int64)
        levels.append(Level(above[first], symbols[first], sums))
        above = places
    return levels
