"""Symbols and their numbers: one interface, and vocabularies of characters, bytes and words."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, ClassVar

from caesura.data.files import write_whole
from caesura.data.utf8 import BYTES, from_bytes, sizes, to_bytes
from caesura.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
KINDS = ("char", "byte", "word", "bpe", "wordpiece")  # levels that a model may read
UNIGRAM = "unigram"  # a level that may only cut its input

FORMAT = 1
MAX_TOKENS = 1_000_000
MAX_BYTES = 1 << 26  # of a file

Spans = list[tuple[int, int]]

FIRST_BYTE = len(SPECIALS)  # the id of byte 0 in vocabularies that have bytes; all of them come first
WORD = re.compile(r"\S+")  # agrees with str.split() on what white space is
NEVER = re.compile("[\n\0\ud800-\udfff]")  # no line of text holds these, so that no output may either


def _until_the_end(ids: Iterable[int]) -> list[int]:
    """The ids before the first </s>."""
    kept = list(map(int, ids))
    return kept[: kept.index(EOS)] if EOS in kept else kept


def _is_byte(symbol: int) -> bool:
    """Whether an id of a vocabulary with bytes stands for one."""
    return FIRST_BYTE <= symbol < FIRST_BYTE + len(BYTES)


def _spread(start: int, width: int, count: int) -> Spans:
    """The spans of `count` symbols that stand for the same characters: the first covers them."""
    end = start + width
    return [(start, end), *[(end, end)] * (count - 1)]


class _Ids(dict[str, int]):
    def __missing__(self, symbol: str) -> int:
        return UNK


class Vocabulary(ABC):
    """A list of tokens and the rule that cuts text into them; ids 0 to 3 are the specials."""

    kind: ClassVar[str]

    def __init__(self, symbols: Sequence[str]) -> None:
        self.tokens: list[str] = [*SPECIALS, *symbols]
        # A word of the text may be spelled like a special, so the specials are not in here.
        self._ids = _Ids((s, i) for i, s in enumerate(symbols, len(SPECIALS)))
        self.merges: list[tuple[str, str]] = []  # of BPE, in the order of their use
        self.scores: list[float] = []  # the log-probabilities of unigrams, specials included

    def __len__(self) -> int:
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"<{self.kind} vocabulary of {len(self)}>"

    def id_of(self, symbol: str) -> int:
        """The id of the symbol with this spelling, or of <unk>."""
        return self._ids[symbol]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without <s> and </s>."""
        return self.encode_spans(text)[0]

    @abstractmethod
    def encode_spans(self, text: str) -> tuple[list[int], Spans]:
        """The ids of a text, and the characters [start, end) of it that each symbol covers.

        Of the bytes of a character, the first covers it, and the others cover nothing behind it.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first </s>; <pad> and <s> are skipped."""
        kept = _until_the_end(ids)
        if PAD in kept or BOS in kept:
            kept = [i for i in kept if i not in (PAD, BOS)]
        return self._join(kept)

    def decode_spans(self, ids: Iterable[int]) -> tuple[str, Spans]:
        """The text of ids up to the first </s>, and the characters [start, end) of it that each covers."""
        kept = _until_the_end(ids)
        text, spans, at = self.decode(kept), [], 0
        for i in kept:
            token = self.decode([i])
            at += not text.startswith(token, at)  # the space between words, which no symbol covers
            spans.append((at, at + len(token)))
            at += len(token)
        return text, spans

    @abstractmethod
    def _join(self, ids: list[int]) -> str: ...

    def display(self, ids: Iterable[int]) -> list[str]:
        """One readable string per symbol: `jung@@ tiere` for BPE, `jung ##tiere` for wordpieces."""
        return [SPECIALS[i] if i < len(SPECIALS) else self._shown(self.tokens[i]) for i in map(int, ids)]

    def _shown(self, token: str) -> str:
        return token

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that decides which ids a text gets."""
        scores = [self.scores] if self.scores else []
        content = json.dumps([FORMAT, self.kind, self.tokens, self.merges, *scores])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the vocabulary as JSON, one token per line."""
        parts = [f'"format": {FORMAT}', f'"kind": {json.dumps(self.kind)}', f'"tokens": {_rows(self.tokens)}']
        if self.kind == "bpe":
            parts.append(f'"merges": {_rows(self.merges)}')
        if self.scores:
            parts.append(f'"scores": {json.dumps(self.scores)}')
        content = ("{" + ",\n".join(parts) + "}\n").encode()
        if len(self) > MAX_TOKENS or len(content) > MAX_BYTES:
            most = f"{MAX_TOKENS:,} tokens and {MAX_BYTES >> 20} MiB"
            raise InputError(f"{path}: {len(self):,} tokens; at most {most}; set a smaller voc_limit")
        write_whole(path, content)


