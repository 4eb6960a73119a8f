"""The text that is analysed: read as a stream, of which a seeded sample is kept."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from caesura.data.corpus import ParallelText
from caesura.data.files import Errors, is_tsv, read_lines


@dataclass(frozen=True)
class Line:
    """A sentence of the analysed text."""

    number: int  # from 1, as in the file
    source: str
    reference: str | None = None
    gold: tuple[int, ...] | None = None  # boundaries as character offsets
    too_long: bool = False  # over testing.max_input: the source was made empty


def read_text(src: str, trg: str | None, errors: Errors, longest: int) -> Iterator[Line]:
    """The lines of a source alone, of a source with its references, or of a TSV."""
    if trg is None and not is_tsv(src):
        pairs: Iterable[tuple[str | None, str | None, list[int] | None]]
        pairs = ((line, None, None) for line in read_lines(src, errors))
    else:
        pairs = ParallelText(src, trg).pairs(errors)
    for number, (source, reference, bounds) in enumerate(pairs, 1):
        if source is None or len(source) > longest:
            yield Line(number, "", reference, None if bounds is None else (), too_long=True)
        else:
            yield Line(number, source, reference, None if bounds is None else tuple(bounds))


def chunks(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """The lines in lists of `size`, so that sentences of similar length can share a batch."""
    stream = iter(lines)
    while chunk := list(islice(stream, size)):
        yield chunk


@dataclass
class Sample:
    """A seeded sample of a stream whose length need not be known, every line equally likely.

    Which lines are taken depends on the seed and the number of lines alone: models are compared on the same.
    """

    size: int
    seed: int
    numbers: Collection[int] = ()  # of lines that are kept beside the sample
    seen: int = 0
    _kept: list[Line] = field(default_factory=list)
    _by_number: dict[int, Line] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def add(self, line: Line) -> None:
        """Look at one more line (Vitter's algorithm R)."""
        if line.number in self.numbers:
            self._by_number[line.number] = line
        self.seen += 1
        if len(self._kept) < self.size:
            self._kept.append(line)
        elif (place := self._random.randrange(self.seen)) < self.size:
            self._kept[place] = line

    @property
    def lines(self) -> list[Line]:
        """The sample, in the order of the text."""
        return sorted(self._kept, key=lambda line: line.number)

    @property
    def chosen(self) -> list[Line]:
        """The lines that were wanted by their number."""
        return [self._by_number[number] for number in self.numbers if number in self._by_number]


def subsample(lines: Sequence[Line], size: int, seed: int) -> list[Line]:
    """At most `size` of the lines, in their order."""
    if len(lines) <= size:
        return list(lines)
    return sorted(random.Random(seed).sample(lines, size), key=lambda line: line.number)


def name_of(path: str | Path) -> str:
    """The name of a file, for readers."""
    return "standard input" if str(path) == "-" else readable(Path(path).name)


def readable(name: str) -> str:
    """A name of a file or folder as text that can be drawn; bytes that are not UTF-8 as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")
