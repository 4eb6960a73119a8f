"""The command line. Torch is imported inside the commands, so that --help answers at once."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from caesura.errors import InputError, Interrupted, explain
from caesura.experiments import commands
from caesura.options import parse_duration, parse_seeds

if TYPE_CHECKING:
    from caesura.evaluation.evaluate import Evaluation
    from caesura.model import Translator
    from caesura.output import Segmentation
    from caesura.terminal import TrainingDisplay

app = typer.Typer(
    name="caesura",
    help="Translation models that learn where to cut their input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder")]
InputFile = Annotated[str, typer.Argument(metavar="FILE", help="a sentence a line; - is standard input")]
Errors = Annotated[
    Literal["strict", "replace"], typer.Option("--errors", help="bytes that are not UTF-8: stop, or �")
]
Beam = Annotated[int | None, typer.Option("--beam", min=1, help="beam size; 1 is greedy; else the config's")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto")]
Testing = Annotated[
    list[str] | None, typer.Option("--set", metavar="testing.A=B", help="for this call; may be repeated")
]
Source = Annotated[str, typer.Option("--src", help="source text; a .tsv holds source, target, boundaries")]
TestSet = Annotated[
    str | None, typer.Option("--src", help="source text, or a .tsv; else the config's data.test")
]
Gold = Annotated[str | None, typer.Option("--gold", help="gold segmentation: words, morphemes, compounds")]
TrainingSource = Annotated[str | None, typer.Option("--train", help="training text, if it has moved")]
Target = Annotated[str | None, typer.Option("--trg", help="reference translations, line by line")]
SampleSize = Annotated[
    int, typer.Option("--sample", min=1, help="report: sentences for gates, attention, typos")
]
Translated = Annotated[
    int, typer.Option("--translate", min=0, help="report: look at so many translations at most")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="report: of the samples and the typos")]
Lines = Annotated[
    str | None, typer.Option("--lines", help="report: lines to show, such as 3,17; else some are drawn")
]
Bpe = Annotated[
    int, typer.Option("--bpe", min=10, help="report: symbols of the BPE that cuts are compared with")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from caesura import __version__

        typer.echo(f"caesura {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="show where an error came from")] = False,
) -> None:
    """What stands before the command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="where models, plots and corpus go")] = Path("runs/demo"),
    seeds: Annotated[str, typer.Option("--seeds", help="seeds to train with, such as 1,2,3")] = "1",
) -> None:
    """Train a character model and ACT-ENC on German numbers in about 3 minutes, and show what it cut."""
    from caesura.demo import run_demo

    if not run_demo(out, parse_seeds(seeds)):
        raise typer.Exit(1)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="a YAML file; recipes/ has many")],
    out: Annotated[Path | None, typer.Option("--out", help="the model folder; runs/NAME by default")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting; may be repeated")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="stop cleanly after this long: 90s, 9m, 2h")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            help="stop when all calls together have trained so long, with a last validation off the clock",
        ),
    ] = None,
    errors: Annotated[
        Literal["strict", "replace"] | None, typer.Option("--errors", help="short for --set data.errors=...")
    ] = None,
) -> None:
    """Train a model; the same command again goes on where it stopped."""
    from caesura import terminal
    from caesura.config import load_config
    from caesura.training.loop import train as run

    loaded = load_config(config, [*(settings or ()), *([f"data.errors={errors}"] if errors else ())])
    seconds = None if time_limit is None else parse_duration(time_limit)
    allowed = None if budget is None else parse_duration(budget, "--budget")
    folder = out or Path("runs") / loaded.name
    with terminal.TrainingDisplay(loaded.training.validation_freq) as display:
        try:
            run(loaded, folder, display, seconds, allowed)
        except OSError as problem:  # a full disk does not say which
            problem.filename = problem.filename or str(folder)
            raise
        except Interrupted:
            _say_where(display, folder)
            raise
        _say_where(display, folder)