class CharVocabulary(Vocabulary):
    """One symbol per code point, white space included."""

    kind = "char"

    def encode(self, text: str) -> list[int]:
        return list(map(self._ids.__getitem__, text))

    def encode_spans(self, text: str) -> tuple[list[int], Spans]:
        return self.encode(text), list(zip(range(len(text)), range(1, len(text) + 1), strict=True))

    def decode_spans(self, ids: Iterable[int]) -> tuple[str, Spans]:
        tokens = ["" if i in (PAD, BOS) else self.tokens[i] for i in _until_the_end(ids)]
        ends = list(accumulate(map(len, tokens)))
        return "".join(tokens), list(zip([0, *ends], ends, strict=False))

    def _join(self, ids: list[int]) -> str:
        return "".join(map(self.tokens.__getitem__, ids))


class ByteVocabulary(Vocabulary):
    """One symbol per byte of UTF-8, the same 256 for every text.

    A subclass may have `characters` as well, which are symbols of their own.
    """

    kind = "byte"

    def __init__(self, characters: Sequence[str] = ()) -> None:
        super().__init__([*BYTES, *characters])

    def encode(self, text: str) -> list[int]:
        return [byte + FIRST_BYTE for byte in to_bytes(text)]

    def encode_spans(self, text: str) -> tuple[list[int], Spans]:
        ids = self.encode(text)
        if len(ids) == len(text):
            return ids, list(zip(range(len(text)), range(1, len(text) + 1), strict=True))
        return ids, [span for at, c in enumerate(text) for span in _spread(at, 1, len(self.encode(c)))]

    def decode_spans(self, ids: Iterable[int]) -> tuple[str, Spans]:
        kept = _until_the_end(ids)
        text, spans = "", list[tuple[int, int]]()
        for part, symbols in self._parts([i for i in kept if i not in (PAD, BOS)]):
            counts = sizes(bytes(i - FIRST_BYTE for i in symbols)) if _is_byte(symbols[0]) else [1]
            width = 1 if _is_byte(symbols[0]) else len(part)
            for count in counts:
                spans += _spread(spans[-1][1] if spans else 0, width, count)
            text += part
        covered, at = iter(spans), 0
        spans = []
        for i in kept:
            spans.append((at, at) if i in (PAD, BOS) else next(covered))
            at = spans[-1][1]
        return text, spans

    def _join(self, ids: list[int]) -> str:
        return "".join(part for part, _ in self._parts(ids))

    def _parts(self, ids: list[int]) -> Iterator[tuple[str, list[int]]]:
        """The text of each run of bytes, and of each other symbol, with its ids."""
        for byte, run in groupby(ids, _is_byte):
            symbols = [*run]
            if byte:
                yield from_bytes(bytes(i - FIRST_BYTE for i in symbols)), symbols
            else:
                yield from ((self.tokens[i], [i]) for i in symbols)

    def _shown(self, token: str) -> str:
        return chr(int(token[1:-1], 16)) if token in BYTES[:0x80] else token


class SpelledVocabulary(ByteVocabulary):
    """One symbol per code point; a character that is not listed is spelled in bytes of UTF-8."""

    kind = "char"

    def encode(self, text: str) -> list[int]:
        ids = list(map(self._ids.__getitem__, text))
        if UNK not in ids:
            return ids
        pairs = zip(ids, text, strict=True)
        return [j for i, c in pairs for j in ([i] if i != UNK else super(SpelledVocabulary, self).encode(c))]


class WordVocabulary(Vocabulary):
    """One symbol per word: the text between white space."""

    kind = "word"

    def encode(self, text: str) -> list[int]:
        return list(map(self._ids.__getitem__, text.split()))

    def encode_spans(self, text: str) -> tuple[list[int], Spans]:
        return self.encode(text), [m.span() for m in WORD.finditer(text)]

    def _join(self, ids: list[int]) -> str:
        return " ".join(self.tokens[i] for i in ids)


def _rows(items: Sequence[Any]) -> str:
    # Invisible characters are escaped: line separators, controls.
    rows = (json.dumps(item, ensure_ascii=not "".join(item).isprintable()) for item in items)
    return "[\n" + ",\n".join(rows) + "]"
