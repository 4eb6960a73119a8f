"""A text that is small enough to be held in memory, for validation and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import overload

import numpy as np
from numpy.typing import NDArray

from caesura.data.corpus import ParallelText
from caesura.data.files import Errors
from caesura.data.vocabulary import UNK, Spans, Vocabulary


@dataclass(frozen=True)
class Sentences:
    """A text that is held in memory, for validation and evaluation."""

    sources: Sequence[str]
    references: list[str]
    gold: list[list[int]] | None  # boundaries, where every line has them
    too_long: list[int] = field(default_factory=list)  # numbers of the lines that were made empty


class Numbered(Sequence[str]):
    """Texts with their symbols in a vocabulary, found once for all times that they are translated."""

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

    def unknown(self, i: int) -> list[str]:
        """What of a text the vocabulary does not have."""
        return [self._texts[i][a:b] for a, b in self.places[i][self.ids[i] == UNK].tolist()]


def numbered(texts: Sequence[str], vocabulary: Vocabulary) -> Numbered:
    """The texts in this vocabulary, which they may be already."""
    if isinstance(texts, Numbered) and texts.vocabulary is vocabulary:
        return texts
    return Numbered(texts, vocabulary)


def places_of(spans: Spans) -> NDArray[np.int32]:
    """[n, 2]: the characters [start, end) that each symbol covers."""
    return np.fromiter(chain.from_iterable(spans), np.int32, 2 * len(spans)).reshape(-1, 2)


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
    known = [bounds for bounds in gold if bounds is not None]
    return Sentences(sources, references, known if known and len(known) == len(gold) else None, too_long)