@app.command()
def translate(
    model: ModelFolder,
    file: InputFile = "-",
    beam: Beam = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="print so many: number, score, text")] = 1,
    sample: Annotated[
        bool, typer.Option("--sample", help="draw from the model instead of searching")
    ] = False,
    temperature: Annotated[float, typer.Option("--temperature", help="of sampling")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="of sampling")] = 1,
    segments: Annotated[
        bool,
        typer.Option(
            "--segments",
            help="print before it, with TABs, the cut source and what the decoder cut, if it does",
        ),
    ] = False,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    testing: Testing = None,
) -> None:
    """Translate line by line: as many lines out as in (or N a line with --n-best N)."""
    from caesura.streaming import process, sampler

    translator = _load(model, device, testing)
    width = translator.config.testing.beam_size if beam is None else beam
    if n_best > width or (n_best > 1 and (sample or segments)):
        raise InputError(
            f"--n-best {n_best}: at most the beam size ({width}), and 1 with --sample or --segments"
        )
    if sample and beam is not None:
        raise InputError("--sample draws and --beam searches; choose one")
    search = sampler(temperature, seed) if sample else translator.searcher(beam)
    for number, output, text in process(translator, file, errors, search):
        if as_json:
            _print_json({"source": text, **output.record(n_best)})
        elif n_best > 1:
            for hypothesis, translation in zip(output.hypotheses[:n_best], output.texts, strict=False):
                print(f"{number}\t{hypothesis.score:.4f}\t{translation}")
            if not output.hypotheses:
                print(f"{number}\t{0:.4f}\t")  # an empty line: certain to stay empty
        else:
            columns = [_shown(output.segmentation)] if segments else []
            if segments and translator.decoder.segmenting:
                columns += ["".join(_shown(cut) for cut in output.targets[:1])]
            print(*columns, output.best, sep="\t")
        sys.stdout.flush()


@app.command()
def segment(
    model: ModelFolder,
    file: InputFile = "-",
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TRG",
            help="translations of FILE: show where an ACT decoder cuts these instead",
        ),
    ] = None,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    testing: Testing = None,
) -> None:
    """Show where a model cuts its input: in|␣g|ru|pp|en (--json: with halting scores and weights)."""
    from caesura.streaming import forced, process

    translator = _load(model, device, testing)
    sources = ((text, output.segmentation) for _, output, text in process(translator, file, errors, None))
    for text, cut in sources if target is None else forced(translator, file, target, errors):
        if as_json:
            scores = {"scores": cut.scores, "weights": cut.weights, "ends": cut.ends}
            _print_json({"text": text, "pieces": cut.pieces, "bounds": cut.bounds, **scores})
        else:
            print(_shown(cut))
        sys.stdout.flush()


@app.command()
def evaluate(
    model: ModelFolder,
    src: TestSet = None,
    trg: Target = None,
    beam: Beam = None,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    testing: Testing = None,
) -> None:
    """Score a model: BLEU, chrF2, chrF order 2, segment length, boundary F1 where gold is given."""
    from caesura import terminal
    from caesura.analysis.models import search_name, search_settings

    translator = _load(model, device, testing)
    if src is None and trg is not None:
        raise InputError("--trg is given without --src; give both, or neither for the config's data.test")
    if src is None:
        src, trg = _test_set(translator)
    found = _evaluate(translator, src, trg, beam, errors)
    if as_json:
        _print_json({"model": str(model), "search": search_settings(translator, beam), **found.record()})
        return
    terminal.evaluation(found, f"{translator.config.name} on {src}, {search_name(translator, beam)}")


@app.command()
def compare(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="folders; the first is the baseline")
    ],
    src: Source,
    trg: Target = None,
    out: Annotated[Path | None, typer.Option("--out", help="write a report of all into this folder")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="what to call the first model; again: the next")
    ] = None,
    gold: Gold = None,
    train: TrainingSource = None,
    beam: Beam = None,
    sample: SampleSize = 500,
    translate: Translated = 10_000,
    seed: Seed = 1,
    lines: Lines = None,
    bpe: Bpe = 2_000,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    testing: Testing = None,
) -> None:
    """The paper's Table 2 for your models, with a paired bootstrap; --out: the report of `analyze` too."""
    from caesura.analysis.study import Settings
    from caesura.comparison import Text, check_out, compare_models, show_comparison, write_report
    from caesura.streaming import sentences

    _check_unique(models, name)
    if out is not None and src == "-":
        raise InputError("--src -: a report reads the text once for each model; give --out a file instead")
    if out is not None:
        check_out(out, models, src, name or ())
    settings = Settings(sample, translate, beam, seed, bpe, lines=_numbers(lines))
    loaded = [(str(model), _load(model, device, testing)) for model in models]
    text = sentences(src, trg, errors, min(model.config.testing.max_input for _, model in loaded))
    rows = compare_models(loaded, text, beam, name or ())
    if as_json:
        _print_json([{**row.record(), **row.evaluation.record()} for row in rows])
    else:
        show_comparison(rows, f"on {src}")
    if out is not None:
        page, _ = write_report(loaded, Text(src, trg, gold, train, errors), out, settings, rows)
        print(f"the report: {page}", file=sys.stderr if as_json else sys.stdout)


