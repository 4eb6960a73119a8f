"""The n-grams that lines share with their references, counted for many lines at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LINES = 8192  # counted at once

Ints = NDArray[np.int64]


class Symbols(NamedTuple):
    """The symbols of some lines, one line after the other."""

    codes: Ints  # from 1 on without a gap, equal for equal symbols
    lengths: Ints  # of the lines


class LineNgrams(NamedTuple):
    """N-grams of L lines, and how many of them their references share."""

    written: Ints  # [L] symbols of the hypotheses
    expected: Ints  # [L] symbols of the references
    matched: Ints  # [order, L] n-grams of each order in both, each as often as in the one where it is rarer

    def sums(self) -> list[Shared]:
        """Over all lines, for each order."""
        shared = []
        for n, matched in enumerate(self.matched, 1):
            places = np.maximum(self.written - n + 1, 0)
            judged = places[self.expected >= n].sum()
            counts = places.sum(), np.maximum(self.expected - n + 1, 0).sum(), matched.sum(), judged
            shared.append(Shared(*map(int, counts)))
        return shared


class Shared(NamedTuple):
    """N-grams of one order, over all lines."""

    written: int  # in the hypotheses
    expected: int  # in the references
    matched: int  # in both, each as often as in the one where it is rarer
    judged: int  # in the hypotheses whose reference has any


def characters(lines: Sequence[str]) -> Symbols:
    """Code points."""
    points = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32)
    present = np.zeros(points.max(initial=0) + 1, np.int64)
    present[points] = 1
    return Symbols(present.cumsum()[points], np.array([len(line) for line in lines], np.int64))


def words(lines: Sequence[str]) -> Symbols:
    """Words: the text between white space."""
    cut, numbers = [line.split() for line in lines], defaultdict[str, int](count(1).__next__)
    codes = np.fromiter(map(numbers.__getitem__, chain.from_iterable(cut)), np.int64)
    return Symbols(codes, np.array([len(line) for line in cut], np.int64))


def shared_ngrams(
    hypotheses: Sequence[str], references: Sequence[str], cut: Callable[[Sequence[str]], Symbols], order: int
) -> LineNgrams:
    """The shared n-grams of 1 to `order` symbols, each line compared with its one reference."""
    parts = []
    for begin in range(0, len(hypotheses), LINES):
        some = slice(begin, begin + LINES)
        symbols = cut([*hypotheses[some], *references[some]])  # first half: hypotheses
        written, expected = symbols.lengths.reshape(2, -1)
        parts.append((written, expected, np.array([*_matched(symbols, order)])))
    return LineNgrams(*(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)))


def _matched(symbols: Symbols, order: int) -> Iterator[Ints]:
    """[L]: how many n-grams on one side have one of their own on the other, for n from 1 to `order`.

    A key is the number of a pair of lines, then one digit per symbol, then the side: keys in this order are
    sorted by the keys of all shorter n-grams too. The digit is 0 where the line has ended.
    """
    codes, lengths = symbols
    width = int(codes.max(initial=1)).bit_length()  # of a digit
    remaining = np.repeat(lengths.cumsum(), lengths) - np.arange(len(codes))  # symbols to the end of the line
    pairs = len(lengths) // 2
    side, keys = np.divmod(np.repeat(np.arange(len(lengths)), lengths), max(1, pairs))
    pair, owners = keys, np.arange(pairs)  # of each symbol, and of what a key begins with
    codes = np.concatenate((codes, np.zeros(order, np.int64)))
    size, n = pairs.bit_length(), 0
    while n < order:
        more = min(order - n, (62 - size) // width)  # with one bit for the side it has to stay below 2 ** 63
        for at in range(n, n + more):
            keys = keys << width | codes[at : at + len(keys)] * (remaining > at)
        yield from _matched_by_key(keys << 1 | side, width, more, owners, pairs)
        n += more
        if n < order:
            _, first, keys = np.unique(keys, return_index=True, return_inverse=True)
            owners, size = pair[first], len(keys).bit_length()


def _matched_by_key(keys: Ints, width: int, digits: int, owners: Ints, pairs: int) -> list[Ints]:
    """The same for keys that end in so many digits and the side: of the first digit, the first two, ..."""
    if not len(keys):
        return [np.zeros(pairs, np.int64)] * digits
    keys = np.sort(keys)
    references = np.concatenate(([0], (keys & 1).cumsum()))  # before each key
    keys >>= 1
    new = np.concatenate((~keys[:1], keys[1:] ^ keys[:-1]))  # the first is new in all bits
    matched = []
    for low in range((digits - 1) * width, -1, -width):
        starts = np.flatnonzero(new >> low != 0)
        ends = np.append(starts[1:], len(keys))
        ones = references[ends] - references[starts]
        both = np.minimum(ones, ends - starts - ones) * (keys[starts] >> low & (1 << width) - 1 > 0)
        owner = owners[keys[starts] >> digits * width]
        matched.append(np.bincount(owner, both, pairs).astype(np.int64))
    return matched
