"""The command that averages the weights of models."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from caesura.errors import InputError
from caesura.streams import print_row, refuse_closed_output
from caesura.visible import one_line

if TYPE_CHECKING:
    from caesura.training.average import By


def average(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="the folder of a training, or several model folders"),
    ],
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, help="its last N checkpoints (see training.keep_last)"),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option("--best", min=1, help="its N best on dev (see training.keep_best)"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="the new model folder; FOLDER-lastN or FOLDER-bestN by default"),
    ] = None,
) -> None:
    """Average the weights of checkpoints or of several models.

    The result is a new model folder.
    """
    refuse_closed_output()
    by, count = _asked(folders, last, best)
    if len(folders) > 1 and out is None:
        raise InputError("--out is missing; the mean of several folders needs a folder of its own")

    from caesura.training.average import average_folders, average_run, listed

    place = out or Path(f"{_named(folders[0])}-{by}{count}")

    def say(text: str) -> None:
        print(one_line(f"caesura: {text}"), file=sys.stderr)

    try:
        if by is None:
            rows = average_folders(folders, place, say)
        else:
            rows = average_run(folders[0], by, count, place, say)
    except OSError as problem:  # a full disk does not say which
        problem.filename = problem.filename or str(place)
        raise
    for row in rows:
        print_row(str(place), listed(row))


def _asked(folders: list[Path], last: int | None, best: int | None) -> tuple[By | None, int]:
    """Whether the last or the best checkpoints are asked for, and how many; None for model folders."""
    if last is not None and best is not None:
        raise InputError("--last averages the newest checkpoints and --best the best; choose one")
    if len(folders) > 1 and (last or best):
        option = "--last" if last else "--best"
        raise InputError(f"{option} is for one folder; several folders are averaged as they are")
    if best is not None:
        return "best", best
    if last is None and len(folders) == 1:
        raise InputError(f"{folders[0]}: one folder; say --last N or --best N, or name several folders")
    return (None, 0) if last is None else ("last", last)


def _named(folder: Path) -> Path:
    """A path to which a suffix can be added."""
    return folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))
