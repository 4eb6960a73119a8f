"""All measurements of a model on a text: one pass over the text, then a sample of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from caesura.analysis.agreement import Agreement, Agreements, train_bpe, with_own_text
from caesura.analysis.attention import (
    AttentionStatistics,
    attention_maps,
    attention_statistics,
)
from caesura.analysis.cost import Cost, mean_flops, part_sizes
from caesura.analysis.errors import Errors, Translated, error_statistics
from caesura.analysis.findings import Analysis, Drawn, Measured, TextFacts
from caesura.analysis.flips import Flips, flips
from caesura.analysis.gates import GateStatistics, gate_maps, gate_statistics
from caesura.analysis.gold import Gold
from caesura.analysis.halting import (
    HaltingTally,
    halting_trace,
    has_halting_unit,
    history,
)
from caesura.analysis.lines import Line, Sample, chunks, subsample
from caesura.analysis.models import cut_after, describe
from caesura.analysis.moved import Moved, StageReport, has_gaps, movable, move_cuts
from caesura.analysis.segments import (
    SegmentTally,
    segment_statistics,
    varying_cuts,
)
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
    """How much is looked at."""

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
class Known:
    """A text that a model has translated already."""

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
    before: Known | None = None,
) -> Analysis:
    """Measure a model on a stream of lines; memory does not grow with them."""
    settings = settings or AnalysisSettings()
    model = subject.model
    passed = _Pass(subject, gold, text, settings)
    for chunk in chunks(lines, CHUNK):
        passed.add(chunk)
        report("segmenting", len(chunk), 0)
    filled = passed.filled()
    cuts = passed.cuts_of(filled)
    kept = subsample(passed.sample.lines, settings.translate, settings.seed)
    translations = _translate(subject, kept, settings, report, before)
    outputs = {line.number: output for line, output in zip(kept, translations, strict=True)}
    sample = subsample(filled, settings.sample, settings.seed)
    translated = subsample([line for line in kept if line.source.strip()], settings.sample, settings.seed)
    gates = _gates(model, sample, cuts, gold, settings.sample)
    attention = _attention(model, sample, translated, cuts, outputs)
    report("gates and attention", len(sample), len(sample))
    shown = _shown(model, passed.shown(translated or sample), outputs, settings)
    written = [cut for output in translations if (cut := _written(output)) is not None]
    varying, contexts = varying_cuts([line.source for line in filled], [cuts[line.number] for line in filled])
    training, values = subject.training, passed.halting.figures()
    return Analysis(
        name=subject.name,
        about=describe(model),
        text=passed.facts(len(translations), len(sample), training.source),
        scores=before.scores if before else _scores(model, kept, translations),
        segments=passed.segments.result(training),
        varying=varying,
        contexts=contexts,
        agreements=passed.agreed(gold),
        target_segments=segment_statistics(written) if written else None,
        readings=[reading(line, output, training.trg, _written(output)) for line, output in shown],
        figures=[
            Measured(f.name, f.heading, f.unit, f.definition, values[f.name], f.format)
            for f in model.segmenter.figures
            if f.name in values
        ],
        halting=passed.halting.result(),
        history=history(subject.folder),
        gates=gates,
        attention=attention,
        drawn=_drawn(model, shown if settings.lines else shown[: settings.drawn], settings, report),
        errors=_errors(subject, kept, translations),
        robustness=_robust(model, translated, settings, report),
        cost=_cost(subject, filled, translations, settings, before),
        target_length=model.target_length,
        moved=_moved(model, filled, settings, report),
    )


class _Pass:
    """The one pass over the text: counts over every sentence, and the sentences that are kept."""

    def __init__(self, subject: Subject, gold: Gold | None, text: str, settings: AnalysisSettings) -> None:
        self._model, self._gold, self._text, self._settings = subject.model, gold, text, settings
        self.sentences = self.too_long = 0
        self.segments = SegmentTally()
        self.halting = HaltingTally(has_halting_unit(subject.model.segmenter), cut_after(subject.model))
        size = max(settings.translate, settings.sample, KEPT)
        self.sample = Sample(size, settings.seed, settings.lines)
        self._agreements: Agreements | None = None

    def add(self, chunk: list[Line]) -> None:
        """Segment some lines and count."""
        outputs = self._model.process([line.source for line in chunk], None)
        if self._agreements is None:  # BPE of the same text: of as much of it as is held at once
            bpe = train_bpe((line.source for line in chunk), self._settings.bpe)
            self._agreements = Agreements(bpe, self._gold)
        for line, output in zip(chunk, outputs, strict=True):
            cut = output.segmentation
            self.sentences += 1
            self.too_long += line.too_long
            self.sample.add(line)
            if line.source:
                self.segments.add(cut)
                self.halting.add(cut)
                self._agreements.add(line.number, line.source, cut.bounds, line.gold)

    def filled(self) -> list[Line]:
        """The kept lines that are not empty; a text without any is refused."""
        if not (lines := [line for line in self.sample.lines if line.source.strip()]):
            raise InputError(f"{self._text}: no sentences to analyse")
        return lines

    def cuts_of(self, lines: Sequence[Line]) -> dict[int, Segmentation]:
        """How the kept lines were cut."""
        outputs = self._model.process([line.source for line in lines], None)
        return {line.number: output.segmentation for line, output in zip(lines, outputs, strict=True)}

    def shown(self, sample: Sequence[Line]) -> list[Line]:
        """The lines that were asked for, or some of the sample."""
        settings, chosen = self._settings, self.sample.chosen
        if missing := sorted(set(settings.lines) - {line.number for line in chosen}):
            raise InputError(f"{self._text}: {self.sentences} lines; there is no line {missing[0]}")
        chosen = chosen or choose(sample, settings.examples, settings.seed)
        return [line for line in chosen if line.source.strip()]

    def agreed(self, gold: Gold | None) -> list[Agreement]:
        """The tables of boundaries, and one of the gold's own text where it has one."""
        return with_own_text(self._agreements.result() if self._agreements else [], self._model, gold)

    def facts(self, translated: int, sample: int, training: str) -> TextFacts:
        """The text, and how many of its sentences were looked at."""
        seed, search = self._settings.seed, search_name(self._model, self._settings.beam)
        counts = self.sentences, self.too_long, translated, sample
        return TextFacts(self._text, *counts, seed, search, training)


