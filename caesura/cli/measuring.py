"""The commands that measure models: evaluate, compare, analyze."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from caesura.cli.only import print_cuts, print_inside, print_robust, text_files
from caesura.cli.options import (
    Beam,
    Device,
    Errors,
    Gold,
    Json,
    ModelFolder,
    Testing,
    Threads,
    find_text,
    load_model,
)
from caesura.errors import InputError
from caesura.streams import print_json
from caesura.visible import each_line, one_line

if TYPE_CHECKING:
    from caesura.data.sentences import Sentences
    from caesura.evaluation.evaluate import Evaluation
    from caesura.inference import Translator

Source = Annotated[
    str,
    typer.Option("--src", help="source text; a .tsv holds source, target, boundaries", callback=find_text),
]
TestSet = Annotated[
    str | None,
    typer.Option("--src", help="source text, or a .tsv; else the config's data.test", callback=find_text),
]
Analysed = Annotated[
    str | None,
    typer.Option(
        "--src",
        help="source text, or a .tsv; without it, --only reads a text of the config",
        callback=find_text,
    ),
]
TrainingSource = Annotated[
    str | None, typer.Option("--train", help="training text, if it has moved", callback=find_text)
]
Target = Annotated[
    str | None, typer.Option("--trg", help="reference translations, line by line", callback=find_text)
]
SampleSize = Annotated[
    int, typer.Option("--sample", min=1, help="sentences for gates, attention, typos and --only robust")
]
Translated = Annotated[
    int, typer.Option("--translate", min=0, help="report: how many translations to look at, at most")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="report: seed of samples and typos")]
Lines = Annotated[
    str | None, typer.Option("--lines", help="report: lines to show, such as 3,17; else some are drawn")
]
Bpe = Annotated[
    int,
    typer.Option(
        "--bpe", min=10, max=1_000_000, help="report: symbols of the BPE that cuts are compared with"
    ),
]
Moved = Annotated[
    int, typer.Option("--moved", min=0, help="sentences whose cuts are moved, one gap at a time")
]


def evaluate(
    model: ModelFolder,
    src: TestSet = None,
    trg: Target = None,
    beam: Beam = None,
    as_json: Json = False,
    in_detail: Annotated[
        bool,
        typer.Option(
            "--details", help="with --json: errors, scores by length and rare words, counts for a bootstrap"
        ),
    ] = False,
    errors: Errors = "strict",
    device: Device = "auto",
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Score a model: BLEU, chrF2, segment length. Also chrF order 2, and boundary F1 if there is gold."""
    from caesura import terminal
    from caesura.inference import search_name, search_settings

    if in_detail and not as_json:
        raise InputError("--details needs --json; `caesura analyze` makes a report of all of it")
    translator = load_model(model, device, testing, threads)
    src, trg = text_files(translator, src, trg, "test")
    text = _text(translator, src, trg, errors)
    result, seconds = _evaluate(translator, text, beam)
    if as_json:
        more = _details(model, translator, text, result, errors, seconds) if in_detail else {}
        search = search_settings(translator, beam)
        print_json({"model": str(model), "search": search, **result.record(), **more})
        return
    title = f"{translator.config.name} on {src}, {search_name(translator, beam)}"
    terminal.evaluation(result, title, translator.segmenter.figures)


def compare(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="model folders")],
    src: Source,
    trg: Target = None,
    out: Annotated[Path | None, typer.Option("--out", help="write a report of all into this folder")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="a name for the first model; repeat it for the next")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="the baseline of p-values; by default the first model that is not a failure"),
    ] = None,
    gold: Gold = None,
    train: TrainingSource = None,
    beam: Beam = None,
    sample: SampleSize = 500,
    translate: Translated = 10_000,
    seed: Seed = 1,
    lines: Lines = None,
    bpe: Bpe = 2_000,
    moved: Moved = 20,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Print the paper's Table 2 for your models. With a paired bootstrap; --out also writes a report."""
    from caesura.analysis.study import AnalysisSettings
    from caesura.cli.streaming import sentences
    from caesura.experiments.comparison import (
        Text,
        begin_report,
        check_out,
        compare_models,
        find_baseline,
        show_comparison,
        write_report,
    )

    _check_unique(models, name)
    place = None if baseline is None else find_baseline(baseline, models, name or ())
    if out is not None and src == "-":
        raise InputError("--src -: a report reads the text once for each model; give --src a file instead")
    if out is not None:
        check_out(out, models, src, name or ())
    settings = AnalysisSettings(sample, translate, beam, seed, bpe, lines=_numbers(lines), moved=moved)
    loaded = [(str(model), load_model(model, device, testing, threads)) for model in models]
    text = sentences(src, trg, errors, min(model.config.testing.max_input for _, model in loaded))
    for _, translator in loaded:
        translator.read_cuts(src)
    files = Text(src, trg, gold, train, errors)
    gold_segments = begin_report(files, out) if out is not None else None
    rows = compare_models(loaded, text, beam, name or (), place)
    if as_json:
        print_json([{**row.record(), **row.evaluation.record()} for row in rows])
    else:
        show_comparison(rows, f"on {src}")
    if out is not None:
        page, _ = write_report(loaded, files, gold_segments, out, settings, rows)
        print(one_line(f"the report: {page}"), file=sys.stderr if as_json else sys.stdout)


