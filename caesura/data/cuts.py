"""Where segments of a source text should end: by rules, at the ends of symbols, or at a file's offsets.

Cuts by entropy are in `entropy.py`.

A cut is a character offset strictly inside the text. For a model, cuts become one number per source symbol,
int8: 1 cut after this symbol, -1 do not, 0 free. There is none for </s>.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from caesura.data.files import Errors, digest, line_of, read_lines, stored
from caesura.data.vocabulary import Spans, Vocabulary
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.config import AlignmentCuts, EntropyCuts, FileCuts, RuleCuts, SymbolCuts
    from caesura.data.blocks import Block

# A caller's cuts of one text: none, all offsets to cut at, or some with 1 (cut) or -1 (do not).
GivenCuts = Sequence[int] | Mapping[int, int] | None

AHEAD = 1024  # lines that are cut together
MAX_AHEAD = 10_000  # characters of such a line: longer lines may be dropped later
UNKNOWN = "?"  # a line in a file of offsets: nobody knows where to cut this sentence

_SPACE = re.compile(r"\s+")  # agrees with str.split() on what white space is


class CutsSource(Protocol):
    """Cuts the lines of a text, one after the other."""

    one_process: bool  # it uses a device or all cores, or learns from the text

    @property
    def fingerprint(self) -> list[Any]:
        """Everything that decides where a text is cut, as JSON has it."""

    def reader(self, errors: Errors = "strict", block: Block | None = None) -> CutsReader:
        """Goes through the lines of a text, or of a block of it."""


class TextCuts(ABC):
    """Cuts that follow from the text alone."""

    one_process = False

    @abstractmethod
    def offsets(self, text: str) -> list[int]:
        """Where to cut a text: rising, strictly inside it."""

    def several_offsets(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for several texts, which may be faster together."""
        return [self.offsets(text) for text in texts]

    @property
    @abstractmethod
    def fingerprint(self) -> list[Any]:
        """Everything that decides where a text is cut, as JSON has it."""

    def __call__(self, text: str, places: NDArray[np.int32]) -> NDArray[np.int8]:
        """Per symbol, given their places [n, 2]: 1 or 0; a cut inside a symbol is left out."""
        return self.marks(self.offsets(text), places)

    @staticmethod
    def marks(offsets: Sequence[int], places: NDArray[np.int32]) -> NDArray[np.int8]:
        """The same, from offsets."""
        after, between = symbols_before(offsets, places)
        return _marked(len(places), after[between])

    def reader(self, errors: Errors = "strict", block: Block | None = None) -> CutsReader:
        """Goes through the lines of a text, or of a block of it."""
        return CutsReader(self)


class RuledCuts(TextCuts):
    """Cuts before or after certain characters, and inside segments that are still longer than `most`."""

    def __init__(self, rule: RuleCuts) -> None:
        self.rule = rule

    @property
    def fingerprint(self) -> list[Any]:
        return [self.rule.type, self.rule.characters, self.rule.side, self.rule.most]

    def offsets(self, text: str) -> list[int]:
        offsets = [at for at in self._by_character(text) if 0 < at < len(text)]
        most = self.rule.most
        if most is None:
            return offsets
        return [at for a, b in pairwise([0, *offsets, len(text)]) for at in range(a, b, most) if at]

    def _by_character(self, text: str) -> Iterator[int]:
        after = self.rule.side == "after"
        if self.rule.type == "whitespace":  # a run of it counts as one
            return (match.end() if after else match.start() for match in _SPACE.finditer(text))
        if self.rule.type == "punctuation":
            return (at + after for at, character in enumerate(text) if _is_punctuation(character))
        return (at + after for at, character in enumerate(text) if character in self.rule.characters)


@lru_cache(maxsize=1 << 14)
def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")


