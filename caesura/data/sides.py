"""Whether source and target look exchanged: by the words that texts share, and by their scripts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from caesura.data.words import WordCounts, words_of

Sides = tuple[Sequence[str], Sequence[str]]  # the lines of a text's source and target

SAMPLE = 2000  # lines that are looked at; of the words of training text, the most frequent
MARGIN = 0.3  # by which exchanged sides have to share more; from 0 to 2, both sides together
FEW, MANY = 0.2, 0.5  # shares of letters that are of a language's script
# Languages with one usual script, by the first words of Unicode's names for its letters.
SCRIPTS = {
    language: scripts.split()
    for scripts, languages in {
        "LATIN": "af bs ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it lt lv mt nb nl nn no pl pt "
        "ro sk sl sq sv sw tr vi",
        "CYRILLIC": "be bg mk ru uk",
        "GREEK": "el",
        "ARABIC": "ar fa ps ur",
        "HEBREW": "he yi",
        "DEVANAGARI": "hi mr ne",
        "BENGALI": "as bn",
        "GUJARATI": "gu",
        "KANNADA": "kn",
        "MALAYALAM": "ml",
        "TAMIL": "ta",
        "TELUGU": "te",
        "THAI": "th",
        "LAO": "lo",
        "KHMER": "km",
        "MYANMAR": "my",
        "GEORGIAN": "ka",
        "ARMENIAN": "hy",
        "ETHIOPIC": "am ti",
        "HANGUL": "ko",
        "CJK": "zh",
        "HIRAGANA KATAKANA CJK": "ja",
    }.items()
    for language in languages.split()
}


def doubts(train: tuple[WordCounts, WordCounts], dev: Sides, languages: tuple[str, str]) -> Iterator[str]:
    """Warnings about sides that look exchanged, or that are in another script than that of their language.

    They are guesses.
    """
    lines = tuple([*islice(side, SAMPLE)] for side in dev)
    if exchanged(train, (lines[0], lines[1])):
        yield (
            "source and target of data.train look exchanged, compared with data.dev: the words of each dev "
            "side are in the other side of the training text; exchange the files of one of them"
        )
        return
    texts: dict[str, list[Mapping[str, int]]] = {
        "data.train": [side.counts for side in train],
        "data.dev": [Counter(side) for side in lines],
    }
    for side, name in enumerate(("src", "trg")):
        for key, text in texts.items():
            if (main := foreign(languages[side], text[side])) is not None:
                other = foreign(languages[side], text[1 - side], MANY) is None and any(text[1 - side])
                question = "are source and target exchanged?" if other else "is the language right?"
                what = f"the {('source', 'target')[side]} of {key} is mostly in {main} letters"
                yield f"data.{name}.lang is {languages[side]}, but {what}; {question}"
                break


def exchanged(train: tuple[WordCounts, WordCounts], dev: Sides) -> bool:
    """Whether each side of the dev set is more like the other side of the training text than like its own.

    Words tell, and characters where words do not: some languages have no spaces.
    """
    letters = [Counter("".join(side.counts)) for side in train]
    measures: list[tuple[Callable[[str], Iterable[str]], list[Callable[[str], int]]]] = [
        (words_of, [side.of for side in train]),
        (lambda line: filter(str.isalpha, line), [counter.__getitem__ for counter in letters]),
    ]
    for units, counts in measures:
        # [i][j]: how much of side i of the dev set is in side j of the training text
        shares = [[_share(side, units, count) for count in counts] for side in dev]
        gains = shares[0][1] - shares[0][0], shares[1][0] - shares[1][1]
        if abs(sum(gains)) > MARGIN:  # these units tell
            return min(gains) >= 0 and sum(gains) > 0
    return False


def _share(lines: Sequence[str], units: Callable[[str], Iterable[str]], count: Callable[[str], int]) -> float:
    """The share of a text's units that also occur in another text."""
    counter = Counter(unit for line in lines for unit in units(line))
    return sum(n for unit, n in counter.items() if count(unit)) / max(1, counter.total())


def foreign(language: str, text: Mapping[str, int], least: float = FEW) -> str | None:
    """The main script of a text in which less than `least` of all letters are of its language's script.

    None if enough letters are, if there are no letters, or if the language is not in the list.
    """
    usual = SCRIPTS.get(re.split("[-_]", language.lower())[0])
    letters: Counter[str] = Counter()
    for string, times in islice(text.items(), SAMPLE):
        for letter in string if usual else "":
            letters[letter] += times
    scripts: Counter[str] = Counter()
    for letter, times in letters.items():
        if letter.isalpha():
            scripts[unicodedata.name(letter, "other").partition(" ")[0]] += times
    if usual is None or not scripts or sum(scripts[name] for name in usual) >= least * scripts.total():
        return None
    main = scripts.most_common(1)[0][0].capitalize()
    return {"Cjk": "Chinese", "Fullwidth": "Latin"}.get(main, main)
