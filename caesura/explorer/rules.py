"""Where a request wants a text cut: a rule, and the locks over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from caesura.config import RuleCuts
from caesura.data.cuts import RuledCuts, TextCuts, places_of, symbols_before
from caesura.data.vocabulary import UNK, Spans, Vocabulary
from caesura.explorer.refused import Refused
from caesura.explorer.schema import Rule, RuleName
from caesura.inference import Translator

WORDS = RuledCuts(RuleCuts(type="whitespace", side="after"))
EVERY = 4  # symbols per segment where a request names no k


@dataclass(frozen=True)
class Line:
    """A text with its symbols and gaps."""

    text: str
    ids: list[int]
    spans: Spans

    @classmethod
    def of(cls, text: str, vocabulary: Vocabulary) -> Line:
        """A text as a vocabulary reads it."""
        return cls(text, *vocabulary.encode_spans(text))

    @property
    def places(self) -> NDArray[np.int32]:
        """[n, 2] as `places_of` has them."""
        return places_of(self.spans)

    @property
    def gaps(self) -> dict[int, int]:
        """By the offset of each gap, the symbol before it.

        A symbol of no characters, as unigram vocabularies have, shares its offset with the next one, so it
        has no gap before it.
        """
        following = enumerate(self.spans[1:])
        return {start: i for i, (start, end) in following if end > start > 0}

    @property
    def unknown(self) -> list[int]:
        """Where symbols start that the vocabulary does not have."""
        return [start for i, (start, _) in zip(self.ids, self.spans, strict=True) if i == UNK]


def characters(spans: Spans) -> list[tuple[int, int]]:
    """The first and last symbol of each unit on the page: the bytes of a character, else one symbol."""
    firsts = [i for i, (start, end) in enumerate(spans) if end > start]
    return [(a, b - 1) for a, b in pairwise([*firsts, len(spans)])]


def rules_of(model: Translator, entropy: TextCuts | None) -> list[RuleName]:
    """The rules that a model can follow, its usual one first."""
    needed = model.segmenter.needs_given() and model.cuts is None
    first: list[RuleName] = ["own"] if model.cuts_any_text and not needed else []
    if not model.segmenter.takes_cuts:
        return first
    by_rule: list[RuleName] = ["characters", "words", "every"]
    by_entropy: list[RuleName] = [] if entropy is None else ["entropy"]
    return [*first, *by_rule, *by_entropy]


def decisions(
    line: Line, rule: Rule, locks: Mapping[int, int], entropy: TextCuts | None
) -> dict[int, int] | list[int] | None:
    """The offsets where a rule cuts; for rule `own`, decisions by gap: 1 cut, -1 do not cut.

    With `own`, the model decides all other gaps, and every gap if the result is None.
    """
    gaps = line.gaps
    if wrong := [offset for offset in locks if offset not in gaps]:
        raise Refused(422, f"offset {wrong[0]} is not between two symbols of this text", "cuts")
    if rule.name == "own":
        return dict(locks) or None
    cut = _offsets(line, rule, entropy)
    return [offset for offset, i in gaps.items() if locks.get(offset, 1 if i in cut else -1) > 0]


def _offsets(line: Line, rule: Rule, entropy: TextCuts | None) -> set[int]:
    """The symbols after which a rule cuts."""
    if rule.name == "characters":
        return {*range(len(line.spans))}
    if rule.name == "every":
        k = EVERY if rule.k is None else rule.k
        return {*range(k - 1, len(line.spans), k)}
    source = WORDS if rule.name == "words" else entropy
    if source is None:
        raise Refused(422, "none of these models cuts by entropy, so this rule cannot be used", "rule")
    after, between = symbols_before(source.offsets(line.text), line.places)
    return {*after[between].tolist()}
