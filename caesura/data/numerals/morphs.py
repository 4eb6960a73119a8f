"""The parts of every spell-out: morphs whose concatenation is the string."""

from collections.abc import Sequence
from itertools import accumulate

Morphs = tuple[str, ...]

LIMIT = 999_999_999


def after(separator: str, morphs: Morphs) -> Morphs:
    """The same morphs behind a separator, which opens the first of them."""
    return (separator + morphs[0], *morphs[1:]) if morphs else ()


def boundaries(morphs: Sequence[str]) -> tuple[int, ...]:
    """The character offsets, strictly inside the string, at which a new morph begins."""
    return tuple(accumulate(len(morph) for morph in morphs[:-1]))


def words(text: str) -> tuple[str, ...]:
    """The words of a text, for tables that read as text."""
    return tuple(text.split())
