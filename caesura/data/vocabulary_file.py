"""Vocabularies from files: everything in them is checked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from caesura.data.files import parse_json, read_at_most
from caesura.data.subwords import BpeVocabulary, UnigramVocabulary, WordpieceVocabulary
from caesura.data.utf8 import BYTES
from caesura.data.vocabulary import (
    FORMAT,
    KINDS,
    MAX_BYTES,
    MAX_TOKENS,
    NEVER,
    SPECIALS,
    UNIGRAM,
    ByteVocabulary,
    CharVocabulary,
    SpelledVocabulary,
    Vocabulary,
    WordVocabulary,
)
from caesura.errors import InputError
from caesura.visible import quoted, shortened


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocabulary that `save` wrote; anything else is refused with the reason."""
    try:
        raw = read_at_most(Path(path), MAX_BYTES)
        content = parse_json(raw, 6 * MAX_TOKENS)  # a token, its score, a merge of two, and its count of 0.1
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: not a vocabulary: {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a vocabulary: {error}") from error
    try:
        return _checked(content)
    except InputError as error:
        raise InputError(f"{path}: not a vocabulary: {error}") from None


def _checked(content: Any) -> Vocabulary:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f'"format" should be {FORMAT}')
    kind, tokens = content.get("kind"), content.get("tokens")
    if kind not in (*KINDS, UNIGRAM):
        raise InputError(f'"kind" should be one of {", ".join((*KINDS, UNIGRAM))}')
    if not isinstance(tokens, list) or not all(isinstance(t, str) for t in tokens):
        raise InputError('"tokens" should be a list of strings')
    if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
        raise InputError(f'"tokens" should begin with {" ".join(SPECIALS)}')
    symbols = tokens[len(SPECIALS) :]
    if not 0 < len(tokens) - len(SPECIALS) <= MAX_TOKENS - len(SPECIALS):
        most = f"{MAX_TOKENS:,} with the specials"
        raise InputError(f'"tokens" should have 1 or more besides the specials, at most {most}')
    if twice := next((t for t, n in Counter(symbols).items() if n > 1), None):
        raise InputError(f"token {quoted(twice)} occurs more than once")
    if kind == "byte" or (kind == "char" and symbols[0] == BYTES[0]):
        return _checked_bytes(kind, symbols)
    check_symbols(kind, symbols)
    if kind == "bpe":
        return BpeVocabulary(symbols, _checked_merges(content.get("merges"), set(symbols)))
    if kind == "wordpiece":
        return WordpieceVocabulary(symbols)
    if kind == UNIGRAM:
        return UnigramVocabulary(symbols, _checked_scores(content.get("scores"), len(tokens)))
    return CharVocabulary(symbols) if kind == "char" else WordVocabulary(symbols)


def _checked_bytes(kind: str, symbols: list[str]) -> ByteVocabulary:
    """A vocabulary of the 256 bytes, with characters after them for level char."""
    characters = symbols[len(BYTES) :]
    if tuple(symbols[: len(BYTES)]) != BYTES or (characters and kind == "byte"):
        raise InputError(f'"tokens" should have the bytes {BYTES[0]} to {BYTES[-1]} after the specials')
    check_symbols(kind, characters)
    return SpelledVocabulary(characters) if kind == "char" else ByteVocabulary()


def _checked_merges(merges: Any, symbols: set[str]) -> list[tuple[str, str]]:
    if not isinstance(merges, list):
        raise InputError('"merges" should be a list of pairs')
    for pair in merges:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(s, str) for s in pair)):
            raise InputError(f'"merges" should be a list of pairs of tokens, not {shortened(str(pair))}')
        if not {pair[0], pair[1], pair[0] + pair[1]} <= symbols:
            both = f"{quoted(pair[0])} and {quoted(pair[1])}"
            raise InputError(f"the merge of {both} has a part or a result that is not a token")
    return [(a, b) for a, b in merges]


def _checked_scores(scores: Any, count: int) -> list[float]:
    if not isinstance(scores, list) or len(scores) != count:
        raise InputError('"scores" should have one number per token')
    wrong = [score for score in scores if type(score) is not float or not -1e6 <= score <= 0]
    if wrong:
        raise InputError(f'"scores" should be from -1e6 to 0.0, not {shortened(str(wrong[0]))}')
    return scores


def check_symbols(kind: str, symbols: Iterable[str]) -> None:
    """Refuse symbols that a vocabulary of this kind cannot cut from any line of text."""
    wrong = next((symbol for symbol in symbols if not _well_formed(kind, symbol)), None)
    if wrong is not None:
        raise InputError(f"{quoted(wrong)} is not a {kind} token")


def _well_formed(kind: str, token: str) -> bool:
    if NEVER.search(token):
        return False
    if kind == "char":
        return len(token) == 1
    if kind == "bpe":
        token = token.removesuffix(" ")
    elif kind in ("wordpiece", UNIGRAM):
        if token == " " and kind == UNIGRAM:
            return True
        token = token.removeprefix(" ")
    return token.split() == [token]
