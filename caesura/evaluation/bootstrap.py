"""A paired bootstrap from counts of n-grams: any two systems can be compared without their translations.

Sums of such counts say all that BLEU and chrF2 need. They are kept packed, for each line or, in much less
room, for a few neighbouring lines at a time, which are then drawn together. Lines are drawn as sacrebleu
draws them: for two trainings and single lines, the p-value is sacrebleu's.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from caesura.data.packing import packed, unpacked
from caesura.errors import InputError
from caesura.evaluation.ngrams import Ints, LineNgrams, Shared
from caesura.evaluation.scores import bleu_of, chrf_of, shared_characters, shared_words

SAMPLES, SEED = 1000, 12345  # sacrebleu's
AT_ONCE = 2_000_000  # numbers of units drawn at once
MEMORY = 1 << 25  # bytes that unpacking may take
_ORDERS = (4, 6)  # of n-grams of words, for BLEU, and of characters, for chrF
_WORDS, _COLUMNS = len(Shared._fields) * _ORDERS[0], len(Shared._fields) * sum(_ORDERS)

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """Matches of a text's units with their references: a unit is one line, or a few neighbouring ones."""

    sums: Ints  # [U, 40]: the four counts of `Shared`, for 1 to 4 words, then for 1 to 6 characters

    @classmethod
    def of(
        cls,
        hypotheses: Sequence[str],
        references: Sequence[str],
        tokenize: str = "13a",
        lowercase: bool = False,
        unit: int = 1,
    ) -> Self:
        """Count the lines of one system against one reference each, `unit` lines together."""
        words = shared_words(hypotheses, references, tokenize, lowercase)
        columns = [*_counts(words), *_counts(shared_characters(hypotheses, references, lowercase))]
        starts = np.arange(0, len(hypotheses), unit)
        return cls(np.add.reduceat(np.stack(columns, 1), starts))

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def bleu(self) -> float:
        """BLEU of the whole text."""
        return _bleu(self.sums.sum(0))

    @property
    def chrf(self) -> float:
        """ChrF2 of the whole text."""
        return _chrf(self.sums.sum(0))

    def packed(self) -> str:
        """All counts as text: columns of small numbers, compressed."""
        parts = np.split(self.sums.T, [_WORDS])
        columns = np.concatenate([_differences(part) for part in parts]).astype("<u4")
        planes = np.ascontiguousarray(columns[..., None].view(np.uint8).transpose(2, 0, 1))
        return packed(lzma.compress(planes.tobytes(), preset=6))

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """The inverse of `packed`; ValueError for anything else."""
        content = unpacked(text, lzma.LZMADecompressor(memlimit=MEMORY), "counts of n-grams")
        if not content or len(content) % (4 * _COLUMNS):
            raise ValueError("not packed counts of n-grams: too long or cut off")
        planes = np.frombuffer(content, np.uint8).reshape(4, _COLUMNS, -1)
        columns = np.ascontiguousarray(planes.transpose(1, 2, 0)).view("<u4")[..., 0].astype(np.int64)
        parts = np.split(columns, [_WORDS])
        return cls(np.concatenate([_of_differences(part) for part in parts]).T)


class Difference(NamedTuple):
    """How far one system is above another: mean over seeds, 95% interval and p-value by the bootstrap."""

    mean: float
    low: float
    high: float
    p_value: float

    @property
    def interval(self) -> str:
        """-1.25 to -0.75."""
        return f"{self.low:+.2f} to {self.high:+.2f}"

    def __str__(self) -> str:
        """-1.00 (-1.25 to -0.75)."""
        return f"{self.mean:+.2f} ({self.interval})"


class Replicates(NamedTuple):
    """The scores of one training: of the whole text, and of each drawn text."""

    score: float
    drawn: Floats


def replicates(
    trainings: Sequence[UnitCounts], samples: int = SAMPLES, seed: int = SEED
) -> tuple[list[Replicates], list[Replicates]]:
    """BLEU and chrF2 of trainings on the same drawn texts; InputError where they were tested on others."""
    if not trainings:
        return [], []
    expected = [counts.sums[:, 1 :: len(Shared._fields)] for counts in trainings]
    if not all(np.array_equal(expected[0], other) for other in expected):
        raise InputError("the counts of n-grams are of different texts; measure all systems on the same text")
    columns = np.concatenate([counts.sums for counts in trainings], 1).astype(np.float64)
    drawn = np.concatenate([weights @ columns for weights in _drawn(len(columns), samples, seed)])
    each = np.split(drawn.astype(np.int64), len(trainings), 1)
    bleu = [np.array([_bleu(row) for row in rows]) for rows in each]
    chrf = [np.array([_chrf(row) for row in rows]) for rows in each]
    return (
        [Replicates(counts.bleu, scores) for counts, scores in zip(trainings, bleu, strict=True)],
        [Replicates(counts.chrf, scores) for counts, scores in zip(trainings, chrf, strict=True)],
    )


