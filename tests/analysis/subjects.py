"""Small models and lines that tests of the report analyse."""

from pathlib import Path

from helpers import ACT, tiny_model

from caesura.analysis.lines import Line
from caesura.analysis.study import AnalysisSettings, Subject
from caesura.analysis.training_text import TrainingText
from caesura.data.words import WordCounts

WORDS = WordCounts({"abc": 3, "ab": 20}, 23, True)
TRAINING = TrainingText(WORDS, WORDS)
LINES = [Line(n, "abc de fgh."[: 3 + n % 9], "ab cd"[: 1 + n % 5], (1,)) for n in range(1, 30)]
SMALL = AnalysisSettings(sample=8, beam=1)


def subject(segmenter: dict = ACT, name: str = "act", **parts: dict) -> Subject:
    return Subject(name, Path("nowhere"), tiny_model(segmenter, **parts), TRAINING)
