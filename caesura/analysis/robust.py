"""A model under noise in its input and with wider beams: `caesura analyze MODEL --only robust`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from caesura.analysis.findings import plain
from caesura.analysis.lines import Line, subsample
from caesura.analysis.moved import StageReport
from caesura.analysis.tables import Cell, Column, Table
from caesura.analysis.typos import KINDS, RATES, Robustness, robustness
from caesura.errors import InputError
from caesura.evaluation.scores import score
from caesura.inference import Translator
from caesura.kernels.graphs import wanted

BEAMS = (1, 2, 5, 10, 20, 50)
HYPOTHESES = 2_500  # side by side, whatever the beam, so that no beam takes more memory than another


@dataclass(frozen=True)
class BeamScore:
    """The translations of one beam."""

    beam: int
    bleu: float
    chrf: float
    seconds: float  # per sentence


@dataclass(frozen=True)
class Robust:
    """Measurements on a sample of a text."""

    sentences: int
    noise: Robustness | None  # None where files say where text is cut, and have no cuts for typos
    beams: list[BeamScore]

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return dict(plain(self))

    def tables(self) -> list[Table]:
        """All of it, for people."""
        tables = []
        if noise := self.noise:
            rows: list[list[Cell]] = [
                [kind, *noise.bleu[kind], *noise.chrf[kind], noise.realised[kind][-1]] for kind in noise.bleu
            ]
            heads = [
                Column(f"{name} {rate:.0%}", ".1f") for name in ("BLEU", "chrF2") for rate in noise.rates
            ]
            columns = [Column("typo"), *heads, Column("words that have one then", ".1%")]
            tables.append(Table("noise", "scores by the share of words with a typo, greedy", columns, rows))
        columns = [Column("beam", "d"), Column("BLEU", ".2f"), Column("chrF2", ".2f")]
        columns += [Column("ms per sentence", ".1f")]
        rows = [[one.beam, one.bleu, one.chrf, 1000 * one.seconds] for one in self.beams]
        return [*tables, Table("beams", "scores by the size of the beam", columns, rows)]


def measure_robust(
    model: Translator,
    lines: Sequence[Line],
    text: str,
    sample: int,
    seed: int = 1,
    report: StageReport = lambda *_: None,
) -> Robust:
    """Translate a sample of a `text` with typos and with several beams; the same lines for every model."""
    filled = [line for line in lines if line.source.strip() and line.reference is not None]
    if not filled:
        raise InputError(f"{text}: no sentences with references to translate")
    chosen = subsample(filled, sample, seed)
    sources, references = [line.source for line in chosen], [line.reference or "" for line in chosen]
    noise = None
    if model.cuts_any_text:
        texts = len(chosen) * (1 + len(KINDS) * (len(RATES) - 1))
        noise = robustness(
            model,
            sources,
            references,
            seed,
            lambda done: report("translating with typos", done, texts),
            KINDS,
        )
    beams = [_beam(model, sources, references, beam, report) for beam in BEAMS]
    return Robust(len(chosen), noise, beams)


def _beam(
    model: Translator, sources: Sequence[str], references: Sequence[str], beam: int, report: StageReport
) -> BeamScore:
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    search, some, testing = model.searcher(beam), max(1, HYPOTHESES // beam), model.config.testing
    translated = dict[int, str]()
    if wanted(model.device):  # a beam's first translations compile and capture graphs for later ones
        model.process([sources[i] for i in order[:some]], search)
    began = time.perf_counter()
    for first in range(0, len(order), some):
        rows = order[first : first + some]
        outputs = model.process([sources[i] for i in rows], search)
        translated |= {i: output.best for i, output in zip(rows, outputs, strict=True)}
        report(f"translating with beam {beam}", len(rows), len(order))
    seconds = (time.perf_counter() - began) / len(sources)
    outputs_in_order = [translated[i] for i in range(len(sources))]
    scores = score(outputs_in_order, references, testing.bleu_tokenize, testing.lowercase)
    return BeamScore(beam, scores.bleu, scores.chrf, seconds)
