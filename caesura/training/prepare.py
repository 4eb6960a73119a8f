"""From a config's text files to vocabularies and numbered sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from caesura.config import AlignmentCuts, Config, EntropyCuts, FileCuts, Files, SymbolCuts, Training
from caesura.data.alignment import AlignedCuts
from caesura.data.cache import Cache
from caesura.data.corpus import Corpus, ParallelText
from caesura.data.cuts import CutsSource, OffsetFile, text_cuts
from caesura.data.entropy import EntropyModelCuts, NgramCuts
from caesura.data.entropy_gru import GruCuts
from caesura.data.files import digest, packed_instead, stored
from caesura.data.numbering import Counting, Numbering
from caesura.data.sentences import Numbered, Sentences, read_sentences
from caesura.data.sides import doubts
from caesura.data.unpacking import PACKED
from caesura.data.vocabulary import Vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.data.words import WORDS, WordCounts, save_words
from caesura.errors import InputError, no_file
from caesura.kernels.cores import free_cores
from caesura.model_folder import Vocabularies, load_vocabularies, save_vocabularies

FEW_PAIRS = 100  # fewer get a remark
PASSES = 20  # over the training text between two validations; more get a remark too
CACHE = "cache"  # a run's folder for ids, if they cannot lie beside the text
Progress = Callable[[str, int, int], None]  # the task, lines so far, about how many there are (0: unknown)
LONGEST = 5000  # symbols of a training sentence: a longer one could take all memory alone


@dataclass(frozen=True)
class Prepared:
    """The vocabularies and texts that training reads."""

    src_vocabulary: Vocabulary
    trg_vocabulary: Vocabulary
    corpus: Corpus
    dev: Sentences
    digests: list[str]  # of all text and all vocabularies, so that a resumed run can tell if they changed
    learnt_cuts: Vocabulary | EntropyModelCuts | None = None  # needed by `data.cuts` to cut any source
    notices: Sequence[str] = ()  # remarks on the text, to be printed before training


def prepare(
    config: Config,
    folder: Path,
    resuming: bool,
    progress: Progress,
    say: Callable[[str], None] = lambda message: None,
    device: str = "cpu",
    check_cache: bool = False,
) -> Prepared:
    """Make (or, resuming, load) the vocabularies, number the training text, and read the dev set.

    If `data.cuts` asks for a GRU, it is trained on the `device`. The counts of training words go into the
    folder, for the analysis of unknown and invented words.
    """
    data = config.data
    text, dev_text = parallel_text(data.train), parallel_text(data.dev)
    with Cache.of(text.src, folder / CACHE).remembering([*text.files(), *dev_text.files()]):
        return _prepare(config, folder, resuming, progress, say, device, check_cache)


def _prepare(
    config: Config,
    folder: Path,
    resuming: bool,
    progress: Progress,
    say: Callable[[str], None],
    device: str,
    check_cache: bool,
) -> Prepared:
    data = config.data
    text = parallel_text(data.train)
    dev = read_sentences(parallel_text(data.dev), data.errors, config.testing.max_input)
    if not dev.sources:
        raise InputError(f"{parallel_text(data.dev).src}: the dev set is empty; a validation needs sentences")
    notices: list[str] = []
    if resuming:
        vocabularies = load_vocabularies(folder, config)
        _refuse_other_text(vocabularies, text, folder)
    else:
        vocabularies, words = _train_vocabularies(config, text, folder, progress, say, device)
        save_words(folder / WORDS, *words)
        languages = data.src.lang, data.trg.lang
        notices += (f"warning: {text}" for text in doubts(words, (dev.sources, dev.references), languages))
        save_vocabularies(folder, vocabularies)
    src_vocabulary, trg_vocabulary, learnt_cuts = vocabularies
    corpus = training_corpus(config, vocabularies, folder, progress, say, check_cache)
    if len(corpus) == 0:
        raise InputError(f"{text.src}: nothing to train on ({corpus.report})")
    notices += small_text(len(corpus), config.training)
    fingerprints = [str(learnt.fingerprint) for learnt in vocabularies if learnt is not None]
    sources = Numbered(dev.sources, src_vocabulary)  # which every validation translates
    if not config.imitates and (cuts := cuts_of(config, "dev", learnt_cuts)) is not None:
        sources = sources.cut_by(cuts, parallel_text(data.dev).src, dev.too_long, data.errors)
    digests = [*text_digests(config), *fingerprints]
    return Prepared(
        src_vocabulary, trg_vocabulary, corpus, replace(dev, sources=sources), digests, learnt_cuts, notices
    )


def training_corpus(
    config: Config,
    vocabularies: Vocabularies,
    folder: Path,
    progress: Progress = lambda what, done, total: None,
    say: Callable[[str], None] = lambda message: None,
    check_cache: bool = False,
) -> Corpus:
    """The training text of a run in this folder as ids, with its cuts; made if the cache lacks them.

    With `check_cache`, files of the cache are compared with their checksums.
    """
    numbering = training_numbers(config, vocabularies, progress)
    cache = Cache.of(numbering.text.src, folder / CACHE)
    numbered = partial(progress, "numbering the training text")
    corpus = cache.corpus(numbering, numbered, say, free_cores(), check_cache)
    corpus.imitated = config.imitates
    return corpus


def training_numbers(
    config: Config, vocabularies: Vocabularies, progress: Progress = lambda what, done, total: None
) -> Numbering:
    """The settings by which the training text becomes ids."""
    data = config.data
    longest = data.src.max_length or LONGEST, data.trg.max_length or LONGEST
    cuts = cuts_of(config, "train", vocabularies.cuts, partial(progress, "aligning the training text"))
    sides = vocabularies.src, vocabularies.trg
    return Numbering(parallel_text(data.train), sides, longest, data.max_chars, data.errors, cuts)


def _refuse_other_text(vocabularies: Vocabularies, text: ParallelText, folder: Path) -> None:
    """Refuse cuts by entropy whose threshold comes from a text other than the one to train on."""
    cuts = vocabularies.cuts
    if isinstance(cuts, EntropyModelCuts) and cuts.text and cuts.text != digest(text.src):
        raise InputError(
            f"{folder}: the threshold of its cuts by entropy is from another text than {text.src}; "
            "choose another --out"
        )


def small_text(pairs: int, settings: Training) -> Iterator[str]:
    """Remarks on a training text of few pairs, and on training without a bound on it."""
    if pairs < FEW_PAIRS:
        count = "1 training pair is" if pairs == 1 else f"{pairs} training pairs are"
        yield (
            f"{count} enough to try the program, not to learn to translate: the most that a model can do is "
            "to learn them by heart"
        )
    endless = settings.epochs is None and settings.updates is None  # else the end brings a validation
    if endless and settings.validation_freq > PASSES * pairs:
        passes = settings.validation_freq // pairs
        yield (
            f"the first validation, and with it the first model, comes after {passes:,} passes over the "
            f"training text; with training.validation_freq={PASSES * pairs}, after {PASSES}"
        )


def cuts_of(
    config: Config,
    part: Literal["train", "dev", "test"],
    learnt: Vocabulary | EntropyModelCuts | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CutsSource | None:
    """The cuts of `data.cuts` for the source of a part of the text; None if there are none."""
    cuts = config.data.cuts
    if isinstance(cuts, AlignmentCuts) and part == "train":
        blame = partial(config.blame, "data.cuts")
        return AlignedCuts(parallel_text(config.data.train), cuts, blame, progress)
    if not isinstance(cuts, FileCuts):
        return text_cuts(cuts, learnt)
    path = getattr(cuts, part)
    return None if path is None else OffsetFile(path, config.imitates)


def check_files(config: Config, parts: Sequence[str] = ("train", "dev")) -> None:
    """Refuse a config whose training text or dev set is not there, naming the key that says where."""
    for part in parts:
        for key, path in text_files(config, part).items():
            if not stored(path).is_file():
                remedy = "name a file in it" if path.is_dir() else _remedy(config, key)
                raise config.error(key, f"{no_file(path)}; {remedy}")
    for part, path in cuts_files(config, parts).items():
        if not stored(path).is_file():
            key = f"data.cuts.{part}"
            raise config.error(key, f"{no_file(path)}; put the offsets there, or --set {key}=FILE")


def text_files(config: Config, part: str) -> dict[str, Path]:
    """The files of a part of the text, by the keys that name them; none of a test set that is not named."""
    corpus = getattr(config.data, part)
    if isinstance(corpus, Files):
        return {f"data.{part}.src": corpus.src, f"data.{part}.trg": corpus.trg}
    return {} if corpus is None else {f"data.{part}": corpus}


def text_settings(folder: Path, config: Config) -> Iterator[str]:
    """Settings that take the text from a folder: train.de or train.de.xz, and so on."""
    for part in ("train", "dev", "test"):
        for side, language in (("src", config.data.src.lang), ("trg", config.data.trg.lang)):
            file = stored(folder / f"{part}.{language}")
            if not file.is_file():
                raise InputError(f"--data {folder}: no {file.name} there, nor with {' or '.join(PACKED)}")
            yield f"data.{part}.{side}={file.resolve()}"


def packed_files(config: Config) -> Iterator[str]:
    """A sentence about each file that is read packed, though the config names it without the suffix."""
    parts = ("train", "dev", "test")
    files = {key: path for part in parts for key, path in text_files(config, part).items()}
    files |= {f"data.cuts.{part}": path for part, path in cuts_files(config, parts).items()}
    for key, path in files.items():
        if instead := packed_instead(path):
            yield f"{key}: {instead}"


def _remedy(config: Config, key: str) -> str:
    """The remedy for missing text; a recipe that comes with the program is changed in a copy."""
    if config.recipe is None:
        return f"put the text there, or --set {key}=FILE"
    copied = f"`caesura recipes copy {config.recipe} .` and name your text in the copy"
    return f"put the text there, --set {key}=FILE, or run {copied}"


def cuts_files(config: Config, parts: Sequence[str] = ("train", "dev")) -> dict[str, Path]:
    """The files of `data.cuts`, by the part of the text that they cut."""
    cuts = config.data.cuts
    if not isinstance(cuts, FileCuts):
        return {}
    return {part: path for part in parts if (path := getattr(cuts, part)) is not None}


def parallel_text(corpus: Files | Path) -> ParallelText:
    """The text that a config's `train`, `dev` or `test` names."""
    return ParallelText(corpus.src, corpus.trg) if isinstance(corpus, Files) else ParallelText(corpus)