def analyze(
    model: ModelFolder,
    src: Analysed = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="the folder for report.html, tables and figures")
    ] = None,
    trg: Target = None,
    gold: Gold = None,
    train: TrainingSource = None,
    beam: Beam = None,
    sample: SampleSize = 500,
    translate: Translated = 10_000,
    seed: Seed = 1,
    lines: Lines = None,
    bpe: Bpe = 2_000,
    moved: Moved = 20,
    only: Annotated[
        Literal["cuts", "robust", "inside"] | None,
        typer.Option(
            "--only",
            help="print this instead of writing a report; cuts: fidelity, flips, where cuts fall; robust: "
            "typos, beams; inside: frequent segments, examples, gates, attention",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="with --only: JSON instead of text")] = False,
    errors: Errors = "strict",
    device: Device = "auto",
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Write one report on a model and a text. Segments, gates, attention, errors."""
    if only is not None:
        if only == "cuts" and not moved:
            raise InputError("--only cuts --moved 0: at least one sentence is needed")
        _refuse(f"--only {only} writes no report", {"--out": out, "--lines": lines})
        unused = {"robust": {"--gold": gold, "--train": train}, "inside": {"--gold": gold}}
        _refuse(f"--only {only} does not use it", unused.get(only, {}))
        translator = load_model(model, device, testing, threads)
        if only == "cuts":
            print_cuts(model, translator, (src, trg, gold, train), moved, seed, as_json, errors)
        elif only == "inside":
            print_inside(model, translator, (src, trg, train), sample, seed, as_json, errors)
        else:
            print_robust(model, translator, (src, trg), sample, seed, as_json, errors)
        return
    _refuse("a report is not printed; --json goes with --only", {"--json": as_json or None})
    if src is None or out is None:
        missing = "--src" if src is None else "--out"
        raise InputError(f"{missing} is missing; a report needs --src and --out; --only needs neither")

    from caesura.analysis.study import AnalysisSettings
    from caesura.analysis.tables import overview
    from caesura.experiments.comparison import Text, begin_report, check_out, write_report

    check_out(out, [model], src)
    settings = AnalysisSettings(sample, translate, beam, seed, bpe, lines=_numbers(lines), moved=moved)
    loaded = [(str(model), load_model(model, device, testing, threads))]
    for _, translator in loaded:
        translator.read_cuts(src)
    files = Text(src, trg, gold, train, errors)
    page, analyses = write_report(loaded, files, begin_report(files, out), out, settings)
    print(each_line(overview(analyses, {}).text()))
    print(one_line(f"the report: {page}"))


def _refuse(why: str, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            raise InputError(f"{option} cannot be given: {why}")


def _numbers(lines: str | None) -> tuple[int, ...]:
    if lines is not None and not re.fullmatch(r"[1-9]\d{0,8}(,[1-9]\d{0,8})*", lines):
        raise InputError(f"--lines {lines}: numbers of lines separated by commas are wanted, such as 3,17")
    return tuple(int(number) for number in lines.split(",")) if lines else ()


def _text(translator: Translator, src: str, trg: str | None, errors: Errors) -> Sentences:
    from caesura.cli.streaming import sentences

    text = sentences(src, trg, errors, translator.config.testing.max_input)
    translator.read_cuts(src)
    return text


def _evaluate(translator: Translator, text: Sentences, beam: int | None) -> tuple[Evaluation, float]:
    """Translate and score a text; also how many seconds it took."""
    from caesura import terminal
    from caesura.evaluation.evaluate import evaluate as run
    from caesura.evaluation.scores import wordless

    began = time.perf_counter()
    with terminal.counting("translating", len(text.sources)) as progress:
        search = translator.searcher(beam)
        result = run(translator, text.sources, text.references, text.gold, search, progress)
    terminal.warn(wordless(result.scores.bleu, result.scores.chrf))
    return result, time.perf_counter() - began


def _details(
    folder: Path,
    translator: Translator,
    text: Sentences,
    result: Evaluation,
    errors: Errors,
    seconds: float,
) -> dict[str, Any]:
    from caesura.analysis.details import details
    from caesura.analysis.training_text import training_text, unseen_lines

    training = training_text(translator, folder, None, errors)
    best = [output.best for output in result.outputs]
    unseen = unseen_lines(translator.config.data.train, text.sources, text.references, errors)
    numbers = details(text.sources, best, text.references, training, translator.config.testing, unseen)
    return {"seconds": seconds, "device": translator.device.type, **numbers}


def _check_unique(models: list[Path], names: list[str] | None) -> None:
    if len({os.path.realpath(model) for model in models}) < len(models):
        raise InputError("compare: a model folder is named twice")
    if names and not len({*names}) == len(names) == len(models):
        raise InputError(f"--name: {len(models)} different names are wanted, one per model, in their order")
