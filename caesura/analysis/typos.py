"""Typos made on purpose, seeded by the line, and their effect on translations."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from caesura.evaluation.scores import score
from caesura.inference import Translator

Kind = Literal["drop", "swap", "keyboard", "case"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RATES = (0.0, 0.05, 0.1, 0.2)

_WORD = re.compile(r"\S+")
_ROWS = {"de": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"), "": ("qwertyuiop", "asdfghjkl", "zxcvbnm")}


@cache
def neighbours(lang: str) -> dict[str, str]:
    """By small letter, the letters on the keys beside it: in its row, and in the rows above and below."""
    rows = _ROWS.get(lang, _ROWS[""])
    at = {letter: (r, i) for r, row in enumerate(rows) for i, letter in enumerate(row)}
    # Each row of keys stands a little to the right of the one above it.
    steps = ((0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0))
    beside = {place: letter for letter, place in at.items()}
    return {
        letter: "".join(beside[r + up, i + right] for up, right in steps if (r + up, i + right) in beside)
        for letter, (r, i) in at.items()
    }


@dataclass(frozen=True)
class Robustness:
    """Scores of translations of text with typos; one list per kind, one value per rate."""

    sentences: int
    against: Literal["references", "translations of the text without typos"]
    rates: list[float]  # probability of a typo in a word that can have one
    realised: dict[str, list[float]]  # share of all words that have one
    bleu: dict[str, list[float]]
    chrf: dict[str, list[float]]


def add_typos(text: str, kind: Kind, rate: float, seed: int = 1, lang: str = "") -> str:
    """The text with one typo in each word of two or more letters with probability `rate`; spaces stay.

    drop leaves a letter out, swap exchanges two neighbours that differ, case makes a small letter a capital
    or the other way round. keyboard puts the letter of a key beside the right one (QWERTZ for `lang` de,
    else QWERTY), or another letter of the text for one that has no key there.
    What is drawn depends on text, kind and seed: the same typos for every model, and those of a lower rate
    are among those of a higher.
    """
    rng = random.Random(f"{seed} {kind} {text}")
    letters = "".join(sorted({c for c in text if c.isalpha()}))

    def change(match: re.Match[str]) -> str:
        drawn, spoiled = rng.random(), _spoil(match.group(), kind, rng, letters, lang)
        return spoiled if drawn < rate else match.group()

    return _WORD.sub(change, text)


def _spoil(word: str, kind: Kind, rng: random.Random, letters: str, lang: str) -> str:
    places = [i for i, c in enumerate(word) if c.isalpha()]
    if len(places) < 2:
        return word
    if kind == "swap":
        pairs = [i for i in places if i + 1 < len(word) and word[i + 1].isalpha() and word[i] != word[i + 1]]
        if not pairs:
            return word
        i = rng.choice(pairs)
        return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    i = rng.choice(places)
    if kind == "drop":
        return word[:i] + word[i + 1 :]
    if kind == "case":
        return word[:i] + word[i].swapcase() + word[i + 1 :]
    beside = neighbours(lang).get(word[i].lower(), "")
    others = beside.upper() if word[i].isupper() else beside
    others = others or "".join(c for c in letters if c != word[i])
    return word[:i] + rng.choice(others) + word[i + 1 :] if others else word


def _changed(texts: Sequence[str], spoiled: Sequence[str]) -> float:
    """The share of words that differ."""
    pairs = [
        (a, b)
        for old, new in zip(texts, spoiled, strict=True)
        for a, b in zip(old.split(), new.split(), strict=True)
    ]
    return sum(a != b for a, b in pairs) / len(pairs) if pairs else 0.0


def robustness(
    model: Translator,
    texts: Sequence[str],
    references: Sequence[str] | None,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
    kinds: Sequence[Kind] = KINDS[:3],
) -> Robustness:
    """Translate greedily with typos of each kind at each rate, and score the translations.

    Without references the model's translations of the text as it is take their place: measured is then how
    much typos change them. The same typos are made for every model.
    """
    testing, lang = model.config.testing, model.config.data.src.lang
    spoiled = {
        (kind, rate): [add_typos(text, kind, rate, seed, lang) for text in texts]
        for kind in kinds
        for rate in RATES
    }
    different = list(dict.fromkeys(text for variant in spoiled.values() for text in variant))
    outputs = model.process(different, model.searcher(1), progress)
    translated = {text: output.best for text, output in zip(different, outputs, strict=True)}
    truth = list(references) if references is not None else [translated[text] for text in texts]
    bleu: dict[str, list[float]] = {kind: [] for kind in kinds}
    chrf: dict[str, list[float]] = {kind: [] for kind in kinds}
    for (kind, _), variant in spoiled.items():
        scores = score([translated[t] for t in variant], truth, testing.bleu_tokenize, testing.lowercase)
        bleu[kind].append(scores.bleu)
        chrf[kind].append(scores.chrf)
    return Robustness(
        sentences=len(texts),
        against="references" if references is not None else "translations of the text without typos",
        rates=list(RATES),
        realised={kind: [_changed(texts, spoiled[kind, rate]) for rate in RATES] for kind in kinds},
        bleu=bleu,
        chrf=chrf,
    )
