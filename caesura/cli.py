"""The command line. Torch is imported inside the commands, so that --help answers at once."""

from __future__ import annotations

from caesura.signals import QuietInterrupt

with QuietInterrupt():
    import sys
    from pathlib import Path
    from typing import TYPE_CHECKING, Annotated, Literal

    import typer

    from caesura import measuring
    from caesura.errors import InputError, Interrupted, explain, show_traceback
    from caesura.experiments import commands
    from caesura.options import (
        Beam,
        Device,
        Errors,
        Json,
        ModelFolder,
        Testing,
        Threads,
        find_text,
        load_model,
        parse_duration,
        print_json,
        print_row,
    )
    from caesura.streams import open_streams, outlive_readers

if TYPE_CHECKING:
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

InputFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="one sentence per line, or a .tsv for its source column; - is standard input",
        callback=find_text,
    ),
]
Unbuffered = Annotated[
    bool, typer.Option("--unbuffered", help="answer each line before the next is read; slower for much text")
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


app.command()(commands.demo)


@app.command()
def train(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="a YAML file or a recipe's name")],
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
    threads: Threads = None,
) -> None:
    """Train a model; the same command again goes on where it stopped."""
    from caesura import terminal
    from caesura.config import load_config
    from caesura.config.cookbook import find
    from caesura.training.loop import train as run

    outlive_readers()
    short = {"data.errors": errors, "training.threads": threads}
    overrides = [*(settings or ()), *(f"{key}={value}" for key, value in short.items() if value is not None)]
    loaded = load_config(find(config, terminal.say), overrides)
    seconds = None if time_limit is None else parse_duration(time_limit)
    allowed = None if budget is None else parse_duration(budget, "--budget")
    folder = out or Path("runs") / loaded.name
    with terminal.TrainingDisplay(loaded.training.validation_freq) as display:
        try:
            ending = run(loaded, folder, display, seconds, allowed)
        except OSError as problem:  # a full disk does not say which
            problem.filename = problem.filename or str(folder)
            raise
        except Interrupted:
            _say_where(display, folder)
            raise
        if ending == "finished" and display.remark:
            display.say(display.remark)
        _say_where(display, folder, ending == "finished")


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
    with_cuts: Annotated[
        bool,
        typer.Option("--with-cuts", help="FILE is as `segment` prints it; cut there and nowhere else"),
    ] = False,
    unbuffered: Unbuffered = False,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Translate line by line: as many lines out as in. Or N a line, with --n-best N."""
    from caesura.streaming import process, sampler

    translator = load_model(model, device, testing, threads)
    width = translator.config.testing.beam_size if beam is None else beam
    if n_best > width or (n_best > 1 and (sample or segments)):
        raise InputError(
            f"--n-best {n_best}: at most the beam size ({width}), and 1 with --sample or --segments"
        )
    if sample and beam is not None:
        raise InputError("--sample draws and --beam searches; choose one")
    search = sampler(temperature, seed) if sample else translator.searcher(beam)
    for number, output, text in process(translator, file, errors, search, with_cuts, unbuffered):
        if as_json:
            print_json({"source": text, **output.record(n_best)})
        elif n_best > 1:
            for hypothesis, translation in zip(output.hypotheses[:n_best], output.texts, strict=False):
                print_row(f"{number}", f"{hypothesis.score:.4f}", translation)
            if not output.hypotheses:
                print_row(f"{number}", f"{0:.4f}", "")  # an empty line: certain to stay empty
        else:
            columns = [_shown(output.segmentation)] if segments else []
            if segments and translator.decoder.segmenting:
                columns += ["".join(_shown(cut) for cut in output.targets[:1])]
            print_row(*columns, output.best)


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
            callback=find_text,
        ),
    ] = None,
    unbuffered: Unbuffered = False,
    as_json: Json = False,
    errors: Errors = "strict",
    device: Device = "auto",
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Show where a model cuts its input: in|␣g|ru|pp|en. --json: with scores and weights."""
    from caesura.streaming import forced, process

    translator = load_model(model, device, testing, threads)
    outputs = process(translator, file, errors, None, unbuffered=unbuffered)
    sources = ((text, output.segmentation) for _, output, text in outputs)
    for text, cut in sources if target is None else forced(translator, file, target, errors):
        if as_json:
            scores = {"scores": cut.scores, "weights": cut.weights, "ends": cut.ends}
            name = "source" if target is None else "target"
            print_json({name: text, "pieces": cut.pieces, "bounds": cut.bounds, **scores})
        else:
            print_row(_shown(cut))


app.command()(measuring.evaluate)
app.command()(measuring.compare)
app.command()(measuring.analyze)
app.command()(commands.reproduce)
app.command()(commands.sweep)
app.add_typer(commands.recipes, name="recipes")


def _say_where(display: TrainingDisplay, folder: Path, finished: bool = False) -> None:
    if (folder / "model.safetensors").exists():
        display.say(f"the best model {'' if finished else 'so far '}is in {folder}")
    else:
        display.say("no model yet: the first validation (training.validation_freq) makes one")


def _shown(cut: Segmentation) -> str:
    from caesura.evaluation.pieces import join_pieces

    return join_pieces(cut.pieces)


def main() -> None:
    """Run the program; a user's mistake is one sentence and status 2, never a traceback."""
    with QuietInterrupt() as interrupt:
        open_streams()
        try:
            try:
                status = app(prog_name="caesura", standalone_mode=False) or 0
            finally:
                sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as problem:
            interrupt.ending = True
            if "--traceback" in sys.argv:
                sys.excepthook = show_traceback
                raise
            status = explain(problem)
        finally:
            outlive_readers()  # errors of the last flush have been reported already
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
