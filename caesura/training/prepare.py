"""From a config's text files to vocabularies and numbered sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from caesura.config import Config, Files
from caesura.data.corpus import Corpus, ParallelText
from caesura.data.files import Errors
from caesura.data.vocabulary import Vocabulary, load_vocabulary, train_vocabulary
from caesura.errors import InputError
from caesura.model import SRC_VOCABULARY, TRG_VOCABULARY


@dataclass(frozen=True)
class Sentences:
    """A text that is held in memory, for validation and evaluation."""

    sources: list[str]
    references: list[str]
    gold: list[list[int]] | None  # boundaries, where every line has them
    too_long: list[int] = field(default_factory=list)  # numbers of the lines that were made empty


@dataclass(frozen=True)
class Prepared:
    """All that training reads."""

    src_vocabulary: Vocabulary
    trg_vocabulary: Vocabulary
    corpus: Corpus
    dev: Sentences
    digests: list[str]  # of the training text and the dev set, so that a resumed run can tell if they changed


def prepare(config: Config, folder: Path, resuming: bool, progress: Callable[[str, int], None]) -> Prepared:
    """Make (or, resuming, load) the vocabularies, number the training text, and read the dev set."""
    data = config.data
    text = parallel_text(data.train)
    dev = read_sentences(parallel_text(data.dev), data.errors, config.testing.max_input)
    if not dev.sources:
        raise InputError(f"{parallel_text(data.dev).src}: the dev set is empty; a validation needs sentences")
    if resuming:
        vocabularies = load_vocabulary(folder / SRC_VOCABULARY), load_vocabulary(folder / TRG_VOCABULARY)
    else:
        pairs = text.pairs(data.errors, with_bounds=False)
        if not any(src and src.strip() and trg and trg.strip() for src, trg, _ in pairs):
            raise InputError(f"{text.src}: nothing to train on; is the file empty?")
        vocabularies = _train_vocabularies(config, text, progress)
        for vocabulary, name in zip(vocabularies, (SRC_VOCABULARY, TRG_VOCABULARY), strict=True):
            vocabulary.save(folder / name)
    corpus = Corpus.build(
        text,
        *vocabularies,
        folder=folder / "cache",
        name="train",
        max_src=data.src.max_length,
        max_trg=data.trg.max_length,
        errors=data.errors,
        progress=lambda lines: progress("numbering the training text", lines),
    )
    if len(corpus) == 0:
        raise InputError(f"{text.src}: nothing to train on ({corpus.report})")
    return Prepared(*vocabularies, corpus, dev, text.digests() + parallel_text(data.dev).digests())


def parallel_text(corpus: Files | Path) -> ParallelText:
    """The text that a config's `train`, `dev` or `test` names."""
    return ParallelText(corpus.src, corpus.trg) if isinstance(corpus, Files) else ParallelText(corpus)


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


def _train_vocabularies(
    config: Config, text: ParallelText, progress: Callable[[str, int], None]
) -> tuple[Vocabulary, Vocabulary]:
    data = config.data

    def lines(*columns: int) -> Iterator[str]:
        for number, pair in enumerate(text.pairs(data.errors, with_bounds=False), 1):
            if number % 10_000 == 0:
                progress("reading the vocabulary", number)
            for column in columns:
                line = pair[column]
                if isinstance(line, str):
                    yield line

    if data.joint:
        joint = train_vocabulary(data.src.level, lines(0, 1), data.src.voc_limit)
        return joint, joint
    src = train_vocabulary(data.src.level, lines(0), data.src.voc_limit)
    return src, train_vocabulary(data.trg.level, lines(1), data.trg.voc_limit)
