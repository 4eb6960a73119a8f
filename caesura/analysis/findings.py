"""The results of a study of one model, from which tables, figures, reports and JSON are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from caesura.analysis.agreement import Agreement
from caesura.analysis.attention import AttentionMap, AttentionStatistics
from caesura.analysis.cost import Cost
from caesura.analysis.errors import Errors
from caesura.analysis.flips import Flips
from caesura.analysis.gates import GateMap, GateStatistics
from caesura.analysis.halting import HaltingStatistics, HaltingTrace, History
from caesura.analysis.moved import Moved
from caesura.analysis.segments import SegmentStatistics, Varying
from caesura.analysis.sentences import Reading
from caesura.analysis.typos import Robustness
from caesura.evaluation.scores import Scores


@dataclass(frozen=True)
class TextFacts:
    """The text, and how much of it was looked at."""

    name: str
    sentences: int
    too_long: int  # of these, over testing.max_input: taken as empty
    translated: int
    sample: int
    seed: int
    search: str
    training: str  # where counts of the training text are from


@dataclass(frozen=True)
class Drawn:
    """One sentence in pictures; None where the model has no such part."""

    number: int
    halting: HaltingTrace | None
    gates: GateMap | None
    attention: AttentionMap | None
    flips: Flips | None = None


@dataclass(frozen=True)
class Measured:
    """A figure that the segmenter names, and its value on the text."""

    name: str
    heading: str
    unit: str
    definition: str
    value: float
    format: str

    @property
    def shown(self) -> str:
        """The value as text."""
        return format(self.value, self.format)


@dataclass(frozen=True)
class Analysis:
    """Everything that was measured of one model."""

    name: str
    about: str  # segmenter and sizes, in a phrase
    text: TextFacts
    scores: Scores | None
    segments: SegmentStatistics
    varying: list[Varying]
    contexts: int  # strings whose cuts were compared
    agreements: list[Agreement]
    target_segments: SegmentStatistics | None  # None: the decoder does not cut
    readings: list[Reading]
    figures: list[Measured]  # the segmenter's own
    halting: HaltingStatistics | None
    history: History | None
    gates: GateStatistics | None
    attention: AttentionStatistics | None
    drawn: list[Drawn]
    errors: Errors | None
    robustness: Robustness | None
    cost: Cost
    target_length: float | None = None  # characters per segment that its rate asks for; None: no rate
    moved: Moved | None = None  # None: no cuts could be moved, or none were to be


def plain(value: Any) -> Any:
    """Dataclasses as dicts, with null in place of nan and infinities."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
