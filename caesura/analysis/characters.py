"""Kinds of characters and how they are shown: spaces, punctuation, words, combining marks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from caesura.evaluation.pieces import SPACE, join_pieces
from caesura.output import Segmentation

END = "∎"  # how </s> is shown
WITHIN = "·"  # stands for a segment that has only later bytes of a character

_WORD = re.compile(r"\S+")


def visible(text: str) -> str:
    """The text with everything visible: ␣ for spaces, escapes for controls, ◌ under a lone mark."""
    if not text:
        return ""
    if is_mark(text[0]):
        text = "◌" + text
    # Nothing is read back, so bars and backslashes need no escapes.
    seen = (SPACE if unicodedata.category(c) == "Zs" else c for c in text)
    return "".join(c if c in "|\\␣" else join_pieces([c]) for c in seen)


def is_mark(character: str) -> bool:
    """Whether it is written on another character: accents, vowel signs."""
    return unicodedata.category(character)[0] == "M"


def is_word(text: str) -> bool:
    """Whether there is nothing but letters and their marks in it, and a letter first."""
    return text[:1].isalpha() and all(c.isalpha() or is_mark(c) for c in text)


def is_punctuation(text: str) -> bool:
    """Whether there is nothing but punctuation and symbols in it."""
    return bool(text) and all(unicodedata.category(c)[0] in "PS" for c in text)


@dataclass(frozen=True)
class Unit:
    """One step of the encoder: a segment of the source and its place."""

    text: str  # as the piece is, with the spaces that no symbol covers taken off; "" for </s> alone
    start: int  # offset of its first character
    space: bool  # has white space in it
    punctuation: bool  # is punctuation and nothing else, spaces aside
    place: int | None  # in its word, from 1: 1 if it holds a word's first character, else its own first's

    @property
    def first(self) -> bool:
        """Whether it holds the first character of a word; punctuation is not a word."""
        return self.place == 1 and not self.punctuation


def units(text: str, cut: Segmentation) -> list[Unit]:
    """The segments of a text, with the place of each in its word."""
    places: list[int | None] = [None] * len(text)
    for match in _WORD.finditer(text):
        places[match.start() : match.end()] = range(1, len(match.group()) + 1)
    result, at = [], 0
    for piece, covered in zip(cut.pieces, cut.covered, strict=False):
        shown = piece if covered == len(piece) else piece.strip()
        start = at + (piece.find(shown) if shown else 0)
        inside = [place for place in places[at : at + len(piece)] if place is not None]
        bare = shown.strip()
        result.append(
            Unit(
                text=shown,
                start=start,
                space=any(c.isspace() for c in shown),
                punctuation=is_punctuation("".join(bare.split())),
                place=(1 if 1 in inside else inside[0]) if inside else None,
            )
        )
        at += len(piece)
    return result


def labels(pieces: Sequence[str], steps: int) -> list[str]:
    """How the encoder's steps are shown: the pieces, and the end, alone or with the last piece."""
    shown = [visible(piece) or WITHIN for piece in pieces]
    if steps == len(shown) + 1:
        return [*shown, END]
    return [*shown[:-1], shown[-1] + END] if shown else [END] * steps