@app.command()
def analyze(
    model: ModelFolder,
    src: Source,
    out: Annotated[Path, typer.Option("--out", help="the folder for report.html, tables and figures")],
    trg: Target = None,
    gold: Gold = None,
    train: TrainingSource = None,
    beam: Beam = None,
    sample: SampleSize = 500,
    translate: Translated = 10_000,
    seed: Seed = 1,
    lines: Lines = None,
    bpe: Bpe = 2_000,
    errors: Errors = "strict",
    device: Device = "auto",
    testing: Testing = None,
) -> None:
    """Everything about a model's segments, gates, attention and errors on a text: one report."""
    from caesura.analysis.study import Settings
    from caesura.analysis.tables import overview
    from caesura.comparison import Text, check_out, write_report

    check_out(out, [model], src)
    settings = Settings(sample, translate, beam, seed, bpe, lines=_numbers(lines))
    loaded = [(str(model), _load(model, device, testing))]
    page, found = write_report(loaded, Text(src, trg, gold, train, errors), out, settings)
    print(overview(found, {}).text())
    print(f"the report: {page}")


app.command()(commands.reproduce)
app.command()(commands.sweep)


def _numbers(lines: str | None) -> tuple[int, ...]:
    if lines is not None and not re.fullmatch(r"[1-9]\d{0,8}(,[1-9]\d{0,8})*", lines):
        raise InputError(f"--lines {lines}: numbers of lines separated by commas are wanted, such as 3,17")
    return tuple(int(number) for number in lines.split(",")) if lines else ()


def _say_where(display: TrainingDisplay, folder: Path) -> None:
    if (folder / "model.safetensors").exists():
        display.say(f"the best model so far is in {folder}")
    else:
        display.say("no model yet: the first validation (training.validation_freq) makes one")


def _load(folder: Path, device: str, testing: Testing) -> Translator:
    import torch

    from caesura.model import Translator

    if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {device}: not here; auto or cpu would work")
    wanted = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    return Translator.from_pretrained(folder, wanted, testing or ())


def _evaluate(
    translator: Translator, src: str, trg: str | None, beam: int | None, errors: Errors
) -> Evaluation:
    from caesura import terminal
    from caesura.evaluation.evaluate import evaluate as run
    from caesura.streaming import sentences

    text = sentences(src, trg, errors, translator.config.testing.max_input)
    with terminal.counting("translating", len(text.sources)) as progress:
        search = translator.searcher(beam)
        return run(translator, text.sources, text.references, text.gold, search, progress)


def _test_set(translator: Translator) -> tuple[str, str | None]:
    """The files that the config names as its test set; a stranger's may name anything, so they are told."""
    test = translator.config.data.test
    if test is None:
        raise InputError("--src is missing, and the model's config names no data.test")
    files = [test] if isinstance(test, Path) else [test.src, test.trg]
    for path in files:
        if not path.is_file():  # a device or a pipe might never end
            raise InputError(f"{path}: no file, but data.test of the model's config names it; give --src")
    print(f"test set named by the folder's config: {' and '.join(map(str, files))}", file=sys.stderr)
    return str(files[0]), str(files[1]) if len(files) > 1 else None


def _check_unique(models: list[Path], names: list[str] | None) -> None:
    if len({model.resolve() for model in models}) < len(models):
        raise InputError("compare: a model folder is named twice")
    if names and not len({*names}) == len(names) == len(models):
        raise InputError(f"--name: {len(models)} different names are wanted, one a model, in their order")


def _shown(cut: Segmentation) -> str:
    from caesura.evaluation.pieces import join_pieces

    return join_pieces(cut.pieces)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def main() -> None:
    """Run the program; a user's mistake is one sentence and status 2, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # text comes in as UTF-8 and goes out as UTF-8 everywhere
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        status = app(prog_name="caesura", standalone_mode=False) or 0
    except SystemExit:
        raise
    except BaseException as problem:
        if "--traceback" in sys.argv:
            raise
        status = explain(problem)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
