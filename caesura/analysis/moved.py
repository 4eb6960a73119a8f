"""The effect of moving cuts: how right the scores' gradient is, and how much flips gain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from caesura.analysis.fidelity import Fidelity, fidelity
from caesura.analysis.flips import FlipStatistics, all_flips, flip_statistics
from caesura.analysis.lines import Line, subsample
from caesura.inference import Translator

LONGEST = 400  # characters of a source: the time that flips take grows with the square of its length
TOGETHER = 10  # sentences whose flips share batches
SAMPLES = 96  # shifted copies of each sentence

# The stage, how many more sentences it has done, and how many there are (0: not known).
StageReport = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Moved:
    """Measurements made by moving the cuts of some sentences."""

    sentences: int
    fidelity: Fidelity | None  # None where the scores cannot be shifted, or no gap is free
    flips: FlipStatistics | None  # None where the segmenter takes no cuts


def movable(source: str, reference: str | None) -> bool:
    """Whether a sentence and its reference have text, and the sentence is not too long for flips."""
    return bool(source.strip() and (reference or "").strip()) and len(source) <= LONGEST


def has_gaps(model: Translator, source: str) -> bool:
    """Whether a model reads at least two symbols."""
    return len(model.src_vocabulary.encode_spans(source)[0]) > 1


def move_cuts(
    model: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    progress: StageReport = lambda *_: None,
) -> Moved | None:
    """Move the cuts of the sentences that are `movable`; None where there is nothing to move."""
    segmenter = model.segmenter
    pairs = [
        (source, reference)
        for source, reference in zip(sources, references, strict=True)
        if movable(source, reference) and has_gaps(model, source)
    ]
    if not pairs or not (segmenter.shiftable or segmenter.takes_cuts):
        return None
    gradient = _fidelity(model, pairs, progress) if segmenter.shiftable else None
    return Moved(
        sentences=len(pairs),
        fidelity=gradient if gradient and gradient.positions else None,
        flips=_flips(model, pairs, progress) if segmenter.takes_cuts else None,
    )


def move_some(
    model: Translator,
    lines: Iterable[Line],
    count: int,
    seed: int,
    progress: StageReport = lambda *_: None,
) -> Moved | None:
    """Move the cuts of at most `count` lines, the same for every model of a comparison."""
    able = subsample([line for line in lines if movable(line.source, line.reference)], count, seed)
    sources, references = [line.source for line in able], [line.reference or "" for line in able]
    return move_cuts(model, sources, references, progress)


def _fidelity(model: Translator, pairs: Sequence[tuple[str, str]], progress: StageReport) -> Fidelity:
    copies = 0

    def done(more: int) -> None:
        nonlocal copies
        before, copies = copies, copies + more
        progress("shifting scores", copies // SAMPLES - before // SAMPLES, len(pairs))

    sources, references = zip(*pairs, strict=True)
    return fidelity(model, model.batch(sources, references), SAMPLES, progress=done)


def _flips(model: Translator, pairs: Sequence[tuple[str, str]], progress: StageReport) -> FlipStatistics:
    results = []
    for first in range(0, len(pairs), TOGETHER):
        sources, references = zip(*pairs[first : first + TOGETHER], strict=True)
        results += all_flips(model, sources, references)
        progress("flipping cuts", len(sources), len(pairs))
    return flip_statistics(results)
