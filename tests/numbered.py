"""Text as numbers in tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from caesura.config import Config, load_config
from caesura.data.corpus import Corpus, ParallelText, identity
from caesura.data.numbering import Numbering
from caesura.data.vocabulary import Vocabulary
from caesura.model_folder import CONFIG, load_vocabularies
from caesura.training.prepare import training_corpus


def build(
    text: ParallelText,
    src: Vocabulary,
    trg: Vocabulary,
    folder: Path,
    name: str,
    say: Callable[[str], None] | None = None,
    whole: bool = False,
    progress: Callable[[int, int], None] | None = None,
    cores: int = 1,
    **settings: Any,
) -> Corpus:
    """The numbers of a text in a cache of their own, made if they are missing."""
    given: dict[str, Any] = {"max_chars": None, "errors": "strict", "cuts": None} | settings
    longest = given.pop("max_src", None), given.pop("max_trg", None)
    numbering = Numbering(text, (src, trg), longest, **given)
    corpus = Corpus.made(folder / name, identity(numbering), whole, say)
    return Corpus.make(folder / name, numbering, progress, say, cores) if corpus is None else corpus


def corpus_of(folder: Path) -> Corpus:
    """The training text of a run."""
    config: Config = load_config(folder / CONFIG, bases=False)
    return training_corpus(config, load_vocabularies(folder, config), folder)
