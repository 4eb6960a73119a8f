"""The command that moves a model's cuts to better places, for other models to imitate: improve."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from caesura.cli.options import Device, ModelFolder, Threads, find_text, load_model, parse_duration
from caesura.errors import InputError
from caesura.visible import one_line


def improve(
    model: ModelFolder,
    out: Annotated[
        Path, typer.Option("--out", help="the file of offsets; FILE.jsonl beside it has the losses")
    ],
    sentences: Annotated[
        int, typer.Option("--sentences", min=1, help="sentences of the training text; all others get ?")
    ] = 2000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, help="moves per sentence, at most; 0: the model's own cuts")
    ] = 4,
    seed: Annotated[int, typer.Option("--seed", min=0, help="seed that chooses the sentences")] = 1,
    src: Annotated[
        str | None, typer.Option("--src", help="training text, if it has moved", callback=find_text)
    ] = None,
    trg: Annotated[
        str | None, typer.Option("--trg", help="its translations, line by line", callback=find_text)
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="stop after this long: 9m; the same command goes on")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Move a model's cuts to better places, for others to imitate. Their number stays the same."""
    from caesura import terminal
    from caesura.analysis.teacher import Sample, teach
    from caesura.config.cookbook import find_model
    from caesura.data.corpus import ParallelText
    from caesura.data.files import checksum, stored
    from caesura.errors import no_file
    from caesura.model_folder import WEIGHTS
    from caesura.training.prepare import parallel_text

    seconds, translator = parse_duration(time_limit), load_model(model, device, None, threads)
    if not translator.segmenter.takes_cuts:
        kind = translator.segmenter.kind
        raise InputError(f"{model}: its segmenter ({kind}) takes no cuts that could be moved")
    if trg is not None and src is None:
        raise InputError("--trg is given without --src; give both, or neither for the config's data.train")
    text = ParallelText(src, trg) if src is not None else parallel_text(translator.config.data.train)
    for path in filter(None, (text.src, text.trg)):
        if not stored(path).is_file():
            raise InputError(f"{no_file(path)}; --src and --trg should name the training text")
    made_from = {
        "model": checksum(find_model(model) / WEIGHTS),
        "text": text.digests(),
        "seed": seed,
        "rounds": rounds,
    }
    sample = Sample.draw(translator, text, sentences, seed)
    with terminal.counting("moving cuts", len(sample.lines)) as progress:
        summary, done = teach(sample, out, rounds, made_from, progress, seconds)
    count, of = summary.sentences, len(sample.lines)
    gain = f"loss {summary.before:.4f}, now {summary.after:.4f} nats per symbol"
    moves, length = f"{summary.moves:.2f} moves each", f"{summary.length:.2f} characters per segment"
    print(one_line(f"{out}: {count:,} sentences, {moves}; {gain}; {length}"))
    if not done:
        ended = f"stopped by the time limit after {count:,} of {of:,} sentences"
        print(f"caesura: {ended}; the same command goes on", file=sys.stderr)
