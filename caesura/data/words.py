"""How often strings occur: counters of bounded size, and the words of the training text in a model folder."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.data.files import parse_json, read_bounded, write_whole
from caesura.errors import InputError

WORDS = "train.words.json"

FORMAT = 1
COUNTED = 1_000_000  # distinct strings held while counting
KEPT = 100_000  # words per side that a model folder keeps
MAX_BYTES = 1 << 28  # of a file: words of both sides at their longest, all escaped, take 244 MB
_LONGEST = 100  # characters: a longer "word" is a sentence without spaces


class BoundedCounter:
    """Counts of at most `limit` distinct strings.

    When there are more, the rarest are dropped until half are left, as in lossy counting: frequent strings
    stay, and every count is too low by at most `missed`, which is 0 until something is dropped.
    """

    def __init__(self, limit: int = COUNTED) -> None:
        self.limit = limit
        self.counts: Counter[str] = Counter()
        self.missed = 0

    def update(self, strings: Iterable[str] | Mapping[str, int]) -> None:
        """Count more strings, or add counts; one call may pass the limit."""
        self.counts.update(strings)
        if len(self.counts) > self.limit:
            self._prune()

    def _prune(self) -> None:
        floor = sorted(self.counts.values(), reverse=True)[self.limit // 2]
        self.missed += floor
        self.counts = Counter({string: n for string, n in self.counts.items() if n > floor})


def words_of(line: str) -> list[str]:
    """The words between white space, without the punctuation around them; punctuation alone is a word."""
    return [bare(word) for word in line.split()]


def bare(word: str) -> str:
    """A word without the punctuation around it; punctuation alone stays."""
    if word.isalnum():  # nearly always
        return word
    first, last = 0, len(word)
    while first < last and unicodedata.category(word[first])[0] in "PS":
        first += 1
    while first < last and unicodedata.category(word[last - 1])[0] in "PS":
        last -= 1
    return word[first:last] or word


@dataclass(frozen=True)
class WordCounts:
    """How often each word of `words_of` occurs on one side of a training text."""

    counts: Mapping[str, int]
    total: int  # words in all, those that were dropped included
    complete: bool  # False: rare words were dropped, so that a word that is not here may have been there

    def of(self, word: str) -> int:
        """How often a word occurred, whether it began a sentence or not."""
        return max(self.counts.get(form, 0) for form in (word, word.lower(), word.capitalize()))


def count_words(text: str) -> tuple[Counter[str], int]:
    """The counts of a text's words, without the longest ones; and the number of all its words."""
    counts: Counter[str] = Counter()
    for word, n in Counter(text.split()).items():
        counts[bare(word)] += n
    total = counts.total()
    return Counter({word: n for word, n in counts.items() if len(word) <= _LONGEST}), total


class WordTally:
    """Counts the words of one side of a text."""

    def __init__(self) -> None:
        self._counter = BoundedCounter(COUNTED)
        self._total = 0

    def add(self, text: str) -> None:
        """Count the words of one or more lines."""
        self.merge(*count_words(text))

    def merge(self, counts: Mapping[str, int], total: int) -> None:
        """Add counts that `count_words` has made."""
        self._total += total
        self._counter.update(counts)

    def result(self, kept: int = KEPT) -> WordCounts:
        """The `kept` most frequent words."""
        ranked = sorted(self._counter.counts.items(), key=lambda item: (-item[1], item[0]))
        whole = self._counter.missed == 0 and len(ranked) <= kept
        whole = whole and self._counter.counts.total() == self._total
        return WordCounts(dict(ranked[:kept]), self._total, whole)


def save_words(path: str | Path, src: WordCounts, trg: WordCounts) -> None:
    """Write the counts of both sides as JSON, one word per line."""
    sides = {"src": src, "trg": trg}
    parts = [f'"format": {FORMAT}']
    for name, side in sides.items():
        rows = (f"{json.dumps(w, ensure_ascii=not w.isprintable())}: {n}" for w, n in side.counts.items())
        listed = "{\n" + ",\n".join(rows) + "}"
        facts = f'"total": {side.total}, "complete": {json.dumps(side.complete)}'
        parts.append(f'"{name}": {{{facts}, "counts": {listed}}}')
    write_whole(path, "{" + ",\n".join(parts) + "}\n")


def load_words(path: str | Path) -> tuple[WordCounts, WordCounts]:
    """Read a file of `save_words`; anything else is refused."""
    try:
        content = parse_json(read_bounded(Path(path), MAX_BYTES), 5 * KEPT)
        if content["format"] != FORMAT:
            raise ValueError(f'"format" should be {FORMAT}')
        return side_of(content["src"]), side_of(content["trg"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not the word counts of a model folder: {error!r}") from error


def side_of(content: Any) -> WordCounts:
    """The counts of one side from a file; ValueError, KeyError or TypeError if it holds anything else."""
    counts, total, complete = content["counts"], content["total"], content["complete"]
    if type(total) is not int or type(complete) is not bool:
        raise ValueError('"total" should be a number and "complete" true or false')
    if not isinstance(counts, dict) or not all(type(n) is int and n > 0 for n in counts.values()):
        raise ValueError('"counts" should have a positive number per word')
    "".join(counts).encode()  # a lone surrogate could not be printed
    return WordCounts(counts, total, complete)
