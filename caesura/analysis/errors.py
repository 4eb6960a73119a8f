"""Errors of translations: unknown, invented, copied, repeated words; scores by length and rarity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from caesura.data.words import WordCounts, bare, words_of
from caesura.evaluation.scores import Scores, score

RARE = 10  # a word is rare below so many occurrences in the training text
_LISTED = 30
UNKNOWN = "<unk>"

Scoring = Callable[[list[str], list[str]], Scores]  # translations, references


@dataclass(frozen=True)
class Count:
    """Some of many: words or sentences."""

    count: int
    total: int

    @property
    def share(self) -> float:
        """0 to 1; 0 of nothing."""
        return self.count / self.total if self.total else 0.0


@dataclass(frozen=True)
class Bucket:
    """Sentences of a kind and their scores."""

    name: str
    sentences: int
    bleu: float
    chrf: float
    exact: float


@dataclass(frozen=True)
class Invention:
    """An output word that training never showed."""

    word: str
    line: int  # number of the sentence
    count: int  # in all translations


@dataclass(frozen=True)
class Errors:
    """Errors in the translations of a text, word by word; None where the needed counts are missing."""

    sentences: int
    unknown_source: Count | None  # source words that are not in the training text
    unknown_output: Count  # <unk> written
    invented: Count | None  # output words that are neither in the training text nor in the source
    inventions: list[Invention]
    copied: Count | None  # output words of letters that stand in the source and that training never showed
    copied_right: Count | None  # of these, in the reference too
    repeating: Count  # sentences with a phrase twice over
    repeating_references: Count | None
    repetitions: list[tuple[int, str]]  # number of the sentence, the phrase
    by_length: list[Bucket] | None  # of source length
    by_rarity: list[Bucket] | None  # of rare source words
    unspaced: list[str]  # sides of about one word per line, of whose words nothing is said


@dataclass(frozen=True)
class Translated:
    """A sentence and its translation."""

    number: int
    source: str
    translation: str
    reference: str | None


def error_statistics(
    sentences: Sequence[Translated],
    src_words: WordCounts | None,
    trg_words: WordCounts | None,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Errors:
    """Count the errors in the paper's examples; buckets are scored if every sentence has a reference."""
    source = [words_of(s.source) for s in sentences]
    output = [words_of(s.translation) for s in sentences]
    references = [s.reference for s in sentences if s.reference is not None]
    scored = references if len(references) == len(sentences) and sentences else None
    scoring = partial(score, tokenize=tokenize, lowercase=lowercase)
    invented: Counter[str] = Counter()
    first: dict[str, int] = {}
    copied = right = 0
    for sentence, read, written in zip(sentences, source, output, strict=True):
        truth = set(words_of(sentence.reference or ""))
        for word in written:
            if trg_words is None or trg_words.of(word) or word == bare(UNKNOWN):
                continue  # a word of the training text is not a copy, even if the source has it too
            if word in read:
                if any(c.isalpha() for c in word):
                    copied += 1
                    right += word in truth
            elif trg_words.complete:
                invented[word] += 1
                first.setdefault(word, sentence.number)
    words = sum(map(len, output))
    unspaced = [side for side, lines in (("source", source), ("translation", output)) if _unspaced(lines)]
    src_counts = src_words if "source" not in unspaced else None
    trg_counts = trg_words if "translation" not in unspaced else None
    repeated = [(s.number, phrase) for s in sentences if (phrase := repeated_phrase(s.translation))]
    return Errors(
        sentences=len(sentences),
        unknown_source=_unknown(source, src_counts),
        unknown_output=Count(sum(s.translation.count(UNKNOWN) for s in sentences), words),
        invented=Count(invented.total(), words) if trg_counts and trg_counts.complete else None,
        inventions=[Invention(word, first[word], n) for word, n in invented.most_common(_LISTED)]
        if trg_counts
        else [],
        copied=Count(copied, words) if trg_counts else None,
        copied_right=Count(right, copied) if scored and trg_counts else None,
        repeating=Count(len(repeated), len(sentences)),
        repeating_references=Count(sum(bool(repeated_phrase(r)) for r in scored), len(scored))
        if scored
        else None,
        repetitions=repeated[:_LISTED],
        by_length=_by_length(sentences, scoring) if scored else None,
        by_rarity=_by_rarity(sentences, src_counts, scoring) if scored and src_counts else None,
        unspaced=unspaced,
    )


def repeated_phrase(text: str) -> str | None:
    """The longest phrase that stands twice: two words or more right after each other, or three anywhere.

    One word right after itself counts where it has letters: `the the`.
    """
    words = text.split()
    for size in range(len(words) // 2, 0, -1):
        seen: dict[tuple[str, ...], int] = {}
        for start in range(len(words) - size + 1):
            phrase = tuple(words[start : start + size])
            before = seen.setdefault(phrase, start)
            twice = (
                before + size <= start
                if size > 2
                else start >= size and tuple(words[start - size : start]) == phrase
            )
            if twice and any(c.isalpha() for word in phrase for c in word):
                return " ".join(phrase)
    return None


def _unspaced(lines: Sequence[Sequence[str]]) -> bool:
    """Whether there is about one word per line: a language without spaces, or a list of words."""
    filled = [len(words) for words in lines if words]
    return bool(filled) and sum(filled) < 1.5 * len(filled)


def _unknown(source: Sequence[Sequence[str]], words: WordCounts | None) -> Count | None:
    if words is None or not words.complete:
        return None
    flat = [word for read in source for word in read]
    return Count(sum(not words.of(word) for word in flat), len(flat))


def _by_length(sentences: Sequence[Translated], scoring: Scoring) -> list[Bucket]:
    """Five groups of about the same number of sentences, by characters of the source."""
    lengths = sorted(len(s.source) for s in sentences)
    edges = sorted({lengths[len(lengths) * i // 5] for i in range(1, 5)} - {lengths[0]})

    def group(sentence: Translated) -> int:
        return sum(len(sentence.source) >= edge for edge in edges)

    limits = [lengths[0], *edges, lengths[-1] + 1]
    names = [f"{a}–{b - 1}" if a < b - 1 else f"{a}" for a, b in pairwise(limits)]
    return _buckets(sentences, group, names, scoring)


def _by_rarity(sentences: Sequence[Translated], words: WordCounts, scoring: Scoring) -> list[Bucket]:
    def group(sentence: Translated) -> int:
        return min(sum(words.of(word) < RARE for word in words_of(sentence.source)), 3)

    return _buckets(sentences, group, ["0", "1", "2", "3 or more"], scoring)


def _buckets(
    sentences: Sequence[Translated],
    group: Callable[[Translated], int],
    names: Sequence[str],
    scoring: Scoring,
) -> list[Bucket]:
    groups: list[list[Translated]] = [[] for _ in names]
    for sentence in sentences:
        groups[group(sentence)].append(sentence)
    buckets = []
    for name, members in zip(names, groups, strict=True):
        if members:
            s = scoring([m.translation for m in members], [m.reference or "" for m in members])
            buckets.append(Bucket(name, len(members), s.bleu, s.chrf, s.exact))
    return buckets
