"""A unigram vocabulary made from text (Kudo 2018), with counts of the best cuts in place of expected ones.

The trainer of the tokenizers library adds up fractions in the order of a hash map, other in each run, and
finds no piece that stands only at the ends of words. Here numbers are whole until their logarithm is taken,
and ties are broken by spelling: the same text gives the same vocabulary every time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from caesura.data.subwords import UnigramVocabulary
from caesura.data.vocabulary import SPECIALS
from caesura.data.vocabulary_file import check_symbols
from caesura.errors import InputError

_LONGEST = 16  # characters of a piece, the mark of a word's beginning included
_LOOKED_AT = 200_000  # characters of the most frequent words, in which pieces are looked for
_SEEDS = 4  # times as many pieces to begin with as there will be
_KEPT = 0.75  # of the pieces in a round
_MAX_WORD = 1000  # characters of a word that are cut together
_TOGETHER = 10_000  # words

Words = list[tuple[str, int]]  # each with the mark of its beginning, a space, and how often it occurs


def train_unigrams(lines: Iterable[str], size: int) -> UnigramVocabulary:
    """Make a vocabulary of at most `size` symbols, specials included: pieces that spell the text cheaply."""
    counter: Counter[str] = Counter()
    for line in lines:
        for word in line.split():
            counter.update(" " + word[at : at + _MAX_WORD] for at in range(0, len(word), _MAX_WORD))
    words = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    alphabet = sorted({character for word, _ in words for character in word} | {" "})
    check_symbols("char", alphabet)
    if not words:
        raise InputError("no text to make a vocabulary from; is the file empty?")
    room = size - len(SPECIALS)
    if len(alphabet) > room:
        raise InputError(
            f"a unigram vocabulary of {size} is too small: the characters of this text alone take "
            f"{len(alphabet) + len(SPECIALS)}; take more"
        )
    counts = _seeds(words, alphabet, _SEEDS * room)
    while True:
        for _ in range(2):
            scores = _scores(counts)
            counts = _used(words, scores)
        if len(counts) <= room:
            break
        counts = _pruned(counts, _scores(counts), max(room, int(_KEPT * len(counts))))
    pieces = sorted(counts, key=lambda piece: (len(piece) > 1, -counts[piece], piece))
    scores = _scores(counts)
    return UnigramVocabulary(pieces, [0.0] * len(SPECIALS) + [scores[piece] for piece in pieces])


def _seeds(words: Words, alphabet: list[str], most: int) -> dict[str, int]:
    """All characters, and the parts of words that cover most of the text, with their coverage."""
    parts: Counter[str] = Counter()
    remaining = _LOOKED_AT
    for word, count in words:
        if remaining <= 0:
            break
        remaining -= len(word)
        for start in range(len(word)):
            for end in range(start + 2, min(start + _LONGEST, len(word)) + 1):
                parts[word[start:end]] += count
    covered = {piece: count * len(piece) for piece, count in parts.items() if count > 1}
    best = sorted(covered, key=lambda piece: (-covered[piece], piece))[: max(0, most - len(alphabet))]
    single: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            single[character] += count
    return {piece: single[piece] for piece in alphabet} | {piece: covered[piece] for piece in best}


def _scores(counts: dict[str, int]) -> dict[str, float]:
    """Log-probabilities; a piece that was not used counts half a use."""
    total = sum(max(1, 2 * count) for count in counts.values())
    return {piece: math.log(max(1, 2 * count) / total) for piece, count in counts.items()}


def _used(words: Words, scores: dict[str, float]) -> dict[str, int]:
    """How often each piece is used where words are cut in the best way."""
    cutter = UnigramVocabulary([*scores], [0.0] * len(SPECIALS) + [*scores.values()])
    used = [0] * len(cutter)
    for at in range(0, len(words), _TOGETHER):
        part = words[at : at + _TOGETHER]
        for (_, count), ids in zip(part, cutter.cut_words([word for word, _ in part]), strict=True):
            for i in ids:
                used[i] += count
    return dict(zip(scores, used[len(SPECIALS) :], strict=True))


def _pruned(counts: dict[str, int], scores: dict[str, float], most: int) -> dict[str, int]:
    """Without the pieces whose text costs little more in other pieces; characters stay."""

    def lost(piece: str) -> float:
        return counts[piece] * (scores[piece] - _without(piece, scores)) if counts[piece] else 0.0

    single = [piece for piece in counts if len(piece) == 1]
    ranked = sorted((piece for piece in counts if len(piece) > 1), key=lambda piece: (-lost(piece), piece))
    return {piece: counts[piece] for piece in [*single, *ranked[: most - len(single)]]}


def _without(piece: str, scores: dict[str, float]) -> float:
    """The score of the best way to spell a piece with others."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            if end - start < len(piece) and (score := scores.get(piece[start:end])) is not None:
                best[end] = max(best[end], best[start] + score)
    return best[-1]
