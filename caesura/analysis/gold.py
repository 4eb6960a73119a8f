"""Gold segmentations: sentences beside the text, or word lists that are looked up in it.

Four formats, told apart by their contents; all may be compressed:
- boundaries, one line per sentence: character offsets separated by spaces (`4 7 14`);
- words, one line per sentence: `これ に 不快 感 を 示す` (Universal Dependencies);
- sentences in a TSV, the second column in morphemes: `come @@s this story` (SIGMORPHON 2022);
- a lexicon in a TSV: a word, then its parts: `warn hinweise` (German compounds), `en @@thrall @@ment @@s`.

Canonical morphemes that do not spell the word (`subside @@y @@ise @@ed`) say nothing of places: such words
are left out of the lexicon, and in sentences their places are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from caesura.data.files import Errors, read_lines
from caesura.errors import InputError
from caesura.evaluation.boundaries import bounds_of

_WORD = re.compile(r"\S+")
_OFFSETS = re.compile(r"[\d ]*")
WORDS_ALONE = 10_000  # of a lexicon that a model cuts by themselves


@dataclass(frozen=True)
class GoldLine:
    """Where a sentence should be cut, and for which places the gold file decides this."""

    text: str
    bounds: tuple[int, ...]
    judged: frozenset[int] | None = None  # None: every place inside the text


@dataclass(frozen=True)
class Gold:
    """A gold segmentation: of lines, or of words wherever they occur."""

    name: str  # of its file
    lines: list[GoldLine] | None = None
    offsets: list[tuple[int, ...]] | None = None  # of a file of boundaries, whose text is the source
    lexicon: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # word in small letters: boundaries

    def in_text(self, number: int, text: str) -> GoldLine | None:
        """The gold of a line of the source: its boundaries, or those inside the words of the lexicon."""
        if self.offsets is not None:
            return self._checked(number, text)
        if self.lines is not None:
            line = self.lines[number - 1] if number <= len(self.lines) else None
            return _moved(line, text) if line is not None else None
        bounds: list[int] = []
        judged: set[int] = set()
        for match in _WORD.finditer(text):
            parts = self.lexicon.get(match.group().lower())
            if parts is not None:
                bounds.extend(match.start() + b for b in parts)
                judged.update(range(match.start() + 1, match.end()))
        return GoldLine(text, tuple(bounds), frozenset(judged)) if judged else None

    def own_text(self) -> list[GoldLine]:
        """Its own sentences, or the words of the lexicon by themselves."""
        if self.lines is not None:
            return self.lines
        words = list(self.lexicon.items())[:WORDS_ALONE]
        return [GoldLine(word, bounds) for word, bounds in words]

    def _checked(self, number: int, text: str) -> GoldLine | None:
        assert self.offsets is not None
        if number > len(self.offsets):
            raise InputError(f"{self.name}: {len(self.offsets)} lines, but the source has more")
        bounds = self.offsets[number - 1]
        if text and any(not 0 < b < len(text) for b in bounds):
            raise InputError(
                f"{self.name}:{number}: a boundary is not inside its source of {len(text)} characters"
            )
        return GoldLine(text, bounds if text else ())


def read_gold(path: str | Path, errors: Errors = "strict") -> Gold:
    """Read a gold segmentation in any of the formats."""
    name = Path(path).name
    rows = [line or "" for line in read_lines(path, errors)]  # one over the limit says nothing
    filled = [row for row in rows if row.strip()]
    if not filled:
        raise InputError(f"{path}: no gold segmentation; the file is empty")
    if all(_OFFSETS.fullmatch(row) for row in filled):
        return Gold(name, offsets=[tuple(map(int, row.split())) for row in rows])
    tabs = [row for row in filled if "\t" in row]
    if not tabs:
        return Gold(name, lines=[_words(row) for row in rows])
    if len(tabs) < len(filled):
        number = next(i for i, row in enumerate(rows, 1) if row.strip() and "\t" not in row)
        raise InputError(f"{path}:{number}: no TAB, though other lines have one; should be word, TAB, parts")
    # A lexicon has some entries of several words, a file of sentences some of one.
    if 2 * sum(" " in row.split("\t")[0].strip() for row in filled) > len(filled):
        return Gold(name, lines=[_morphemes(*(row + "\t").split("\t")[:2]) for row in rows])
    return _lexicon(name, filled)


def _lexicon(name: str, rows: Iterable[str]) -> Gold:
    lexicon: dict[str, tuple[int, ...]] = {}
    for row in rows:
        word, parts = row.split("\t")[:2]
        bounds = _spelled(word, [part.removeprefix("@@") for part in parts.split()])
        if bounds is not None:
            lexicon.setdefault(word.lower(), bounds)
    if not lexicon:
        raise InputError(f"{name}: no word is spelled by its parts; should be word, TAB, parts with spaces")
    return Gold(name, lexicon=lexicon)


def _words(row: str) -> GoldLine:
    """Words of a language without spaces: the text is their concatenation."""
    words = row.split()
    return GoldLine("".join(words), bounds_of(words))


def _morphemes(text: str, morphemes: str) -> GoldLine:
    """A sentence and its morphemes, word by word; a word that they do not spell is not judged."""
    groups: list[list[str]] = []
    for morpheme in morphemes.split():
        if morpheme.startswith("@@") and groups:
            groups[-1].append(morpheme[2:])
        else:
            groups.append([morpheme])
    words = list(_WORD.finditer(text))
    if len(words) != len(groups):
        return GoldLine(text, (), frozenset())
    bounds: list[int] = []
    judged: set[int] = set()
    for match, group in zip(words, groups, strict=True):
        inner = _spelled(match.group(), group)
        if inner is not None:
            bounds.extend(match.start() + b for b in inner)
            judged.update(range(match.start() + 1, match.end()))
    return GoldLine(text, tuple(bounds), frozenset(judged))


def _spelled(word: str, parts: list[str]) -> tuple[int, ...] | None:
    """The boundaries inside a word, where its parts spell it."""
    parts = [part for part in parts if part]
    if "".join(parts).lower() != word.lower() or len("".join(parts)) != len(word):
        return None
    return bounds_of(parts)


def _moved(line: GoldLine, text: str) -> GoldLine | None:
    """The boundaries of a line in a source that differs by spaces alone; None where it is another text."""
    if line.text == text:
        return line
    if "".join(line.text.split()) != "".join(text.split()):
        return None
    # A boundary stands before the n-th character that is not a space; a space belongs to the word after it.
    places = dict(zip(_positions(line.text), _positions(text), strict=True))
    bounds = {before_space(text, places[b]) for b in line.bounds if b in places}
    judged = None
    if line.judged is not None:
        judged = frozenset(before_space(text, places[b]) for b in line.judged if b in places)
    return GoldLine(text, tuple(sorted(b for b in bounds if b > 0)), judged)


def _positions(text: str) -> Iterator[int]:
    return (i for i, c in enumerate(text) if not c.isspace())


def before_space(text: str, offset: int) -> int:
    """The offset, or where the white space right before it begins."""
    while offset > 0 and text[offset - 1].isspace():
        offset -= 1
    return offset
