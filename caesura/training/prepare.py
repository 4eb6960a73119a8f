"""From a config's text files to vocabularies and numbered sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from caesura.config import Config, Files
from caesura.data.corpus import Corpus, ParallelText
from caesura.data.sentences import Numbered, Sentences, read_sentences
from caesura.data.vocabulary import Vocabulary, load_vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.data.words import WORDS, WordTally, save_words
from caesura.errors import InputError
from caesura.model_folder import SRC_VOCABULARY, TRG_VOCABULARY

LONGEST = 5000  # symbols of a training sentence: one that is longer could take all memory by itself


@dataclass(frozen=True)
class Prepared:
    """All that training reads."""

    src_vocabulary: Vocabulary
    trg_vocabulary: Vocabulary
    corpus: Corpus
    dev: Sentences
    digests: list[str]  # of all text and both vocabularies, so that a resumed run can tell if they changed


def prepare(
    config: Config,
    folder: Path,
    resuming: bool,
    progress: Callable[[str, int], None],
    say: Callable[[str], None] | None = None,
) -> Prepared:
    """Make (or, resuming, load) the vocabularies, number the training text, and read the dev set.

    The words of the training text are counted into the folder, for the analysis of unknown and invented ones.
    """
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
        tallies = WordTally(), WordTally()
        vocabularies = _train_vocabularies(config, text, tallies, progress)
        save_words(folder / WORDS, *(tally.result() for tally in tallies))
        for vocabulary, name in zip(vocabularies, (SRC_VOCABULARY, TRG_VOCABULARY), strict=True):
            vocabulary.save(folder / name)
    corpus = Corpus.build(
        text,
        *vocabularies,
        folder=folder / "cache",
        name="train",
        max_src=data.src.max_length or LONGEST,
        max_trg=data.trg.max_length or LONGEST,
        max_chars=data.max_chars,
        errors=data.errors,
        progress=lambda lines: progress("numbering the training text", lines),
        say=say,
    )
    if len(corpus) == 0:
        raise InputError(f"{text.src}: nothing to train on ({corpus.report})")
    fingerprints = [vocabulary.fingerprint for vocabulary in vocabularies]
    dev = replace(dev, sources=Numbered(dev.sources, vocabularies[0]))  # which every validation translates
    return Prepared(*vocabularies, corpus, dev, [*text_digests(config), *fingerprints])


def check_files(config: Config, parts: Sequence[str] = ("train", "dev")) -> None:
    """Refuse a config whose training text or dev set is not there, naming the key that says where."""
    for part in parts:
        corpus = getattr(config.data, part)
        if corpus is None:  # a test set may be missing
            continue
        files = {"": corpus} if isinstance(corpus, Path) else {".src": corpus.src, ".trg": corpus.trg}
        for side, path in files.items():
            if not path.is_file():
                key = f"data.{part}{side}"
                raise config.error(key, f"no file {path}; put the text there, or --set {key}=FILE")


def parallel_text(corpus: Files | Path) -> ParallelText:
    """The text that a config's `train`, `dev` or `test` names."""
    return ParallelText(corpus.src, corpus.trg) if isinstance(corpus, Files) else ParallelText(corpus)


def text_digests(config: Config) -> list[str]:
    """The hashes of the training text and the dev set."""
    return [*parallel_text(config.data.train).digests(), *parallel_text(config.data.dev).digests()]


def _train_vocabularies(
    config: Config,
    text: ParallelText,
    tallies: tuple[WordTally, WordTally],
    progress: Callable[[str, int], None],
) -> tuple[Vocabulary, Vocabulary]:
    """Both vocabularies; each side is read once, so its words are counted on the way."""
    data = config.data

    def lines(*columns: int) -> Iterator[str]:
        for number, pair in enumerate(text.pairs(data.errors, with_bounds=False), 1):
            if number % 10_000 == 0:
                progress("reading the vocabulary", number)
            for column in columns:
                line = pair[column]
                if isinstance(line, str):
                    tallies[column].add(line)
                    yield line

    if data.joint:
        joint = train_vocabulary(data.src.level, lines(0, 1), data.src.voc_limit)
        return joint, joint
    src = train_vocabulary(data.src.level, lines(0), data.src.voc_limit)
    return src, train_vocabulary(data.trg.level, lines(1), data.trg.voc_limit)
