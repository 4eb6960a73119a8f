"""Sentences as a model cut and translated them, for the paper's Tables 3, 6 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caesura.analysis.lines import Line, subsample
from caesura.data.words import WordCounts, bare, words_of
from caesura.output import Output, Segmentation

DRAWN = 80  # characters: sentences up to here are drawn whole, as in the paper


@dataclass(frozen=True)
class Reading:
    """One sentence as one model read it."""

    number: int
    source: str
    reference: str | None
    pieces: list[str]
    translation: str | None  # None: not translated
    target_pieces: list[str] | None  # None: the decoder does not cut
    invented: list[str]  # words of the translation that neither training nor the source showed


def reading(
    line: Line, output: Output, words: WordCounts | None = None, target: Segmentation | None = None
) -> Reading:
    """A line as a model cut and translated it; `target`: the cuts of a decoder that segments."""
    translation = output.best if output.hypotheses else None
    written = (translation or "").split() if words and words.complete else []
    read = set(words_of(line.source))
    return Reading(
        number=line.number,
        source=line.source,
        reference=line.reference,
        pieces=output.segmentation.shown,
        translation=translation,
        target_pieces=target.shown if target else None,
        invented=[w for w in written if words and not words.of(bare(w)) and bare(w) not in read],
    )


def choose(lines: Sequence[Line], count: int, seed: int) -> list[Line]:
    """Some lines to show, seeded; lines that can be drawn whole come first."""
    picked = subsample(lines, 20 * count, seed)
    fit = [line for line in picked if 15 <= len(line.source) <= DRAWN]
    first = subsample(fit, count, seed)
    rest = [line for line in picked if line not in first]
    return [*first, *subsample(rest, count - len(first), seed)]
