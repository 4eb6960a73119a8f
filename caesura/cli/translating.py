"""The commands that put text through a model: translate, segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from caesura.cli.options import (
    Beam,
    Device,
    Errors,
    Json,
    ModelFolder,
    Testing,
    Threads,
    find_text,
    load_model,
)
from caesura.errors import InputError
from caesura.streams import print_json, print_row

if TYPE_CHECKING:
    from caesura.output import Segmentation

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


def translate(
    model: ModelFolder,
    file: InputFile = "-",
    beam: Beam = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="print this many: number, score, text")] = 1,
    sample: Annotated[
        bool, typer.Option("--sample", help="draw from the model instead of searching")
    ] = False,
    temperature: Annotated[float, typer.Option("--temperature", help="for sampling")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="for sampling")] = 1,
    segments: Annotated[
        bool,
        typer.Option(
            "--segments",
            help="print the cut source first and, from an ACT decoder, the cut output, with TABs between",
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
    """Translate line by line: as many lines out as in. Or N per line, with --n-best N."""
    from caesura.cli.streaming import process
    from caesura.inference import sampler

    translator = load_model(model, device, testing, threads)
    width = translator.config.testing.beam_size if beam is None else beam
    if n_best > width or (n_best > 1 and (sample or segments)):
        raise InputError(
            f"--n-best {n_best}: at most the beam size ({width}), and 1 with --sample or --segments"
        )
    if sample and beam is not None:
        raise InputError("--sample draws and --beam searches; choose one")
    if sample and not 0 < temperature < float("inf"):
        raise InputError(
            f"--temperature {temperature}: must be above 0 and finite; --beam 1 is the limit towards 0"
        )
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
    from caesura.cli.streaming import forced, process

    translator = load_model(model, device, testing, threads)
    outputs = process(translator, file, errors, None, unbuffered=unbuffered)
    sources = ((text, output.segmentation) for _, output, text in outputs)
    for text, cut in sources if target is None else forced(translator, file, target, errors):
        if as_json:
            scores = {"scores": cut.scores, "weights": cut.weights, "ends": cut.ends}
            name = "source" if target is None else "target"
            print_json({name: text, "pieces": cut.shown, "bounds": cut.bounds, **scores})
        else:
            print_row(_shown(cut))


def _shown(cut: Segmentation) -> str:
    from caesura.evaluation.pieces import join_pieces

    return join_pieces(cut.shown)
