"""Vocabularies made from text: counted characters and words, learnt BPE, wordpieces and unigrams."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO

from caesura.data.subwords import BpeVocabulary, WordpieceVocabulary
from caesura.data.unigram_training import train_unigrams
from caesura.data.utf8 import BYTES
from caesura.data.vocabulary import (
    KINDS,
    SPECIALS,
    UNIGRAM,
    ByteVocabulary,
    CharVocabulary,
    SpelledVocabulary,
    Vocabulary,
    WordVocabulary,
)
from caesura.data.vocabulary_file import check_symbols
from caesura.errors import InputError

COUNTED = ("char", "byte", "word")  # their vocabularies follow from counts
_MAX_TRAINED = 1000  # characters of a word from which pieces are learnt together


def train_vocabulary(
    kind: str,
    lines: Iterable[str] | Mapping[str, int],
    size: int | None = None,
    byte_fallback: bool = False,
) -> Vocabulary:
    """Make a vocabulary of at most `size` symbols, specials included, from lines of text.

    For a level in `COUNTED`, counts of characters (or words) may take the place of the lines. With
    `byte_fallback`, characters without a symbol are spelled in bytes.
    """
    if kind not in (*KINDS, UNIGRAM):
        raise InputError(f"vocabulary kind {kind!r} is not known; one of {', '.join((*KINDS, UNIGRAM))}")
    if size is not None and size <= len(SPECIALS):
        raise InputError(f"a vocabulary of {size} has room for nothing but {' '.join(SPECIALS)}; take more")
    if byte_fallback and kind != "char":
        raise InputError(f"byte_fallback is for a char vocabulary, not for {kind}")
    if kind in COUNTED:
        return _counted(
            kind, lines if isinstance(lines, Mapping) else count(kind, lines), size, byte_fallback
        )
    if size is None:
        raise InputError(f"a {kind} vocabulary needs a size, for example 15000")
    return train_unigrams(lines, size) if kind == UNIGRAM else _train_pieces(kind, lines, size)


def count(kind: str, lines: Iterable[str]) -> Counter[str]:
    """How often each character occurs, or each word."""
    counter: Counter[str] = Counter()
    for line in lines:
        counter.update(line.split() if kind == "word" else line)
    return counter


def _counted(kind: str, counter: Mapping[str, int], size: int | None, byte_fallback: bool) -> Vocabulary:
    if kind == "byte":
        vocabulary = ByteVocabulary()  # the same whatever the text
        if size is not None and size < len(vocabulary):
            raise InputError(f"a byte vocabulary always has {len(vocabulary)} symbols, not {size}")
        if not counter:
            raise _no_text()
        return vocabulary
    ranked = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    taken = len(SPECIALS) + (len(BYTES) if byte_fallback else 0)
    room = len(ranked) if size is None else size - taken
    if room < 0:
        raise InputError(f"a vocabulary of {size} has no room for the {taken} specials and bytes; take more")
    # Training would never meet the bytes if they did not spell the characters that occur once.
    kept = [symbol for symbol, n in ranked[:room] if n > 1 or not byte_fallback]
    check_symbols(kind, [symbol for symbol, _ in ranked] if byte_fallback else kept)
    if not ranked:
        raise _no_text()
    if byte_fallback:
        return SpelledVocabulary(kept)
    return CharVocabulary(kept) if kind == "char" else WordVocabulary(kept)


def _no_text() -> InputError:
    return InputError("no text to make a vocabulary from; is the file empty?")


def _train_pieces(kind: str, lines: Iterable[str], size: int) -> Vocabulary:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.trainers import BpeTrainer

    room = size - len(SPECIALS)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as words:
        alphabet = _spool(kind, lines, words)
        if len(alphabet) > room:
            raise InputError(
                f"a {kind} vocabulary of {size} is too small: the characters of this text alone take "
                f"{len(alphabet) + len(SPECIALS)}; take more, or a char vocabulary"
            )
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = WhitespaceSplit()
        # Left alone, the trainer numbers marked characters in the order of a hash map, other in each run, and
        # breaks ties by these numbers. Named as specials they have fixed ones.
        trainer = BpeTrainer(
            vocab_size=room,
            min_frequency=2,
            show_progress=False,
            special_tokens=alphabet,
            limit_alphabet=0,
        )
        # Set afterwards: the constructor does not take None for the one that is not wanted.
        if kind == "bpe":
            trainer.end_of_word_suffix = " "
        else:
            trainer.continuing_subword_prefix = " "
        tokenizer.train_from_iterator(words, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if kind == "bpe":
        return BpeVocabulary(pieces, [(a, b) for a, b in model["merges"]])
    # The trainer marks what continues a word; stored is the mark of what begins one.
    return WordpieceVocabulary([p[1:] if p.startswith(" ") else " " + p for p in pieces])


def _spool(kind: str, lines: Iterable[str], words: IO[str]) -> list[str]:
    """Copy the text, so that it can be read twice in constant memory; return the symbols of one character."""
    plain: set[str] = set()
    marked: set[str] = set()
    for line in lines:
        parts = line.split()
        plain.update(*parts)
        if kind == "bpe":
            marked.update(word[-1] for word in parts)
        else:
            marked.update(*(word[1:] for word in parts))
        if len(line) > _MAX_TRAINED:
            parts = [chunk for word in parts for chunk in _chunks(word)]
        words.write(" ".join(parts) + "\n")
    check_symbols("char", plain)
    if not plain:
        raise _no_text()
    words.seek(0)
    return [*sorted(plain), *(c + " " if kind == "bpe" else " " + c for c in sorted(marked))]


def _chunks(word: str) -> list[str]:
    """A word in parts that the trainer can take: its time grows with the square of their length."""
    return [word[i : i + _MAX_TRAINED] for i in range(0, len(word), _MAX_TRAINED)]