def difference(system: Sequence[Replicates], other: Sequence[Replicates], seed: int = SEED) -> Difference:
    """One system above another, each with one or more trainings; their seeds are drawn again as well."""
    return contrast([system], [other], seed)


def contrast(
    above: Sequence[Sequence[Replicates]], below: Sequence[Sequence[Replicates]], seed: int = SEED
) -> Difference:
    """The sum of some systems' scores above that of others, such as what two systems gain in two settings."""
    rng = np.random.default_rng(seed)
    mean, drawn = 0.0, np.zeros(())
    for sign, systems in ((1, above), (-1, below)):
        for system in systems:
            mean += sign * float(np.mean([one.score for one in system]))
            drawn = drawn + sign * _over_seeds(system, rng)
    low, high = np.quantile(drawn, (0.025, 0.975))
    sizes = np.abs(drawn)
    beyond = int((sizes - sizes.mean() > abs(mean)).sum())
    return Difference(mean, float(low), float(high), (beyond + 1) / (len(drawn) + 1) if mean else 1.0)


def _over_seeds(trainings: Sequence[Replicates], rng: np.random.Generator) -> Floats:
    """For each drawn text, the mean over as many trainings, drawn with replacement."""
    scores = np.stack([one.drawn for one in trainings])  # [trainings, samples]
    chosen = rng.choice(len(scores), size=scores.shape, replace=True)
    result: Floats = np.take_along_axis(scores, chosen, 0).mean(0)
    return result


def _drawn(units: int, samples: int, seed: int) -> Iterator[Floats]:
    """[some, U]: how often each unit is drawn."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(units, size=(samples, units), replace=True)
    some = max(1, AT_ONCE // units)
    for begin in range(0, samples, some):
        part = drawn[begin : begin + some]
        flat = part + units * np.arange(len(part))[:, None]
        yield np.bincount(flat.ravel(), minlength=part.size).reshape(part.shape).astype(np.float64)


def _counts(lines: LineNgrams) -> Iterator[Ints]:
    """By order, the four counts of `Shared` of each line."""
    for n, matched in enumerate(lines.matched, 1):
        places = np.maximum(lines.written - n + 1, 0)
        yield from (places, np.maximum(lines.expected - n + 1, 0), matched, places * (lines.expected >= n))


def _bleu(sums: Ints) -> float:
    return bleu_of(_shared(sums[:_WORDS]))


def _chrf(sums: Ints) -> float:
    return chrf_of(_shared(sums[_WORDS:]))


def _shared(sums: Ints) -> list[Shared]:
    return [Shared(*row) for row in sums.reshape(-1, len(Shared._fields)).tolist()]


def _differences(counts: Ints) -> Ints:
    """[C, U] numbers that are small and not negative: from order to order, counts change little."""
    written, expected, matched, judged = counts.reshape(-1, len(Shared._fields), counts.shape[1]).swapaxes(
        0, 1
    )
    longer = written[0] - expected[0]
    first = np.where(longer < 0, -2 * longer - 1, 2 * longer)
    fewer = -np.diff(written, axis=0), -np.diff(expected, axis=0)
    unmatched = -np.diff(matched, axis=0, prepend=written[:1])
    return np.concatenate([first[None], expected[:1], *fewer, unmatched, written - judged])


def _of_differences(columns: Ints) -> Ints:
    orders = len(columns) // len(Shared._fields)
    first, one, *rest = np.split(columns, [1, 2, orders + 1, 2 * orders, 3 * orders])
    fewer_written, fewer_expected, unmatched, unjudged = rest
    longer = np.where(first % 2, -(first + 1) // 2, first // 2)
    expected = np.cumsum(np.concatenate([one, -fewer_expected]), axis=0)
    written = np.cumsum(np.concatenate([one + longer, -fewer_written]), axis=0)
    matched = written[:1] - np.cumsum(unmatched, axis=0)
    counts = np.stack([written, expected, matched, written - unjudged], 1)
    return counts.reshape(len(columns), -1)
