"""The text that a model was trained on: its words, from the model folder, or the text itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from caesura.config import Files
from caesura.data.files import Errors, checksum, is_tsv, read_lines, stored
from caesura.data.tensors import read_facts
from caesura.data.words import WORDS, WordCounts, WordTally, load_words
from caesura.errors import InputError, no_file
from caesura.inference import Translator
from caesura.model_folder import WEIGHTS
from caesura.training.prepare import parallel_text

LINES = 200_000  # of the training text that are read; a longer one is read so far, and that is said
_CHUNK = 2_000


@dataclass(frozen=True)
class TrainingText:
    """Words of both sides, and the source text itself where it can be read."""

    src: WordCounts | None
    trg: WordCounts | None
    path: Path | None = None  # of the source text
    errors: Errors = "strict"

    def occurrences(self, strings: Collection[str]) -> dict[str, int]:
        """How often strings occur in the source text, wherever it is cut; unknown counts are left out.

        Occurrences do not overlap. Without the text, strings of letters are counted inside the words that
        the model folder keeps, which is exact as long as all words are there.
        """
        if self.path is not None:
            counts = dict.fromkeys(strings, 0)
            lines = self.lines()
            while chunk := list(islice(lines, _CHUNK)):
                joined = "\n".join(chunk)  # no segment has a line break
                for string in counts:
                    counts[string] += joined.count(string)
            return counts
        if self.src is None or not self.src.complete:
            return {}
        counts = {string: 0 for string in strings if string.isalnum()}
        listed = list(self.src.counts.items())
        joined = "\n".join(word for word, _ in listed)
        for string in counts:
            if string in joined:
                counts[string] = sum(word.count(string) * n for word, n in listed if string in word)
        return counts

    def lines(self) -> Iterator[str]:
        """The source text, as much of it as is read; nothing where it is not there."""
        return iter(()) if self.path is None else islice(_column(self.path, self.errors, 0), LINES)

    @property
    def source(self) -> str:
        """The source of the counts, in words."""
        if self.path is not None:
            return f"the first {LINES:,} lines of {self.path.name}, at most"
        if self.src is None:
            return "none, as the model folder keeps no counts; --train F reads the text"
        return "the words kept in the model folder" + (
            "" if self.src.complete else " (the most frequent ones)"
        )


def training_text(model: Translator, folder: Path, given: str | None, errors: Errors) -> TrainingText:
    """The training text that `--train` or the config names, where it is there; words as kept or counted."""
    train = model.config.data.train
    src, trg = (train.src, train.trg) if isinstance(train, Files) else (train, None)
    if given is not None:
        if not stored(given).is_file():
            raise InputError(f"{no_file(given)}; --train should name the source of the training text")
        src, trg = Path(given), None
    path = stored(src) if stored(src).is_file() else None
    read, written = _kept(folder)
    if path is not None and (given is not None or read is None):
        read = _words(read, src, errors, 0)
        written = _words(written, src, errors, 1) if is_tsv(src) else _words(written, trg, errors, 0)
    return TrainingText(read, written, path, errors)


def unseen_lines(
    train: Files | Path, sources: Sequence[str], references: Sequence[str], errors: Errors
) -> list[int] | None:
    """The places of lines whose source and reference are both not lines of the training text.

    None where the training text is not there. All of it is read.
    """
    text = parallel_text(train)
    if not all(stored(path).is_file() for path in text.files()):
        return None
    wanted = {*sources}, {*references}
    seen: tuple[set[str], set[str]] = set(), set()
    for src, trg, _ in text.pairs(errors, with_bounds=False):
        for line, of_interest, found in zip((src, trg), wanted, seen, strict=True):
            if line in of_interest:
                found.add(line)
    lines = enumerate(zip(sources, references, strict=True))
    return [i for i, (src, trg) in lines if src not in seen[0] and trg not in seen[1]]


def _kept(folder: Path) -> tuple[WordCounts, WordCounts] | tuple[None, None]:
    """The words that a model folder keeps; its weights know their checksum, unless they are older."""
    path = folder / WORDS
    if not path.is_file():
        return None, None
    words = load_words(path)
    files = read_facts(folder / WEIGHTS).get("files")
    if isinstance(files, dict) and WORDS in files and files[WORDS] != checksum(path):
        raise InputError(
            f"{path}: damaged or changed: not the file that {WEIGHTS} was saved with; it may be deleted"
        )
    return words


def _words(kept: WordCounts | None, path: Path | None, errors: Errors, column: int) -> WordCounts | None:
    """The kept words if they are complete; else the words of the text, if it can be read."""
    if (kept is not None and kept.complete) or path is None or not stored(path).is_file():
        return kept
    tally = WordTally()
    lines = _column(path, errors, column)
    for line in islice(lines, LINES):
        tally.add(line)
    counted = tally.result()
    return counted if next(lines, None) is None else replace(counted, complete=False)


def _column(path: Path, errors: Errors, column: int) -> Iterator[str]:
    for line in read_lines(path, errors):
        cells = (line or "").split("\t") if is_tsv(path) else [line or ""]
        yield cells[column] if column < len(cells) else ""