def _translate(
    subject: Subject,
    kept: Sequence[Line],
    settings: AnalysisSettings,
    report: StageReport,
    before: Known | None,
) -> list[Output]:
    if before is not None:
        return [before.outputs[line.number - 1] for line in kept]
    if not settings.translate:
        return []
    search = subject.model.searcher(settings.beam)
    sources = [line.source for line in kept]
    return subject.model.process(sources, search, lambda done: report("translating", done, len(sources)))


def _shown(
    model: Translator, lines: Sequence[Line], outputs: dict[int, Output], settings: AnalysisSettings
) -> list[tuple[Line, Output]]:
    """The lines with their outputs; a line that was not among those translated is processed here."""
    search = model.searcher(settings.beam) if settings.translate else None
    return [(line, outputs.get(line.number) or model.process([line.source], search)[0]) for line in lines]


def _gates(
    model: Translator,
    sample: Sequence[Line],
    cuts: dict[int, Segmentation],
    gold: Gold | None,
    size: int,
) -> GateStatistics | None:
    texts, segmented = [line.source for line in sample], [cuts[line.number] for line in sample]
    bounds = [_gold_bounds(line, gold) for line in sample]
    gates = gate_statistics(model, texts, segmented, bounds)
    if gates is not None and gold is not None and not gates.gold_given:
        return _with_own_gold(model, gates, gold, size)
    return gates


def _attention(
    model: Translator,
    sample: Sequence[Line],
    translated: Sequence[Line],
    cuts: dict[int, Segmentation],
    outputs: dict[int, Output],
) -> AttentionStatistics | None:
    """Of the sample where it has references, else of sentences that were translated."""
    kind: Literal["references", "translations"] = "references"
    targets = [line.reference for line in sample if line.reference is not None]
    if len(targets) < len(sample):
        kind, sample = "translations", translated
        targets = [outputs[line.number].best for line in sample]
    texts, segmented = [line.source for line in sample], [cuts[line.number] for line in sample]
    return attention_statistics(model, texts, targets, segmented, kind)


def _gold_bounds(line: Line, gold: Gold | None) -> set[int]:
    bounds = set(line.gold or ())
    if gold is not None and (gold_line := gold.in_text(line.number, line.source)) is not None:
        bounds |= set(gold_line.bounds)
    return bounds


def _with_own_gold(model: Translator, gates: GateStatistics, gold: Gold, size: int) -> GateStatistics:
    """The gates at gold boundaries of the gold's own text, where the sample has none."""
    lines = [line for line in gold.own_text() if line.bounds][:size]
    texts = [line.text for line in lines]
    cuts = [output.segmentation for output in model.process(texts, None)]
    alone = gate_statistics(model, texts, cuts, [line.bounds for line in lines])
    if alone is None:
        return gates
    pairs = zip(gates.profiles, alone.profiles, strict=True)
    profiles = [replace(a, gold=b.gold) for a, b in pairs]
    counts = {"gold_boundaries": alone.gold_boundaries, "gold_given": alone.gold_given}
    return replace(gates, **counts, profiles=profiles)


