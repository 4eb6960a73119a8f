"""The n-grams that lines share with their references, counted for many lines at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LINES = 8192  # counted at once

Ints = NDArray[np.int64]


class Symbols(NamedTuple):
    """The symbols of some lines, one line after the other."""

    codes: Ints  # equal for equal symbols
    lengths: Ints  # of the lines


class Shared(NamedTuple):
    """N-grams of one order, over all lines."""

    written: int  # in the hypotheses
    wanted: int  # in the references
    matched: int  # in both, each as often as in the one where it is rarer
    judged: int  # in the hypotheses whose reference has any


def characters(lines: Sequence[str]) -> Symbols:
    """Code points."""
    codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32)
    return Symbols(codes.astype(np.int64), np.array([len(line) for line in lines], np.int64))


def words(lines: Sequence[str]) -> Symbols:
    """What stands between white space."""
    cut, numbers = [line.split() for line in lines], dict[str, int]()
    codes = [numbers.setdefault(word, len(numbers)) for line in cut for word in line]
    return Symbols(np.array(codes, np.int64), np.array([len(line) for line in cut], np.int64))


def shared_ngrams(
    hypotheses: Sequence[str], references: Sequence[str], cut: Callable[[Sequence[str]], Symbols], order: int
) -> list[Shared]:
    """Those of 1 to `order` symbols, each line compared with its one reference."""
    sums = np.zeros((order, len(Shared._fields)), np.int64)
    for begin in range(0, len(hypotheses), LINES):
        some = slice(begin, begin + LINES)
        sums += _counts(cut([*hypotheses[some], *references[some]]), order)
    return [Shared(*row) for row in sums.tolist()]


def _counts(symbols: Symbols, order: int) -> list[Shared]:
    """Of lines whose first half are hypotheses, and the second their references."""
    lengths = symbols.lengths
    written, wanted = lengths.reshape(2, -1)
    found, codes = np.unique(symbols.codes, return_inverse=True)
    at = np.arange(len(codes))
    left = np.repeat(lengths.cumsum(), lengths) - at  # symbols from here to the end of the line
    # What is equal has equal keys: the number of the pair of lines, then a digit a symbol.
    side, keys = np.divmod(np.repeat(np.arange(len(lengths)), lengths), max(1, len(written)))
    size, counts = len(written), []
    for n in range(1, order + 1):
        whole = left >= n
        at, left, side, keys = at[whole], left[whole], side[whole], keys[whole]
        if size * len(found) >= 1 << 62:  # with one bit for the side it has to stay below 2 ** 63
            keys = np.unique(keys, return_inverse=True)[1]
            size = len(keys)
        keys = keys * len(found) + codes[at + n - 1]
        size *= len(found)
        places = np.maximum(written - n + 1, 0)
        judged = places[wanted >= n].sum()
        counts.append(Shared(places.sum(), np.maximum(wanted - n + 1, 0).sum(), _matched(keys, side), judged))
    return counts


def _matched(keys: Ints, side: Ints) -> int:
    """How many keys on one side have one of their own on the other."""
    if not len(keys):
        return 0
    order = np.sort(2 * keys + side)
    starts = np.flatnonzero(np.diff(order >> 1, prepend=-1))
    ones = np.add.reduceat(order & 1, starts)
    return int(np.minimum(ones, np.diff(starts, append=len(order)) - ones).sum())
