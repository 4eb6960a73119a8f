"""Where cuts fall: how surprising are the characters after them, and do two models agree on places?"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from caesura.data.ngrams import NgramModel, count_ngrams
from caesura.data.packing import packed, unpacked
from caesura.evaluation.boundaries import f1

ORDER = 6  # of the n-grams, as for cuts by entropy


@dataclass(frozen=True)
class Surprisal:
    """The mean surprisal, in bits, of the character after a gap."""

    at_cuts: float
    everywhere: float
    cuts: int
    gaps: int

    @property
    def enrichment(self) -> float:
        """1: cuts are before characters like any others; more: before those that are hard to predict."""
        return self.at_cuts / self.everywhere


def surprisal(model: NgramModel, texts: Sequence[str], bounds: Iterable[Sequence[int]]) -> Surprisal | None:
    """The surprisal after cuts, and after all gaps inside the texts; None where there is no cut."""
    at_cuts = everywhere = 0.0
    cuts = gaps = 0
    for text, places in zip(texts, bounds, strict=True):
        bits = model.surprisals(text)
        at_cuts += float(bits[list(places)].sum())
        everywhere += float(bits[1:].sum())
        cuts, gaps = cuts + len(places), gaps + max(0, len(text) - 1)
    return Surprisal(at_cuts / cuts, everywhere / gaps, cuts, gaps) if cuts and everywhere else None


def learn_ngrams(lines: Iterable[str]) -> NgramModel | None:
    """The n-grams of a training text; None if it is empty."""
    filled = [line for line in lines if line.strip()]
    return count_ngrams(filled, ORDER) if filled else None


@dataclass(frozen=True, eq=False)
class KeptCuts:
    """The cuts of some lines, one bit per gap between two characters."""

    cuts: NDArray[np.bool_]  # line after line
    lines: int
    text: int  # a checksum of the lines

    @classmethod
    def of(cls, texts: Sequence[str], bounds: Iterable[Sequence[int]]) -> Self:
        """The cuts of texts, as offsets strictly inside each."""
        parts = []
        for text, places in zip(texts, bounds, strict=True):
            line = np.zeros(len(text) + 1, bool)
            line[list(places)] = True
            parts.append(line[1 : len(text)])
        every = np.concatenate(parts) if parts else np.zeros(0, bool)
        return cls(every, len(texts), zlib.crc32("\n".join(texts).encode("utf-8", "surrogatepass")))

    def record(self) -> dict[str, Any]:
        """For JSON: the bits are compressed."""
        bits = packed(zlib.compress(np.packbits(self.cuts).tobytes(), 9))
        return {"lines": self.lines, "gaps": len(self.cuts), "text": self.text, "packed": bits}

    @classmethod
    def read(cls, record: dict[str, Any]) -> Self:
        """The inverse of `record`; ValueError for anything else."""
        try:
            gaps, lines, text, bits = (record[key] for key in ("gaps", "lines", "text", "packed"))
        except (KeyError, TypeError) as problem:
            raise ValueError(f"not packed cuts: {problem!r}") from problem
        content = unpacked(bits, zlib.decompressobj(), "cuts")
        if type(gaps) is not int or len(content) != -(-gaps // 8):
            raise ValueError("not packed cuts: too long or cut off")
        return cls(np.unpackbits(np.frombuffer(content, np.uint8), count=gaps).astype(bool), lines, text)

    def agreement(self, other: KeptCuts) -> tuple[float, float] | None:
        """F1 between the cuts of two models, and F1 by chance; None if their texts differ."""
        if (self.text, len(self.cuts)) != (other.text, len(other.cuts)):
            return None
        ours, theirs, gaps = int(self.cuts.sum()), int(other.cuts.sum()), len(self.cuts)
        both = int((self.cuts & other.cuts).sum())
        return f1(ours, theirs, both), f1(ours, theirs, ours * theirs / gaps if gaps else 0.0)
