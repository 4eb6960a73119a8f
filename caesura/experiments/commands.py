"""The commands of experiments, as the command line has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from caesura.options import parse_duration, parse_seeds


def reproduce(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="iwslt14, multi30k, or a folder")],
    data: Annotated[
        Path | None, typer.Option("--data", help="take train.de, dev.en.xz, ... from this folder")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="for models and tables; runs/reproduce-RECIPE by default")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="training time of a system: 90s, 4m; else to its own end")
    ] = None,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="trainings side by side")] = 1,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="stop all cleanly after this long: 90s, 9m, 2h")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME,...", help="tables, rows or TABLE-ROW alone")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="in place of the recipe's, such as 1,2,3")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting of all; repeatable")
    ] = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"] | None,
        typer.Option("--device", help="short for --set training.device=..."),
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="the report of all systems")] = True,
) -> None:
    """Train the systems of a recipe, and write the paper's tables beside ours; run again, it goes on."""
    from caesura.experiments.fleet import Limits
    from caesura.experiments.recipe import Chosen, find_recipe
    from caesura.experiments.reproduce import reproduce as run

    limits = Limits(
        None if budget is None else parse_duration(budget, "--budget"),
        parallel,
        None if time_limit is None else parse_duration(time_limit),
    )
    chosen = Chosen(
        out or Path("runs") / f"reproduce-{find_recipe(recipe).resolve().parent.name}",
        data,
        tuple(filter(None, (only or "").split(","))),
        () if seeds is None else parse_seeds(seeds),
        (*(settings or ()), *([f"training.device={device}"] if device else ())),
    )
    if not run(recipe, chosen, limits, report):
        raise typer.Exit(1)
