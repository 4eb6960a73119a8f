"""All measurements of a model on a text: one pass over the text, then a sample of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from caesura.analysis.agreement import Agreements, train_bpe, with_own_text
from caesura.analysis.attention import AttentionStatistics, attention_statistics
from caesura.analysis.cost import Cost, mean_flops, part_sizes
from caesura.analysis.errors import Errors, Translated, error_statistics
from caesura.analysis.explain import explain
from caesura.analysis.findings import Analysis, Drawn, Measured, TextFacts
from caesura.analysis.flips import Flips, flips
from caesura.analysis.gates import GateStatistics, gate_maps, gate_statistics
from caesura.analysis.gold import Gold
from caesura.analysis.halting import HaltingTally, halting_trace, has_halting_unit, history
from caesura.analysis.lines import Line, Sample, chunks, subsample
from caesura.analysis.models import cut_after, describe
from caesura.analysis.moved import StageReport, has_gaps, movable, move_some
from caesura.analysis.segments import SegmentTally, segment_statistics, varying_cuts
from caesura.analysis.sentences import choose, reading
from caesura.analysis.speed import SENTENCES, Speed, speeds
from caesura.analysis.training_text import TrainingText
from caesura.analysis.typos import Robustness, robustness
from caesura.errors import InputError
from caesura.evaluation.scores import Scores, score
from caesura.inference import Translator, search_name
from caesura.output import Output, Segmentation
from caesura.training.journal import training_seconds

CHUNK = 2_000  # lines that are segmented together
KEPT = 10_000  # lines that are held in memory: translated, compared in their contexts, sampled from


@dataclass(frozen=True)
class AnalysisSettings:
    """The size of an analysis."""

    sample: int = 500  # sentences for gates, attention and typos
    translate: int = KEPT  # sentences, at most
    beam: int | None = None  # None: the config's
    seed: int = 1
    bpe: int = 2_000  # symbols of the BPE that the cuts are compared with
    examples: int = 8  # sentences shown
    drawn: int = 2  # of these, drawn with halting, gates and attention
    lines: tuple[int, ...] = ()  # numbers of the lines to show, all of them drawn, instead of some
    moved: int = 20  # sentences whose cuts are moved; 0: none, and no drawn ones either


@dataclass(frozen=True)
class Subject:
    """A model to analyse, with its training text."""

    name: str
    folder: Path
    model: Translator
    training: TrainingText


@dataclass(frozen=True)
class Translations:
    """The translations of a text that a model has made already."""

    outputs: Sequence[Output]  # of every line
    scores: Scores
    speed: Speed | None = None  # None: not measured yet


def analyse(
    subject: Subject,
    lines: Iterable[Line],
    text: str,
    gold: Gold | None = None,
    settings: AnalysisSettings | None = None,
    report: StageReport = lambda *_: None,
    before: Translations | None = None,
) -> Analysis:
    """Measure a model on a stream of lines; memory does not grow with them."""
    study = _Study(subject, text, gold, settings or AnalysisSettings(), report, before)
    study.read(lines)
    study.translate()
    return study.result()


class _Study:
    """A model on a text: `read` counts over every sentence and keeps some; other methods look at those."""

    def __init__(
        self,
        subject: Subject,
        text: str,
        gold: Gold | None,
        settings: AnalysisSettings,
        report: StageReport,
        before: Translations | None,
    ) -> None:
        self._subject, self._model, self._text, self._gold = subject, subject.model, text, gold
        self._settings, self._report, self._before = settings, report, before
        self._sentences = self._too_long = 0
        self._segments = SegmentTally()
        self._halting = HaltingTally(has_halting_unit(self._model.segmenter), cut_after(self._model))
        self._lines = Sample(max(settings.translate, settings.sample, KEPT), settings.seed, settings.lines)
        self._agreements: Agreements | None = None

    def read(self, lines: Iterable[Line]) -> None:
        """The one pass over the text; refuses a text without sentences."""
        for chunk in chunks(lines, CHUNK):
            self._count(chunk)
            self._report("segmenting", len(chunk), 0)
        self._filled = [line for line in self._lines.lines if line.source.strip()]
        if not self._filled:
            raise InputError(f"{self._text}: no sentences to analyse")
        outputs = self._model.process([line.source for line in self._filled], None)
        self._cuts = {
            line.number: output.segmentation for line, output in zip(self._filled, outputs, strict=True)
        }
        self._sample = self._some(self._filled, self._settings.sample)

    def _count(self, chunk: list[Line]) -> None:
        outputs = self._model.process([line.source for line in chunk], None)
        if self._agreements is None:  # BPE of the same text: of as much of it as is held at once
            bpe = train_bpe((line.source for line in chunk), self._settings.bpe)
            self._agreements = Agreements(bpe, self._gold)
        for line, output in zip(chunk, outputs, strict=True):
            cut = output.segmentation
            self._sentences += 1
            self._too_long += line.too_long
            self._lines.add(line)
            if line.source:
                self._segments.add(cut)
                self._halting.add(cut)
                self._agreements.add(line.number, line.source, cut.bounds, line.gold)

    def _some(self, lines: Sequence[Line], size: int) -> list[Line]:
        return subsample(lines, size, self._settings.seed)

    def translate(self) -> None:
        """Translate the kept lines, unless that was done before."""
        self._kept = self._some(self._lines.lines, self._settings.translate)
        if self._before is not None:
            self._outputs = [self._before.outputs[line.number - 1] for line in self._kept]
        elif self._settings.translate:
            search, sources = self._model.searcher(self._settings.beam), [line.source for line in self._kept]
            self._outputs = self._model.process(
                sources, search, lambda done: self._report("translating", done, len(sources))
            )
        else:
            self._outputs = []
        pairs = zip(self._kept, self._outputs, strict=True)
        self._by_line = {line.number: output for line, output in pairs}
        filled = [line for line in self._kept if line.source.strip()]
        self._translated = self._some(filled, self._settings.sample)

    def result(self) -> Analysis:
        """All measurements."""
        model, training, settings = self._model, self._subject.training, self._settings
        gates, attention = self._gates(), self._attention()
        self._report("gates and attention", len(self._sample), len(self._sample))
        shown = self._shown()
        written = [cut for output in self._outputs if (cut := _written(output)) is not None]
        sources = [line.source for line in self._filled]
        varying, contexts = varying_cuts(sources, [self._cuts[line.number] for line in self._filled])
        figures, tables = self._halting.figures(), self._agreements.result() if self._agreements else []
        return Analysis(
            name=self._subject.name,
            about=describe(model),
            text=TextFacts(
                self._text, self._sentences, self._too_long, len(self._outputs), len(self._sample),
                settings.seed, search_name(model, settings.beam), training.source,
            ),
            scores=self._before.scores if self._before else self._scores(),
            segments=self._segments.result(training),
            varying=varying,
            contexts=contexts,
            agreements=with_own_text(tables, model, self._gold),
            target_segments=segment_statistics(written) if written else None,
            readings=[reading(line, output, training.trg, _written(output)) for line, output in shown],
            figures=[
                Measured(f.name, f.heading, f.unit, f.definition, figures[f.name], f.format)
                for f in model.segmenter.figures
                if f.name in figures
            ],
            halting=self._halting.result(),
            history=history(self._subject.folder),
            gates=gates,
            attention=attention,
            drawn=self._drawn(shown if settings.lines else shown[: settings.drawn]),
            errors=self._errors(),
            robustness=self._robustness(),
            cost=self._cost(),
            target_length=model.target_length,
            moved=move_some(model, self._filled, settings.moved, settings.seed, self._report),
        )  # fmt: skip

    def _shown(self) -> list[tuple[Line, Output]]:
        """The lines that were asked for, or some of the sample, with their outputs."""
        settings, chosen = self._settings, self._lines.chosen
        if missing := sorted(set(settings.lines) - {line.number for line in chosen}):
            raise InputError(f"{self._text}: {self._sentences} lines; there is no line {missing[0]}")
        chosen = chosen or choose(self._translated or self._sample, settings.examples, settings.seed)
        search = self._model.searcher(settings.beam) if settings.translate else None
        return [
            (line, self._by_line.get(line.number) or self._model.process([line.source], search)[0])
            for line in chosen
            if line.source.strip()
        ]

    def _gates(self) -> GateStatistics | None:
        """The gates over the sample; at gold boundaries of the gold's own text where the sample has none."""
        model, gold = self._model, self._gold
        texts, cuts = _texts_and_cuts(self._sample, self._cuts)
        gates = gate_statistics(model, texts, cuts, [_gold_bounds(line, gold) for line in self._sample])
        if gates is None or gold is None or gates.gold_given:
            return gates
        lines = [line for line in gold.own_text() if line.bounds][: self._settings.sample]
        texts = [line.text for line in lines]
        cuts = [output.segmentation for output in model.process(texts, None)]
        alone = gate_statistics(model, texts, cuts, [line.bounds for line in lines])
        if alone is None:
            return gates
        pairs = zip(gates.profiles, alone.profiles, strict=True)
        counts = {"gold_boundaries": alone.gold_boundaries, "gold_given": alone.gold_given}
        return replace(gates, **counts, profiles=[replace(a, gold=b.gold) for a, b in pairs])

    def _attention(self) -> AttentionStatistics | None:
        """Over the sample where it has references, else over sentences that were translated."""
        kind: Literal["references", "translations"] = "references"
        sample = self._sample
        targets = [line.reference for line in sample if line.reference is not None]
        if len(targets) < len(sample):
            kind, sample = "translations", self._translated
            targets = [self._by_line[line.number].best for line in sample]
        texts, cuts = _texts_and_cuts(sample, self._cuts)
        return attention_statistics(self._model, texts, targets, cuts, kind)

    def _drawn(self, lines: Sequence[tuple[Line, Output]]) -> list[Drawn]:
        model, drawn = self._model, []
        for line, output in lines:
            cut = output.segmentation
            target = output.best if output.hypotheses else line.reference
            seen = None if target is None else explain(model, line.source, target=target, heads=True)
            halting = halting_trace(model, line.source, cut) if seen is None else seen.halting
            attention = None if seen is None else seen.attention
            gates = next(gate_maps(model, [line.source], [cut]), None)
            flipped = _flipped(model, line) if self._settings.moved else None
            drawn.append(Drawn(line.number, halting, gates, attention, flipped))
            self._report("drawing along lines", 1, len(lines))
        return drawn

    def _scores(self) -> Scores | None:
        references, testing = _references(self._kept), self._model.config.testing
        if not self._outputs or references is None:
            return None
        translations = [output.best for output in self._outputs]
        return score(translations, references, testing.bleu_tokenize, testing.lowercase)

    def _errors(self) -> Errors | None:
        if not self._outputs:
            return None
        testing, training = self._model.config.testing, self._subject.training
        sentences = [
            Translated(line.number, line.source, output.best, line.reference)
            for line, output in zip(self._kept, self._outputs, strict=True)
        ]
        return error_statistics(
            sentences, training.src, training.trg, testing.bleu_tokenize, testing.lowercase
        )

    def _robustness(self) -> Robustness | None:
        if not self._translated or not self._model.cuts_any_text:  # files have no cuts for typos
            return None
        return robustness(
            self._model,
            [line.source for line in self._translated],
            _references(self._translated),
            self._settings.seed,
            progress=lambda done: self._report("translating with typos", done, 0),
        )

    def _cost(self) -> Cost:
        model, sizes = self._model, []
        for output in self._outputs:
            if output.hypotheses:
                cut = output.segmentation
                segments = len(cut.pieces) + cut.ends[-1]  # </s> is a segment of its own after a halt
                targets, written = len(output.hypotheses[0].symbols), _written(output)
                moves = targets if written is None else len(written.pieces) + 1
                sizes.append((len(cut.ends) + 1, segments, targets, moves))
        counted, means = mean_flops(model, sizes)
        sources = [line.source for line in self._some(self._filled, SENTENCES)]
        [segmenting] = speeds([lambda: model.process(sources, None)], len(sources), model.device.type)
        translating = self._before.speed if self._before else None
        if translating is None and self._settings.translate:
            search = model.searcher(self._settings.beam)
            [translating] = speeds([lambda: model.process(sources, search)], len(sources), model.device.type)
        return Cost(
            parameters=model.parameter_count(),
            parts=part_sizes(model),
            training_seconds=training_seconds(self._subject.folder),
            device=model.device.type,
            segmenting=segmenting,
            translating=translating,
            flops=counted,
            sizes=means,
        )


def _texts_and_cuts(
    lines: Sequence[Line], cuts: Mapping[int, Segmentation]
) -> tuple[list[str], list[Segmentation]]:
    return [line.source for line in lines], [cuts[line.number] for line in lines]


def _references(lines: Sequence[Line]) -> list[str] | None:
    """The references of lines; None unless all have one."""
    references = [line.reference for line in lines if line.reference is not None]
    return references if len(references) == len(lines) else None


def _gold_bounds(line: Line, gold: Gold | None) -> set[int]:
    bounds = set(line.gold or ())
    if gold is not None and (gold_line := gold.in_text(line.number, line.source)) is not None:
        bounds |= set(gold_line.bounds)
    return bounds


def _flipped(model: Translator, line: Line) -> Flips | None:
    reference = line.reference
    if reference is None or not movable(line.source, reference) or not model.segmenter.takes_cuts:
        return None
    return flips(model, line.source, reference) if has_gaps(model, line.source) else None


def _written(output: Output) -> Segmentation | None:
    """How the decoder cut its translation; None for a decoder that does not."""
    return output.targets[0] if output.targets else None
