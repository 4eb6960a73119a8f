"""Symbols and their numbers: characters, bytes, words, BPE, wordpieces and unigrams behind one interface."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, ClassVar

from caesura.data.files import parse_json, read_at_most, write_whole
from caesura.data.utf8 import BYTES, from_bytes, sizes, to_bytes
from caesura.errors import InputError
from caesura.visible import quoted, shortened

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
KINDS = ("char", "byte", "word", "bpe", "wordpiece")  # levels that a model may read
UNIGRAM = "unigram"  # a level that may only cut its input

FORMAT = 1
MAX_TOKENS = 1_000_000
MAX_BYTES = 1 << 26  # of a file

Spans = list[tuple[int, int]]

FIRST_BYTE = len(SPECIALS)  # the id of byte 0 in vocabularies that have bytes; all of them come first
_WORD = re.compile(r"\S+")  # agrees with str.split() on what white space is
NEVER = re.compile("[\n\0\ud800-\udfff]")  # no line of text holds these, so that no output may either
_MAX_KEPT = 64  # characters of a word whose pieces are remembered: longer ones seldom come twice


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
        return self.encode(text), [m.span() for m in _WORD.finditer(text)]

    def _join(self, ids: list[int]) -> str:
        return " ".join(self.tokens[i] for i in ids)


class PieceVocabulary(Vocabulary):
    """Words cut into pieces, each word by itself and the same way everywhere."""

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        self._cut_once = lru_cache(maxsize=1 << 16)(self._cut)

    def __getstate__(self) -> dict[str, Any]:  # for another process
        return {name: value for name, value in self.__dict__.items() if name != "_cut_once"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cut_once = lru_cache(maxsize=1 << 16)(self._cut)

    @abstractmethod
    def _cut(self, word: str) -> tuple[list[int], list[int]]:
        """The ids of a word, and where in the word each piece ends."""

    def _cut_kept(self, word: str) -> tuple[list[int], list[int]]:
        return self._cut_once(word) if len(word) <= _MAX_KEPT else self._cut(word)

    def encode(self, text: str) -> list[int]:
        return [i for word in text.split() for i in self._cut_kept(word)[0]]

    def encode_spans(self, text: str) -> tuple[list[int], Spans]:
        ids: list[int] = []
        spans: Spans = []
        for match in _WORD.finditer(text):
            pieces, ends = self._cut_kept(match.group())
            ids.extend(pieces)
            first = match.start()
            spans.extend((first + a, first + b) for a, b in pairwise([0, *ends]))
        return ids, spans

    def _join(self, ids: list[int]) -> str:  # a token that begins its word begins with a space
        return "".join(" <unk>" if i == UNK else self.tokens[i] for i in ids).lstrip(" ")


class BpeVocabulary(PieceVocabulary):
    """Byte-pair encoding of words (on characters); a token that ends its word ends in a space.

    Words have no white space inside, so no text can be mistaken for the mark, as `</w>` or `@@` could be.
    A character not seen at the end of a word is taken without the mark there: only new characters are <unk>.
    """

    kind = "bpe"

    def __init__(self, symbols: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        super().__init__(symbols)
        self.merges = list(merges)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer
        from tokenizers.models import BPE

        unknown = " " + SPECIALS[UNK]  # starts with white space: no text is spelled like it
        vocab = {**self._ids, unknown: UNK}
        return Tokenizer(BPE(vocab=vocab, merges=self.merges, unk_token=unknown, end_of_word_suffix=" "))

    def _cut(self, word: str) -> tuple[list[int], list[int]]:
        encoding = self._tokenizer.encode(word)
        ids, spans = encoding.ids, encoding.offsets
        if UNK in ids:
            ids = [self._ids[word[a:b]] if i == UNK else i for i, (a, b) in zip(ids, spans, strict=True)]
        return ids, [end for _, end in spans]

    def _join(self, ids: list[int]) -> str:
        return "".join("<unk> " if i == UNK else self.tokens[i] for i in ids).rstrip(" ")

    def _shown(self, token: str) -> str:
        return token[:-1] if token.endswith(" ") else token + "@@"


class WordpieceVocabulary(PieceVocabulary):
    """Longest match first in each word; a token that begins its word begins with a space.

    Unlike the usual implementations, a new character makes one <unk> and not the whole word, and words may be
    of any length: a Chinese or Japanese sentence without spaces is one "word". A character not seen inside a
    word is taken with the mark there.
    """

    kind = "wordpiece"

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        # Length of the longest token, mark excluded, by its first character and by whether it begins a word.
        self._longest: dict[tuple[bool, str], int] = {}
        for token in symbols:
            text = token.lstrip(" ")
            key = (token != text, text[0])
            self._longest[key] = max(len(text), self._longest.get(key, 0))

    def _cut(self, word: str) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        ends: list[int] = []
        start = 0
        while start < len(word):
            mark = "" if start else " "
            longest = self._longest.get((not start, word[start]), 0)
            for end in range(min(start + longest, len(word)), start, -1):
                symbol = self._ids.get(mark + word[start:end])
                if symbol is not None:
                    break
            else:
                end = start + 1
                symbol = self._ids[" " + word[start]]
            ids.append(symbol)
            ends.append(end)
            start = end
        return ids, ends

    def _shown(self, token: str) -> str:
        return token[1:] if token.startswith(" ") else "##" + token


class UnigramVocabulary(PieceVocabulary):
    """The most probable pieces of each word; a token that begins its word begins with a space.

    The mark may be a piece by itself, of no characters. Neighbouring new characters make one <unk>.
    """

    kind = UNIGRAM

    def __init__(self, symbols: Sequence[str], scores: Sequence[float]) -> None:
        super().__init__(symbols)
        self.scores = list(scores)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer
        from tokenizers.models import Unigram

        names = [f"\n{special}" for special in SPECIALS]  # no text is spelled like these
        pieces = zip([*names, *self.tokens[len(SPECIALS) :]], self.scores, strict=True)
        return Tokenizer(Unigram(list(pieces), UNK, False))

    def cut_words(self, words: list[str]) -> list[list[int]]:
        """The ids of words that have the mark already."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(words)]

    def _cut(self, word: str) -> tuple[list[int], list[int]]:
        encoding = self._tokenizer.encode(" " + word)
        return encoding.ids, [end - 1 for _, end in encoding.offsets]

    def _shown(self, token: str) -> str:
        return "▁" + token[1:] if token.startswith(" ") else token


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


def _rows(items: Sequence[Any]) -> str:
    # Invisible characters are escaped: line separators, controls.
    rows = (json.dumps(item, ensure_ascii=not "".join(item).isprintable()) for item in items)
    return "[\n" + ",\n".join(rows) + "]"
