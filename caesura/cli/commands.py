"""The commands of the program."""

from __future__ import annotations

import os
from functools import cache
from typing import Annotated

import typer
from typer.main import get_command

from caesura.cli import recipes
from caesura.cli.averaging import average
from caesura.cli.experiments import demo, reproduce, sweep
from caesura.cli.exploring import explore
from caesura.cli.improving import improve
from caesura.cli.measuring import analyze, compare, evaluate
from caesura.cli.training import train
from caesura.cli.translating import segment, translate
from caesura.errors import InputError

app = typer.Typer(
    name="caesura",
    help="Translation models that learn where to cut their input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _show_version(flag: bool) -> None:
    if flag:
        from caesura import __version__

        typer.echo(f"caesura {__version__}")
        raise typer.Exit


def _refuse_several_processes(command: str | None) -> None:
    """Refuse a command that is one process if torchrun has started it several times."""
    size = os.environ.get("WORLD_SIZE") or "1"
    if command in ("demo", "reproduce", "sweep") and size != "1":
        if os.environ.get("RANK", "0") != "0":  # one sentence is enough
            raise typer.Exit(2)
        raise InputError(f"WORLD_SIZE is {size}, but {command} is one process; start it without torchrun")


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="show where an error came from")] = False,
) -> None:
    """Options before the command."""
    _refuse_several_processes(context.invoked_subcommand)


for command in (
    *(demo, train, average, translate, segment, evaluate),
    *(compare, analyze, improve, reproduce, sweep, explore),
):
    app.command()(command)
app.add_typer(recipes.commands, name="recipes")
parser = cache(get_command)  # a process that calls several commands makes them once