def text_digests(config: Config) -> list[str]:
    """The hashes of the training text and the dev set, and of the files of their cuts."""
    texts = [*parallel_text(config.data.train).digests(), *parallel_text(config.data.dev).digests()]
    return [*texts, *map(digest, cuts_files(config).values())]


def _train_vocabularies(
    config: Config,
    text: ParallelText,
    folder: Path,
    progress: Progress,
    say: Callable[[str], None],
    device: str,
) -> tuple[Vocabularies, tuple[WordCounts, WordCounts]]:
    """All vocabularies, and the words of both sides; some vocabularies read the lines once more."""
    data = config.data
    read = partial(progress, "reading the vocabulary")
    split = data.src.level == "word", data.trg.level == "word"
    counts = Cache.of(text.src, folder / CACHE).counts(
        Counting(text, split, data.errors), read, say, free_cores()
    )
    words = counts.words

    def lines(*columns: int) -> Iterator[str]:
        for number, pair in enumerate(text.pairs(data.errors, with_bounds=False), 1):
            if number % 10_000 == 0:
                read(number, 0)
            for column in columns:
                line = pair[column]
                if isinstance(line, str):
                    yield line

    if data.joint:
        joint = train_vocabulary(data.src.level, lines(0, 1), data.src.voc_limit)
        return Vocabularies(joint, joint), words  # subwords are not cut at the ends of other symbols
    src, trg = (
        train_vocabulary(
            side.level, counts.symbols(i, side.level) or lines(i), side.voc_limit, side.byte_fallback
        )
        for i, side in enumerate((data.src, data.trg))
    )
    if isinstance(data.cuts, EntropyCuts):
        source = lines(0), data.cuts, digest(text.src)
        with config.blame("data.cuts"):
            if data.cuts.model == "ngram":
                return Vocabularies(src, trg, NgramCuts.learn(*source)), words
            cuts = GruCuts.learn(*source, device, lambda n: progress("training the GRU that cuts", n, 0))
            return Vocabularies(src, trg, cuts), words
    if not isinstance(data.cuts, SymbolCuts):
        return Vocabularies(src, trg), words
    try:
        pieces = train_vocabulary(data.cuts.type, lines(0), data.cuts.voc_limit)
    except InputError as problem:
        raise config.error("data.cuts.voc_limit", str(problem)) from problem
    return Vocabularies(src, trg, pieces), words
