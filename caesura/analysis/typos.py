"""Typos made on purpose, seeded, and their effect on translations."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from caesura.evaluation.scores import score
from caesura.inference import Translator

Kind = Literal["drop", "swap", "replace"]
KINDS: tuple[Kind, ...] = get_args(Kind)
RATES = (0.0, 0.05, 0.1, 0.2)

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Robustness:
    """Scores of translations of text with typos; one list per kind, one value per rate."""

    sentences: int
    against: Literal["references", "translations of the text without typos"]
    rates: list[float]  # probability of a typo in a word that can have one
    realised: dict[str, list[float]]  # share of all words that have one
    bleu: dict[str, list[float]]
    chrf: dict[str, list[float]]


def add_typos(text: str, kind: Kind, rate: float, rng: random.Random, letters: str) -> str:
    """The text with one typo in each word of two or more letters with probability `rate`; spaces stay.

    drop leaves a letter out, swap exchanges two neighbours that differ, replace puts another of `letters`.
    What is drawn does not depend on the rate: the typos of a lower one are among those of a higher.
    """

    def change(match: re.Match[str]) -> str:
        drawn, spoiled = rng.random(), _spoil(match.group(), kind, rng, letters)
        return spoiled if drawn < rate else match.group()

    return _WORD.sub(change, text)


def _spoil(word: str, kind: Kind, rng: random.Random, letters: str) -> str:
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
    others = [c for c in letters if c != word[i]]
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
) -> Robustness:
    """Translate greedily with typos of each kind at each rate, and score the translations.

    Without references the model's translations of the text as it is take their place: measured is then how
    much typos change them. The same typos are made for every model.
    """
    testing = model.config.testing
    letters = "".join(sorted({c for text in texts for c in text if c.isalpha()}))
    spoiled: dict[tuple[Kind, float], list[str]] = {}
    for kind in KINDS:
        for rate in RATES:
            rng = random.Random(f"{seed} {kind}")
            spoiled[kind, rate] = [add_typos(text, kind, rate, rng, letters) for text in texts]
    different = list(dict.fromkeys(text for variant in spoiled.values() for text in variant))
    outputs = model.process(different, model.searcher(1), progress)
    translated = {text: output.best for text, output in zip(different, outputs, strict=True)}
    truth = list(references) if references is not None else [translated[text] for text in texts]
    bleu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    chrf: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for (kind, _), variant in spoiled.items():
        scores = score([translated[t] for t in variant], truth, testing.bleu_tokenize, testing.lowercase)
        bleu[kind].append(scores.bleu)
        chrf[kind].append(scores.chrf)
    return Robustness(
        sentences=len(texts),
        against="references" if references is not None else "translations of the text without typos",
        rates=list(RATES),
        realised={kind: [_changed(texts, spoiled[kind, rate]) for rate in RATES] for kind in KINDS},
        bleu=bleu,
        chrf=chrf,
    )
