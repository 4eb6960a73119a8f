"""A text that is small enough to be held in memory, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from caesura.data.corpus import ParallelText, read_sources
from caesura.data.cuts import CutsSource, FileReader, GivenCuts, TextCuts, combine, places_of
from caesura.data.files import Errors
from caesura.data.vocabulary import UNK, Vocabulary
from caesura.errors import InputError

NO_CUTS = (
    "this model takes its cuts from files (data.cuts), and they have none for this sentence; "
    "use `translate --with-cuts`, or cuts= in Python"
)


@dataclass(frozen=True)
class Sentences:
    """A text that is held in memory, for validation and evaluation."""

    sources: Sequence[str]
    references: list[str]
    gold: list[list[int]] | None  # boundaries, where every line has them
    too_long: list[int] = field(default_factory=list)  # numbers of the lines that were made empty


class Numbered(Sequence[str]):
    """Texts with their symbols in a vocabulary, looked up once, however often they are translated.

    They may have cuts, one number per symbol: 1 cut after it, -1 do not, 0 free. A model then looks for no
    other cuts.
    """

    cuts: Sequence[NDArray[np.int8]] | None = None

    def __init__(self, texts: Iterable[str], vocabulary: Vocabulary) -> None:
        self._texts = tuple(texts)
        self.vocabulary = vocabulary
        self.ids: list[NDArray[np.int32]] = []
        self.places: list[NDArray[np.int32]] = []  # [n, 2] as `places_of` has them
        for text in self._texts:
            ids, spans = vocabulary.encode_spans(text)
            self.ids.append(np.array(ids, np.int32))
            self.places.append(places_of(spans))

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[str, ...]: ...
    def __getitem__(self, i: int | slice) -> str | tuple[str, ...]:
        return self._texts[i]

    def with_cuts(self, cuts: Sequence[NDArray[np.int8]]) -> Numbered:
        """The same texts with these cuts."""
        if [*map(len, cuts)] != [*map(len, self.ids)]:
            raise ValueError("cuts should have one number per symbol of each text")
        copied = copy(self)
        copied.cuts = cuts
        return copied

    def cut_by(
        self,
        source: CutsSource,
        name: str | Path,
        unread: Container[int] = (),
        errors: Errors = "strict",
    ) -> Numbered:
        """The same texts, which are all lines of the file `name`, with the cuts that a source has for them.

        Lines that are `unread` are skipped, because they were too long.
        """
        reader, cuts = source.reader(errors), []
        reader.ahead(text for number, text in enumerate(self._texts, 1) if number not in unread)
        for number, (text, places) in enumerate(zip(self._texts, self.places, strict=True), 1):
            reader.advance(None if number in unread else text)
            cuts.append(reader.cuts(text, places))
        reader.finish(name, len(self))
        return self.with_cuts(cuts)

    def unknown(self, i: int) -> list[str]:
        """The parts of a text that are not in the vocabulary."""
        return [self._texts[i][a:b] for a, b in self.places[i][self.ids[i] == UNK].tolist()]


def numbered(texts: Sequence[str], vocabulary: Vocabulary) -> Numbered:
    """The texts in this vocabulary, which they may be already."""
    if isinstance(texts, Numbered) and texts.vocabulary is vocabulary:
        return texts
    return Numbered(texts, vocabulary)


def with_given(
    texts: Numbered, given: Sequence[GivenCuts] | None, source: TextCuts | None, needed: bool = False
) -> Numbered:
    """The texts with the cuts that they should have; without any where a segmenter is free in all of them.

    `given` are those of a caller, one entry per text (see `combine`); they override those that the texts have
    or that a `source` finds. With `needed`, a text without any is refused.
    """
    if given is not None and (isinstance(given, Mapping | str) or len(given) != len(texts)):
        count = "one for all" if isinstance(given, Mapping | str) else len(given)
        raise InputError(
            f"cuts should have one entry per sentence, {len(texts)}, such as [[4, 8]]; not {count}"
        )
    if given is None and texts.cuts is not None:
        return texts
    cuts: list[NDArray[np.int8] | None] = []
    cut_by_source = {} if source is None or texts.cuts is not None else _source_cuts(texts, given, source)
    for i, (text, places) in enumerate(zip(texts, texts.places, strict=True)):
        entry = None if given is None else given[i]
        cut = cut_by_source.get(i) if texts.cuts is None else texts.cuts[i]
        if needed and cut is None and entry is None and len(places):
            raise InputError(f"sentence {i + 1}: {NO_CUTS}")
        cuts.append(combine(entry, cut, text, places, f"sentence {i + 1}"))
    if all(cut is None for cut in cuts):
        return texts
    free = [np.zeros(len(ids), np.int8) for ids in texts.ids]
    return texts.with_cuts([zeros if cut is None else cut for cut, zeros in zip(cuts, free, strict=True)])


def _source_cuts(
    texts: Numbered, given: Sequence[GivenCuts] | None, source: TextCuts
) -> dict[int, NDArray[np.int8]]:
    """The cuts that a source finds, by the number of the text.

    A list of offsets replaces whatever it would find, and nothing is cut in an empty text.
    """
    entries = [None] * len(texts) if given is None else given
    free = [
        i
        for i, entry in enumerate(entries)
        if len(texts.places[i]) and (entry is None or isinstance(entry, Mapping))
    ]
    offsets = source.several_offsets([texts[i] for i in free])
    return {i: source.marks(ends, texts.places[i]) for i, ends in zip(free, offsets, strict=True)}


def read_sentences(text: ParallelText, errors: Errors, max_input: int | None = None) -> Sentences:
    """Read a small text whole; a source over `max_input` characters becomes empty: lines stay aligned."""
    sources, references, gold, too_long = [], [], [], []
    for number, (src, trg, bounds) in enumerate(text.pairs(errors), 1):
        if src is None or (max_input is not None and len(src) > max_input):
            too_long.append(number)
            src, bounds = "", None if bounds is None else []
        sources.append(src)
        references.append(trg or "")
        gold.append(bounds)
    given = [bounds for bounds in gold if bounds is not None]
    return Sentences(sources, references, given if given and len(given) == len(gold) else None, too_long)


class KnownCuts(TextCuts):
    """The cuts of sentences that were read with their file of offsets; no other sentence has any."""

    def __init__(self, offsets: Mapping[str, list[int]]) -> None:
        self._offsets = offsets

    @property
    def fingerprint(self) -> list[Any]:
        return ["known", len(self._offsets)]

    @classmethod
    def read(cls, src: str | Path, cuts: str | Path, errors: Errors = "strict") -> KnownCuts:
        """Read the lines of a text, a .tsv's sources, and the offsets of each from another file."""
        reader, count = FileReader(Path(cuts), errors), 0
        offsets: dict[str, list[int]] = {}
        for count, text in enumerate(read_sources(src, errors), 1):  # noqa: B007  counted
            reader.advance(text)
            if text is not None:
                offsets.setdefault(text, reader.offsets)
        reader.finish(src, count)
        return cls(offsets)

    def offsets(self, text: str) -> list[int]:
        if text not in self._offsets:
            raise InputError(f"{text[:40]!r}: {NO_CUTS}")
        return self._offsets[text]
