"""Files line by line through a model: every line is answered, in order, in bounded memory."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from queue import Empty, Queue
from threading import Thread
from typing import TypeVar

from caesura.data.corpus import ParallelText, read_sources
from caesura.data.cuts import combine
from caesura.data.files import Errors, is_tsv, read_lines
from caesura.data.sentences import Numbered, Sentences, read_sentences
from caesura.data.vocabulary import NEVER
from caesura.errors import InputError
from caesura.evaluation.pieces import split_pieces
from caesura.inference import Search, Translator
from caesura.output import Output, Segmentation
from caesura.visible import one_line

Line = TypeVar("Line")
EXAMPLES, LONGEST = 5, 30  # unknown symbols that are named, and characters of each
PAUSE = 0.02  # seconds without another line, after which the lines so far are answered


def process(
    translator: Translator,
    file: str,
    errors: Errors,
    search: Search | None,
    with_cuts: bool = False,
    unbuffered: bool = False,
) -> Iterator[tuple[int, Output, str]]:
    """(line number, output, text) for each line, in order; memory is bounded by a chunk of lines.

    With cuts, lines are as `segment` prints them, and are cut where they say. Unbuffered, each line is
    answered before the next is read.
    """
    longest, name = translator.config.testing.max_input, "standard input" if file == "-" else file
    if with_cuts and is_tsv(file):
        raise InputError(f"{file}: --with-cuts takes lines as `caesura segment` prints them, not a .tsv")
    if not with_cuts:
        translator.read_cuts(file)
    sources = _uncut(read_lines(file, errors), name) if with_cuts else _whole(read_sources(file, errors))
    lines, unknown = enumerate(sources, 1), _Unknown()
    # At a terminal each line is answered; otherwise enough lines to sort by length into full batches.
    alone = unbuffered or (file == "-" and sys.stdin.isatty())
    size = 1 if alone else 8 * translator.config.testing.batch_size
    for chunk in _chunks_as_they_come(lines, size) if not alone and _may_wait(file) else _chunks(lines, size):
        texts, cuts = [], []
        for number, (line, offsets) in chunk:
            if line is None or len(line) > longest:
                _warn(name, number, longest)
                line, offsets = "", []
            texts.append(line)
            cuts.append(offsets)
        numbered = Numbered(texts, translator.src_vocabulary)
        unknown.add(numbered)
        if with_cuts:
            numbered = _cut(numbered, cuts, chunk[0][0], name)
        outputs = translator.process(numbered, search and _counted_from(chunk[0][0], search))
        for (number, _), output, text in zip(chunk, outputs, texts, strict=True):
            yield number, output, text
    unknown.tell()


def _whole(lines: Iterator[str | None]) -> Iterator[tuple[str | None, list[int]]]:
    return ((line, []) for line in lines)


def _uncut(lines: Iterator[str | None], name: str) -> Iterator[tuple[str | None, list[int]]]:
    """Each text that is shown in pieces, and where it is cut."""
    for number, line in enumerate(lines, 1):
        pieces = [] if line is None else split_pieces(line, f"{name}:{number}")
        text = "".join(pieces)
        if wrong := NEVER.search(text):
            raise InputError(f"{name}:{number}: {wrong[0]!r} cannot be in a line of text")
        yield None if line is None else text, [*accumulate(map(len, pieces[:-1]))]


def _cut(texts: Numbered, cuts: list[list[int]], first: int, name: str) -> Numbered:
    """The texts, lines of a file from `first` on, cut at these offsets and nowhere else."""
    marked = []
    for number, (text, places, offsets) in enumerate(zip(texts, texts.places, cuts, strict=True), first):
        marks = combine(offsets, None, text, places, f"{name}:{number}")
        assert marks is not None
        marked.append(marks)
    return texts.with_cuts(marked)


def forced(translator: Translator, src: str, trg: str, errors: Errors) -> Iterator[tuple[str, Segmentation]]:
    """Each line of `trg` and how the decoder cuts it as the translation of its line in `src`."""
    if not translator.decoder.segmenting:
        kind = translator.config.model.decoder.type
        raise InputError(f"--target: this model's decoder ({kind}) does not cut what it writes; act does")
    longest = translator.config.testing.max_input
    pairs, unknown = enumerate(ParallelText(src, trg).pairs(errors, with_bounds=False), 1), _Unknown()
    for chunk in _chunks(pairs, 8 * translator.config.testing.batch_size):
        texts = []
        for number, (source, text, _) in chunk:
            for name, line in ((src, source), (trg, text)):
                if line is None or len(line) > longest:
                    _warn(name, number, longest)
                    source, text = "", ""
            texts.append((source or "", text or ""))
        numbered = Numbered((text for _, text in texts), translator.trg_vocabulary)
        unknown.add(numbered)
        yield from zip(
            numbered, translator.segment_targets([source for source, _ in texts], numbered), strict=True
        )
    unknown.tell()


@dataclass
class _Unknown:
    """Counts the symbols that a model has never seen."""

    symbols: int = 0
    lines: int = 0
    examples: dict[str, None] = field(default_factory=dict)

    def add(self, texts: Numbered) -> None:
        for i in range(len(texts)):
            symbols = texts.unknown(i)
            self.symbols += len(symbols)
            self.lines += bool(symbols)
            for symbol in symbols[:EXAMPLES]:
                if len(self.examples) < EXAMPLES:
                    self.examples[symbol] = None

    def tell(self) -> None:
        """Report the unknown symbols, if there were any, on the error stream."""
        if self.symbols:
            shown = " ".join(repr(s if len(s) <= LONGEST else s[:LONGEST] + "...") for s in self.examples)
            lines = "1 line" if self.lines == 1 else f"{self.lines} lines"
            counted = f"symbols not in the model's vocabulary: {self.symbols}, in {lines}"
            print(f"caesura: {counted}; read as <unk>, such as {shown}", file=sys.stderr)


def _chunks(lines: Iterator[Line], size: int) -> Iterator[list[Line]]:
    """`size` lines at a time; those before a bad one come before its error."""
    problem: InputError | None = None
    while problem is None:
        chunk: list[Line] = []
        try:
            chunk.extend(islice(lines, size))
        except InputError as error:
            problem = error
        if chunk:
            yield chunk
        elif problem is None:
            return
    raise problem


def _may_wait(file: str) -> bool:
    """Whether the writer of the text may be waiting for answers: through a pipe, not in a file."""
    try:
        return not stat.S_ISREG(
            os.fstat(sys.stdin.fileno()).st_mode if file == "-" else os.stat(file).st_mode
        )
    except OSError:  # not a file of the system, or missing: reading it will raise the error
        return False


@dataclass(frozen=True)
class _End:
    problem: Exception | None = None


def _chunks_as_they_come(lines: Iterator[Line], size: int) -> Iterator[list[Line]]:
    """Up to `size` lines, fewer where no more have come; lines before a bad one come before its error."""
    queue: Queue[Line | _End] = Queue(size)

    def read() -> None:
        try:
            for line in lines:
                queue.put(line)
            queue.put(_End())
        except Exception as problem:
            queue.put(_End(problem))

    Thread(target=read, daemon=True).start()
    entry: Line | _End | None = None
    while not isinstance(entry, _End):
        chunk: list[Line] = []
        entry = queue.get()
        try:
            while not isinstance(entry, _End):
                chunk.append(entry)
                if len(chunk) == size:
                    break
                entry = queue.get(timeout=PAUSE)
        except Empty:
            pass
        if chunk:
            yield chunk
    if entry.problem is not None:
        raise entry.problem


def _warn(name: str, number: int, longest: int, outcome: str = "an empty line is printed for it") -> None:
    limit = f"longer than {longest} characters (testing.max_input)"
    print(f"caesura: {one_line(name)}:{number}: {limit}; {outcome}", file=sys.stderr)


def _counted_from(first: int, search: Search) -> Search:
    """The search with line numbers instead of positions in a chunk: a sample depends on its line alone."""
    return lambda decoder, encoded, limits, rows: search(decoder, encoded, limits, [first + r for r in rows])


def sentences(src: str, trg: str | None, errors: Errors, longest: int) -> Sentences:
    """A text to score, a line over `longest` made empty, with a warning."""
    text = read_sentences(ParallelText(src, trg), errors, longest)
    if not text.sources:
        raise InputError(f"{src}: no sentences to score")
    for number in text.too_long:
        _warn(src, number, longest, "it counts as an empty line")
    return text
