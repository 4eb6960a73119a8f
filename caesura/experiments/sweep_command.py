"""The commands that train several models; torch is imported inside, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from caesura.errors import InputError
from caesura.options import parse_duration, parse_seeds

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting of all runs")
]
Budget = Annotated[str | None, typer.Option("--budget", help="training time a run, over all calls: 90s, 9m")]
Parallel = Annotated[int, typer.Option("--parallel", min=1, help="runs side by side")]
TimeLimit = Annotated[
    str | None, typer.Option("--time-limit", help="stop cleanly after this long: 90s, 9m, 2h")
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", help="train each with these, such as 1,2,3; else the config's")
]


def sweep(
    files: Annotated[
        list[Path], typer.Argument(metavar="CONFIG", help="a YAML file; with --draw: one or more sweep.json")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="the folder; runs/sweep-NAME by default")] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over", metavar="KEY=V1,V2", help="values of a setting; several --over are crossed into a grid"
        ),
    ] = None,
    listed: Annotated[
        Path | None, typer.Option("--list", help="a YAML list of {settings: {KEY: VALUE}} in place of a grid")
    ] = None,
    seeds: Seeds = None,
    beside: Annotated[
        list[Path] | None, typer.Option("--beside", metavar="CONFIG", help="a baseline; may be repeated")
    ] = None,
    settings: Settings = None,
    gold: Annotated[
        str | None, typer.Option("--gold", help="gold segmentation: words, morphemes, compounds")
    ] = None,
    test: Annotated[
        bool, typer.Option("--test/--no-test", help="score each on the config's test set")
    ] = True,
    search: Annotated[
        int | None,
        typer.Option(
            "--search",
            min=1,
            metavar="N",
            help="N trials drawn by Optuna from --over KEY=LOW:HIGH[:log] (1:5 whole numbers, 1.0:5 any)",
        ),
    ] = None,
    budget: Budget = None,
    parallel: Parallel = 1,
    time_limit: TimeLimit = None,
    draw: Annotated[bool, typer.Option("--draw", help="only draw tables and figures again")] = False,
) -> None:
    """Train a grid of settings side by side; one table, one JSON and figures. The same command goes on."""
    from caesura.config import load_config
    from caesura.experiments.fleet import Limits
    from caesura.experiments.sweep import Request, redraw, run_sweep
    from caesura.terminal import FleetDisplay

    if draw:
        if out is None:
            raise InputError("--draw: say where to with --out")
        for path in redraw(files, out):
            print(path)
        return
    if len(files) > 1:
        raise InputError(f"{files[1]}: one config is swept; those to stand beside it are given by --beside")
    limits = Limits(
        None if budget is None else parse_duration(budget, "--budget"),
        parallel,
        None if time_limit is None else parse_duration(time_limit),
    )
    folder = out or Path("runs") / f"sweep-{load_config(files[0], settings or ()).name}"
    request = Request(
        files[0], folder, tuple(over or ()), listed, tuple(settings or ()),
        None if seeds is None else parse_seeds(seeds), tuple(beside or ()), gold, test, search, limits,
    )  # fmt: skip
    with FleetDisplay() as display:
        good = run_sweep(request, display)
    print((folder / "table.md").read_text(encoding="utf-8"))
    print(f"tables, figures and sweep.json: {folder}")
    if not good:
        raise typer.Exit(1)