class SymbolEnds(TextCuts):
    """Cuts where the symbols of a vocabulary end; white space belongs to the symbol that follows it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @property
    def fingerprint(self) -> list[Any]:
        return [self.vocabulary.kind, self.vocabulary.fingerprint]

    def offsets(self, text: str) -> list[int]:
        _, spans = self.vocabulary.encode_spans(text)
        return [end for start, end in spans if end > start][:-1]


class OffsetFile:
    """Cuts in a file: character offsets separated by spaces, one line per line of the text.

    Where cuts are only imitated, a line may be UNKNOWN.
    """

    one_process = False

    def __init__(self, path: str | Path, imitated: bool = False) -> None:
        self.path, self.imitated = Path(path), imitated

    @property
    def fingerprint(self) -> list[Any]:
        """The hash of the file."""
        return ["file", digest(self.path)]

    def reader(self, errors: Errors = "strict", block: Block | None = None) -> CutsReader:
        """Goes through the lines of a text, and of this file with it: the last one of a block."""
        return FileReader(self.path, errors, self.imitated, block)


class CutsReader:
    """The cuts of a text, line by line: `advance` at every line, `cuts` where they are wanted.

    The lines that `ahead` gets are cut together.
    """

    def __init__(self, source: TextCuts) -> None:
        self._source = source
        self._ahead: dict[str, list[int]] = {}

    def ahead(self, texts: Iterable[str | None]) -> None:
        """Cut the next lines together; None stands for a line that could not be read."""
        some = [*{text: None for text in texts if text is not None and len(text) <= MAX_AHEAD}]
        self._ahead = dict(zip(some, self._source.several_offsets(some), strict=True))

    def advance(self, text: str | None) -> None:
        """Go on to the next line; None where it could not be read."""

    def cuts(self, text: str, places: NDArray[np.int32]) -> NDArray[np.int8]:
        """The cuts of this line, given the places [n, 2] of its symbols."""
        if text in self._ahead:
            return TextCuts.marks(self._ahead[text], places)
        return self._source(text, places)

    def finish(self, text: str | Path, lines: int) -> None:
        """Refuse cuts for another number of lines than the text has."""


class FileReader(CutsReader):
    """The same, with the cuts of a file."""

    def __init__(
        self, path: Path, errors: Errors, imitated: bool = False, block: Block | None = None
    ) -> None:
        self._path, self._imitated, self._unknown = path, imitated, False
        self._lines, self._number = read_lines(path, errors), 0
        if block is not None:
            self._number, lines = block.first - 1, enumerate(block.rows, block.first)
            self._lines = (line_of(row[-1], stored(path), number, errors) for number, row in lines)
        self._offsets: list[int] = []

    def ahead(self, texts: Iterable[str | None]) -> None:
        """Does nothing: lines of a file are read one by one."""

    def advance(self, text: str | None) -> None:
        line = next(self._lines, _END)
        self._offsets, self._unknown = [], False
        if line is _END:
            return
        self._number += 1
        if line is None:
            raise InputError(f"{self._place}: the line is too long")
        self._unknown = self._imitated and line == UNKNOWN
        if text is not None and not self._unknown:
            self._offsets = parse_offsets(str(line), text, self._place, "cuts")

    @property
    def offsets(self) -> list[int]:
        """The offsets of this line."""
        return self._offsets

    def cuts(self, text: str, places: NDArray[np.int32]) -> NDArray[np.int8]:
        if self._unknown:
            return unknown(places)
        after, between = symbols_before(self._offsets, places)
        if not between.all():
            raise InputError(f"{self._place}: {_within(self._offsets, between)}")
        return _marked(len(places), after)

    def finish(self, text: str | Path, lines: int) -> None:
        count = self._number + sum(1 for _ in self._lines)
        if count != lines:
            raise other_length(text, lines, self._path, count)

    @property
    def _place(self) -> str:
        return f"{self._path}:{self._number}"


_END = object()


def other_length(text: str | Path, lines: int, path: Path, count: int) -> InputError:
    """The error for a file of cuts that does not have one line per sentence."""
    return InputError(
        f"{text} has {lines} lines, {path} has {count} lines; a file of cuts has one line per sentence"
    )


def text_cuts(
    settings: RuleCuts | SymbolCuts | EntropyCuts | AlignmentCuts | FileCuts | None,
    learnt: Vocabulary | TextCuts | None = None,
) -> TextCuts | None:
    """How a config's `data.cuts` cuts any text; None where it is not set or cuts the config's own text alone.

    `learnt` comes from the training text: a vocabulary of symbols, or cuts by entropy.
    """
    if settings is None or settings.type in ("file", "alignment"):
        return None
    if settings.type == "entropy":
        if not isinstance(learnt, TextCuts):
            raise ValueError("data.cuts of type entropy need the learnt model")
        return learnt
    if settings.type in ("bpe", "unigram", "wordpiece"):
        if not isinstance(learnt, Vocabulary) or learnt.kind != settings.type:
            raise ValueError(f"data.cuts of type {settings.type} need a vocabulary of that kind")
        return SymbolEnds(learnt)
    return RuledCuts(settings)  # type: ignore[arg-type]


def parse_offsets(cell: str, text: str, place: str, what: str) -> list[int]:
    """Character offsets separated by spaces, rising and strictly inside `text`; anything else is refused."""
    parts = cell.split()
    if wrong := next((p for p in parts if not (p.isascii() and p.isdigit() and len(p) < 10)), None):
        raise InputError(
            f"{place}: {what} {cell[:60]!r}; should be whole numbers, character offsets separated by "
            f"spaces, not {wrong[:20]!r}"
        )
    offsets = [int(p) for p in parts]
    if problem := _misplaced(offsets, len(text)):
        raise InputError(f"{place}: {what} {cell[:60]!r}: {problem}")
    return offsets


def _misplaced(offsets: Sequence[int], length: int) -> str | None:
    """The problem with the first offset that is not inside a text, or not after the one before it."""
    for before, at in pairwise([0, *offsets]):
        if not 0 < at < length:
            return f"offset {at} is not inside a sentence of {length} characters"
        if at <= before:
            return f"offset {at} comes after {before}; offsets should rise"
    return None


def places_of(spans: Spans) -> NDArray[np.int32]:
    """[n, 2]: the characters [start, end) that each symbol covers."""
    return np.fromiter(chain.from_iterable(spans), np.int32, 2 * len(spans)).reshape(-1, 2)


def symbols_before(
    offsets: Sequence[int], places: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """After which symbol each offset cuts, and whether it is between two symbols at all.

    White space that belongs to no symbol counts as between two of them.
    """
    at = np.asarray(offsets, np.int64)
    starts, ends = places[:, 0], places[:, 1]
    following = np.searchsorted(ends, at, side="right")  # the first symbol that ends after it
    inside = (following > 0) & (following < len(places))
    inside[inside] = starts[following[inside]] >= at[inside]
    return following - 1, inside


def combine(
    given: GivenCuts, default: NDArray[np.int8] | None, text: str, places: NDArray[np.int32], place: str
) -> NDArray[np.int8] | None:
    """Merge the cuts that a caller has `given` with the model's `default` cuts, per symbol.

    A sequence of offsets replaces the model's cuts: no other gap is cut. A mapping overrides single gaps. The
    gap before </s> stays free. `place` names the sentence in messages.
    """
    if given is None:
        return default
    offsets, values = _checked(given, text, place)
    after, between = symbols_before(offsets, places)
    if not between.all():
        raise InputError(f"{place}: {_within(offsets, between)}")
    if isinstance(given, Mapping):
        marks = np.zeros(len(places), np.int8) if default is None else default.copy()
    else:
        marks = np.full(len(places), -1, np.int8)
        marks[-1:] = 0
    marks[after] = values
    return marks


def _checked(given: Sequence[int] | Mapping[int, int], text: str, place: str) -> tuple[list[int], list[int]]:
    """Offsets and what to do there."""
    try:
        if isinstance(given, str):
            raise TypeError
        values = [*map(index, given.values())] if isinstance(given, Mapping) else [1] * len(given)
        offsets = [*map(index, given)]
    except TypeError:
        raise InputError(
            f"{place}: cuts {str(given)[:60]!r}; should be offsets, or offsets with 1 or -1"
        ) from None
    if isinstance(given, Mapping):  # in any order
        pairs = sorted(zip(offsets, values, strict=True))
        offsets, values = [at for at, _ in pairs], [value for _, value in pairs]
    for at, value in zip(offsets, values, strict=True):
        if value not in (1, -1):
            raise InputError(f"{place}: cut at offset {at}: should be 1 (cut) or -1 (do not), not {value}")
    if problem := _misplaced(offsets, len(text)):
        raise InputError(f"{place}: cuts: {problem}")
    return offsets, values


def _within(offsets: Sequence[int], between: NDArray[np.bool_]) -> str:
    at = offsets[int(np.flatnonzero(~between)[0])]
    return f"offset {at} is not between two symbols, and only there can be a cut"


def unknown(places: NDArray[np.int32]) -> NDArray[np.int8]:
    """The marks of a sentence whose cuts nobody knows; a segmenter that imitates cuts skips it."""
    return np.full(len(places), -1, np.int8)


def _marked(count: int, after: NDArray[np.int64]) -> NDArray[np.int8]:
    marks = np.zeros(count, np.int8)
    marks[after] = 1
    return marks
