"""Numbers on translations beyond their scores: `caesura evaluate --json --details`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caesura.analysis.errors import Count, Translated, error_statistics
from caesura.analysis.findings import plain
from caesura.analysis.frequency import by_frequency
from caesura.analysis.training_text import TrainingText
from caesura.config import Testing
from caesura.evaluation.bootstrap import UnitCounts
from caesura.evaluation.scores import score

UNIT = 3  # lines whose n-grams are counted together: they take less than half the room of single lines


def details(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    training: TrainingText,
    testing: Testing,
    unseen: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Errors, scores by length and by rare words, words by frequency, and packed counts for a bootstrap.

    `unseen`: the places of lines that are not in the training text, which are also scored by themselves.
    """
    lines = [
        Translated(number, *line)
        for number, line in enumerate(zip(sources, translations, references, strict=True), 1)
    ]
    scoring = testing.bleu_tokenize, testing.lowercase
    errors = error_statistics(lines, training.src, training.trg, *scoring)
    words = training.trg if "translation" not in errors.unspaced else None
    counts = UnitCounts.of(translations, references, *scoring, unit=UNIT)
    shares = {name: value.share for name, value in vars(errors).items() if isinstance(value, Count)}
    frequency = by_frequency(translations, references, words) if words and words.complete else None
    return {
        "errors": shares,
        "by_length": plain(errors.by_length),
        "by_rarity": plain(errors.by_rarity),
        "by_frequency": plain(frequency),
        "unseen": _part(translations, references, unseen, testing) if unseen else None,
        "units": {"lines": UNIT, "packed": counts.packed()},
    }


def _part(
    translations: Sequence[str], references: Sequence[str], places: Sequence[int], testing: Testing
) -> dict[str, Any]:
    """The scores of some of the lines."""
    chosen = [translations[i] for i in places], [references[i] for i in places]
    scores = score(*chosen, testing.bleu_tokenize, testing.lowercase)
    return {"sentences": len(places), "bleu": scores.bleu, "chrf": scores.chrf}
