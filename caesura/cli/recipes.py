"""The commands that list recipes and copy them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@commands.callback()
def list_recipes(context: typer.Context) -> None:
    """List the recipes that come with the program. With copy NAME FOLDER, copy one to change it."""
    if context.invoked_subcommand is not None:
        return
    from caesura.experiments.recipe_copies import listed

    lines = listed()
    width = max(map(len, lines))
    for name, sentence in lines.items():
        print(f"{name:<{width}}  {sentence}")
    print("\n`caesura recipes copy NAME .` makes a copy to change; train, sweep and reproduce take names too")


@commands.command("copy")
def copy_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="as `caesura recipes` lists it")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder to copy it to")] = Path(),
) -> None:
    """Copy a recipe, with the files that it is based on, and say what to change. No file is replaced."""
    from caesura.experiments.recipe_copies import copy_recipe as copy
    from caesura.terminal import say

    copies = copy(name, folder)
    for file in copies.written:
        say(str(file))
    for file in copies.kept:
        say(f"{file} exists already and is kept")
    for place in copies.edits:
        say(f"put the names of your text files into {place}; relative names start from that file's folder")
    say(f"then: {copies.command}")
