"""A text that is small enough to be held in memory, for validation and evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field

from caesura.data.corpus import ParallelText
from caesura.data.files import Errors


@dataclass(frozen=True)
class Sentences:
    """A text that is held in memory, for validation and evaluation."""

    sources: list[str]
    references: list[str]
    gold: list[list[int]] | None  # boundaries, where every line has them
    too_long: list[int] = field(default_factory=list)  # numbers of the lines that were made empty


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
