"""The command that trains a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from caesura.cli.options import Threads, all_settings, parse_duration
from caesura.errors import Interrupted
from caesura.streams import outlive_readers

if TYPE_CHECKING:
    from caesura.terminal import TrainingDisplay


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
            help="stop when all calls together have trained this long; a last validation does not count",
        ),
    ] = None,
    errors: Annotated[
        Literal["strict", "replace"] | None, typer.Option("--errors", help="short for --set data.errors=...")
    ] = None,
    threads: Threads = None,
    check_cache: Annotated[
        bool, typer.Option("--check-cache", help="read the numbered text once more, to find damage")
    ] = False,
) -> None:
    """Train a model; the same command continues where it stopped."""
    from caesura import terminal
    from caesura.config import load_config
    from caesura.config.cookbook import find
    from caesura.training.loop import train as run
    from caesura.training.run import Silent
    from caesura.training.world import launched

    outlive_readers()
    with launched() as world:
        overrides = all_settings(settings, {"data.errors": errors, "training.threads": threads})
        loaded = load_config(find(config, terminal.say if world.leads else Silent().say), overrides)
        seconds, allowed = parse_duration(time_limit), parse_duration(budget, "--budget")
        folder = out or Path("runs") / loaded.name
        if not world.leads:
            run(loaded, folder, Silent(), seconds, allowed, world, check_cache)
            return
        with terminal.TrainingDisplay(loaded.training.validation_freq) as display:
            try:
                ending = run(loaded, folder, display, seconds, allowed, world, check_cache)
            except OSError as problem:  # a full disk does not say which
                problem.filename = problem.filename or str(folder)
                raise
            except Interrupted:
                _say_where(display, folder, loaded.training.validation_freq)
                raise
            if ending == "finished" and display.remark:
                display.say(display.remark)
            _say_where(display, folder, loaded.training.validation_freq, ending == "finished")


def _say_where(display: TrainingDisplay, folder: Path, freq: int, finished: bool = False) -> None:
    if (folder / "model.safetensors").exists():
        display.say(f"the best model {'' if finished else 'so far '}is in {folder}")
    else:
        first = f"the first validation, after {freq:,} sentences, saves one"
        display.say(f"no model yet: {first}; the same command goes on")
