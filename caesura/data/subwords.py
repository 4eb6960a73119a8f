"""Vocabularies of pieces of words: BPE, wordpieces and unigrams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from caesura.data.vocabulary import SPECIALS, UNIGRAM, UNK, WORD, Spans, Vocabulary

_MAX_KEPT = 64  # characters of a word whose pieces are remembered: longer ones seldom come twice


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
        for match in WORD.finditer(text):
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