def _drawn(
    model: Translator,
    lines: Sequence[tuple[Line, Output]],
    settings: AnalysisSettings,
    report: StageReport,
) -> list[Drawn]:
    drawn = []
    for line, output in lines:
        cut = output.segmentation
        target = output.best if output.hypotheses else line.reference
        maps = attention_maps(model, [line.source], [target], [cut]) if target is not None else iter(())
        drawn.append(
            Drawn(
                number=line.number,
                halting=halting_trace(model, line.source, cut),
                gates=next(gate_maps(model, [line.source], [cut]), None),
                attention=next(maps, None),
                flips=_flipped(model, line) if settings.moved else None,
            )
        )
        report("drawing along lines", 1, len(lines))
    return drawn


def _flipped(model: Translator, line: Line) -> Flips | None:
    reference = line.reference
    if reference is None or not movable(line.source, reference) or not model.segmenter.takes_cuts:
        return None
    return flips(model, line.source, reference) if has_gaps(model, line.source) else None


def _moved(
    model: Translator, filled: Sequence[Line], settings: AnalysisSettings, report: StageReport
) -> Moved | None:
    """Of as many sentences as the settings say: the same for every model of a comparison."""
    able = [line for line in filled if movable(line.source, line.reference)]
    lines = subsample(able, settings.moved, settings.seed)
    sources, references = [line.source for line in lines], [line.reference or "" for line in lines]
    return move_cuts(model, sources, references, report)


def _scores(model: Translator, kept: Sequence[Line], outputs: Sequence[Output]) -> Scores | None:
    references = [line.reference for line in kept if line.reference is not None]
    if not outputs or len(references) < len(kept):
        return None
    testing = model.config.testing
    return score([o.best for o in outputs], references, testing.bleu_tokenize, testing.lowercase)


def _errors(subject: Subject, kept: Sequence[Line], outputs: Sequence[Output]) -> Errors | None:
    if not outputs:
        return None
    testing, training = subject.model.config.testing, subject.training
    sentences = [
        Translated(line.number, line.source, output.best, line.reference)
        for line, output in zip(kept, outputs, strict=True)
    ]
    return error_statistics(sentences, training.src, training.trg, testing.bleu_tokenize, testing.lowercase)


def _robust(
    model: Translator, sample: Sequence[Line], settings: AnalysisSettings, report: StageReport
) -> Robustness | None:
    if not sample or not model.cuts_any_text:  # nobody has given cuts for a text with typos
        return None
    references = [line.reference for line in sample if line.reference is not None]
    return robustness(
        model,
        [line.source for line in sample],
        references if len(references) == len(sample) else None,
        settings.seed,
        progress=lambda done: report("translating with typos", done, 0),
    )


def _written(output: Output) -> Segmentation | None:
    """How the decoder cut its translation; None for a decoder that does not."""
    return output.targets[0] if output.targets else None


def _cost(
    subject: Subject,
    filled: Sequence[Line],
    outputs: Sequence[Output],
    settings: AnalysisSettings,
    before: Known | None,
) -> Cost:
    model = subject.model
    sizes = []
    for output in outputs:
        if output.hypotheses:
            cut = output.segmentation
            segments = len(cut.pieces) + cut.ends[-1]  # </s> is a segment of its own after a halt
            targets, written = len(output.hypotheses[0].symbols), _written(output)
            moves = targets if written is None else len(written.pieces) + 1
            sizes.append((len(cut.ends) + 1, segments, targets, moves))
    counted, means = mean_flops(model, sizes)
    sources = [line.source for line in subsample(filled, SENTENCES, settings.seed)]
    [segmenting] = speeds([lambda: model.process(sources, None)], len(sources), model.device.type)
    translating = before.speed if before else None
    if translating is None and settings.translate:
        search = model.searcher(settings.beam)
        [translating] = speeds([lambda: model.process(sources, search)], len(sources), model.device.type)
    return Cost(
        parameters=model.parameter_count(),
        parts=part_sizes(model),
        training_seconds=training_seconds(subject.folder),
        device=model.device.type,
        segmenting=segmenting,
        translating=translating,
        flops=counted,
        sizes=means,
    )
