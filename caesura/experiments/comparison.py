"""Several models on one text: the paper's Table 2, with a paired bootstrap against one of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from caesura import terminal
from caesura.analysis.findings import Analysis
from caesura.analysis.gold import Gold, read_gold
from caesura.analysis.lines import name_of, read_text, readable
from caesura.analysis.report import Report, refuse_another
from caesura.analysis.speed import SENTENCES, Speed, speeds
from caesura.analysis.study import AnalysisSettings, Subject, Translations, analyse
from caesura.analysis.training_text import training_text
from caesura.data.files import Errors, refuse_unwritable
from caesura.data.sentences import Sentences
from caesura.errors import InputError
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.evaluation.rates import aim
from caesura.evaluation.scores import Comparison, paired_bootstrap, wordless
from caesura.inference import Translator, search_name, search_settings
from caesura.training.journal import training_seconds
from caesura.visible import one_line

FAILURE = 0.1  # of the best BLEU: a model with less is not the baseline, unless it is asked for


@dataclass(frozen=True)
class ComparisonRow:
    """One model of a comparison."""

    name: str
    model: Translator
    beam: int | None  # None: that of the model's config
    training_seconds: float | None  # to the best validation, as the model folder has it
    translating_seconds: float
    evaluation: Evaluation
    bootstrap: Comparison | None  # None where only one model is compared
    speed: Speed | None = None  # of translating; None: not measured

    @property
    def baseline(self) -> bool:
        """Whether the others are tested against it."""
        return self.bootstrap is not None and self.bootstrap.bleu.p_value is None

    def record(self) -> dict[str, Any]:
        """The figures that are not in the evaluation, for JSON."""
        tested = self.bootstrap
        p_values = {"bleu": tested.bleu.p_value, "chrf": tested.chrf.p_value} if tested else None
        return {
            "model": self.name,
            "search": search_settings(self.model, self.beam),
            "parameters": self.model.parameter_count(),
            "training_seconds": self.training_seconds,
            "translating_seconds": self.translating_seconds,
            "baseline": self.baseline,
            "p_values": p_values,
            "signatures": None if tested is None else tested.signatures,
        }


def compare_models(
    models: Sequence[tuple[str, Translator]],
    text: Sentences,
    beam: int | None,
    names: Sequence[str],
    baseline: int | None = None,
) -> list[ComparisonRow]:
    """Translate the text with every (folder, model) and test the differences from one of them.

    Rows are named by their folders where no names are given; `baseline` is as in `compared`.
    """
    for key in ("bleu_tokenize", "lowercase"):
        values = sorted({str(getattr(m.config.testing, key)) for _, m in models})
        if len(values) > 1:
            raise InputError(
                f"testing.{key} differs between the models ({', '.join(values)}); "
                f"--set testing.{key}=VALUE gives all of them the same"
            )
    measured = []
    for folder, model in models:
        with terminal.counting(f"translating with {folder}", len(text.sources)) as progress:
            began = time.perf_counter()
            search = model.searcher(beam)
            result = evaluate(model, text.sources, text.references, text.gold, search, progress)
            measured.append((result, time.perf_counter() - began))
        terminal.warn(wordless(result.scores.bleu, result.scores.chrf), folder)
    rows = compared(models, measured, text, beam, baseline)
    rows = [replace(row, speed=speed) for row, speed in zip(rows, _speeds(models, text, beam), strict=True)]
    return [replace(row, name=name) for row, name in zip(rows, names, strict=True)] if names else rows


def _speeds(models: Sequence[tuple[str, Translator]], text: Sentences, beam: int | None) -> list[Speed]:
    """How fast each translates the same few sentences."""
    filled = [source for source in text.sources if source.strip()] or text.sources
    sources = Random(1).sample(filled, min(len(filled), SENTENCES))
    works = [partial(model.process, sources, model.searcher(beam)) for _, model in models]
    with terminal.stages("timing"):
        return speeds(works, len(sources), models[0][1].device.type)


def find_baseline(choice: str, folders: Sequence[Path], names: Sequence[str]) -> int:
    """The place of the model of this name or folder; an unknown one is refused."""
    shown = names or _names([str(folder) for folder in folders])
    for i, (name, folder) in enumerate(zip(shown, folders, strict=True)):
        if choice == name or Path(choice).resolve() == folder.resolve():
            return i
    raise InputError(f"--baseline {choice}: no model has this name; choose from {', '.join(shown)}")


def first_success(bleu: Sequence[float]) -> int:
    """The place of the first model that is not a failure; one has less than a tenth of the best BLEU."""
    return next(i for i, score in enumerate(bleu) if score >= FAILURE * max(bleu))


def compared(
    models: Sequence[tuple[str, Translator]],
    measured: Sequence[tuple[Evaluation, float]],
    text: Sentences,
    beam: int | None,
    baseline: int | None = None,
) -> list[ComparisonRow]:
    """One row per model from its evaluation and the seconds it took; tests differences to a baseline.

    `baseline` is its place; None: the first model that is not a failure.
    """
    tested: dict[str, Comparison] = {}
    if len(models) > 1:
        testing = models[0][1].config.testing
        systems = {
            folder: [output.best for output in result.outputs]
            for (folder, _), (result, _) in zip(models, measured, strict=True)
        }
        if baseline is None:
            baseline = first_success([result.scores.bleu for result, _ in measured])
        first = models[baseline][0]
        systems = {first: systems[first]} | systems
        tested = paired_bootstrap(systems, text.references, testing.bleu_tokenize, testing.lowercase)
    return [
        ComparisonRow(
            folder, model, beam, training_seconds(Path(folder)), seconds, result, tested.get(folder)
        )
        for (folder, model), (result, seconds) in zip(models, measured, strict=True)
    ]


@dataclass(frozen=True)
class Text:
    """The files that models are looked at with."""

    src: str
    trg: str | None = None
    gold: str | None = None
    train: str | None = None
    errors: Errors = "strict"


def begin_report(text: Text, out: Path) -> Gold | None:
    """Read the gold and make the folder; refuses what cannot be read or written before any work."""
    gold = read_gold(text.gold, text.errors) if text.gold is not None else None
    with refuse_unwritable(out):
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    return gold


def write_report(
    models: Sequence[tuple[str, Translator]],
    text: Text,
    gold: Gold | None,
    out: Path,
    settings: AnalysisSettings,
    rows: Sequence[ComparisonRow] = (),
    missing: str = "",
) -> tuple[Path, list[Analysis]]:
    """Analyse every (folder, model) on the text and write one report: the page, and what is in it.

    `begin_report` has read the gold and made the folder. If models were compared, names and translations come
    from `rows`. `missing` says which models are missing.
    """
    longest = min(model.config.testing.max_input for _, model in models)
    names = _names([folder for folder, _ in models], rows)
    analyses = []
    for i, (folder, model) in enumerate(models):
        row = rows[i] if rows else None
        before = Translations(row.evaluation.outputs, row.evaluation.scores, row.speed) if row else None
        with terminal.stages(f"analysing {names[i]}") as report:
            training = training_text(model, Path(folder), text.train, text.errors)
            lines = read_text(text.src, text.trg, text.errors, longest)
            subject = Subject(names[i], Path(folder), model, training)
            analyses.append(analyse(subject, lines, name_of(text.src), gold, settings, report, before))
    tested = {name: row.bootstrap for name, row in zip(names, rows, strict=False) if row.bootstrap}
    with terminal.stages("drawing"):
        page = Report(analyses, tested, missing).write(out)
    if gold is not None and not any(t.reference == gold.name for t in analyses[0].agreements):
        terminal.err.print(
            one_line(f"caesura: {text.gold}: none of its boundaries is in a line of {text.src}")
        )
    if analyses[0].text.too_long and not rows:  # `compare` has reported each line
        limit = f"longer than {longest} characters (testing.max_input)"
        terminal.err.print(
            f"caesura: {one_line(text.src)}: {analyses[0].text.too_long} lines {limit} were taken as empty"
        )
    return page, analyses


def check_out(out: Path, models: Sequence[Path], src: str, names: Sequence[str] = ()) -> None:
    """Refuse a folder for a report, before work is put into one, that holds another report."""
    refuse_another(out, names or _names([str(model) for model in models]), name_of(src))


def _names(folders: Sequence[str], rows: Sequence[ComparisonRow] = ()) -> list[str]:
    """The given names; without them the names of the folders, or their paths if those are not distinct."""
    chosen = [row.name for row in rows]
    if rows and chosen != list(folders):
        return chosen
    short = [Path(folder).resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else folders
    return [readable(name) for name in names]


def show_comparison(rows: Sequence[ComparisonRow], where: str) -> None:
    """Print the table; p-values are for the difference from the baseline."""
    gold = rows[0].evaluation.boundaries is not None
    cutting = any(row.evaluation.output_segments for row in rows)
    columns = ["model", "BLEU", "p", "chrF2", "exact", "parameters", "segment length", "to best"]
    shown = {f.name: f for row in rows for f in row.model.segmenter.figures if f.headline}
    columns += [*(figure.heading for figure in shown.values())]
    columns += ["sentences/s", *(["output segments"] if cutting else []), *(["boundary F1"] if gold else [])]
    cells = []
    for row in rows:
        result = row.evaluation
        p = row.bootstrap.bleu.p_value if row.bootstrap else None
        line = [
            row.name,
            f"{result.scores.bleu:.2f}",
            "" if p is None else f"{p:.3f}",
            f"{result.scores.chrf:.2f}",
            f"{result.scores.exact:.1%}",
            f"{row.model.parameter_count():,}",
            f"{result.segments.mean:.2f}{aim(result.target)} (max {result.segments.longest})",
            "?" if row.training_seconds is None else terminal.duration(row.training_seconds),
            *(
                figure.shown(result.figures[name]) if name in result.figures else ""
                for name, figure in shown.items()
            ),
            f"{s.median:.0f} ± {s.spread:.0f}" if (s := row.speed) and not s.problem else "",
        ]
        if cutting:
            cut = result.output_segments
            line.append(f"{cut.mean:.2f} (max {cut.longest})" if cut else "")
        if gold and result.boundaries:
            line.append(f"{result.boundaries['model'].f1:.3f}")
        cells.append(line)
    scores = rows[0].evaluation.scores
    notes = [f"p: paired bootstrap of BLEU against {row.name}" for row in rows if row.baseline]
    timed = [row.speed for row in rows if row.speed]
    notes += [f"sentences/s: median of {s.repeats} repeats ± half their range" for s in timed[:1]]
    unclear = [(row.name, row.speed.problem) for row in rows if row.speed and row.speed.problem]
    notes += [f"no speed for {name}: {problem}" for name, problem in unclear]
    searches = {search_name(row.model, row.beam) for row in rows}
    if len(searches) == 1:
        where += f", {searches.pop()}"
    else:
        notes += [f"{row.name}: {search_name(row.model, row.beam)}" for row in rows]
    caption = "\n".join([scores.signatures["bleu"], scores.signatures["chrf"], *notes])
    terminal.table(where, columns, cells, caption)
