"""The commands that train several models: demo, reproduce, sweep."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from caesura.cli.options import Gold, all_settings, parse_duration, parse_seeds
from caesura.errors import InputError, Interrupted
from caesura.streams import outlive_readers, print_row
from caesura.visible import one_line

if TYPE_CHECKING:
    from caesura.experiments.fleet import Limits
    from caesura.experiments.slurm import Cluster

Data = Annotated[Path | None, typer.Option("--data", help="take train.de, dev.en.xz, ... from this folder")]
Budget = Annotated[
    str | None,
    typer.Option("--budget", help="training time of each run, without tests: 90s, 4m; else until it ends"),
]
Parallel = Annotated[int, typer.Option("--parallel", min=1, help="trainings side by side")]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time-limit", help="stop all after this long, with their state saved: 90s, 9m, 2h"),
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole",
        help="with --time-limit, if the machine will be taken away: start no training that would not end in "
        "time, measures included, judged by the updates so far; the first ones start in any case",
    ),
]
SettingOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="change a setting of all runs; repeatable")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"] | None,
    typer.Option("--device", help="short for --set training.device=..."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=4096, help="short for --set training.threads=...")
]
Launcher = Annotated[
    Literal["local", "slurm"],
    typer.Option(
        "--launcher",
        help="where trainings run: here, or as SLURM jobs. Jobs go on after Ctrl-C, and the same command "
        "looks after them again; --time-limit ends them, saved",
    ),
]
Partition = Annotated[str | None, typer.Option("--partition", help="SLURM: the partition of the jobs")]
Gpus = Annotated[int | None, typer.Option("--gpus-per-task", min=1, help="SLURM: GPUs per job")]
AtOnce = Annotated[
    int | None, typer.Option("--array-parallelism", min=1, help="SLURM: jobs at once; 20 by default")
]
Slurm = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="KEY=VALUE",
        help="any option of sbatch: time=4:00:00, cpus-per-task=8, mem=32G, account=A; repeatable. A job "
        "whose time is over goes on in another one",
    ),
]

Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="KEY=V1,V2",
        help="values of a setting; several are crossed into a grid; with --draw: only runs with these",
    ),
]
Listed = Annotated[
    Path | None, typer.Option("--list", help="a YAML list of {settings: {KEY: VALUE}} in place of a grid")
]
Search = Annotated[
    int | None,
    typer.Option(
        "--search",
        min=1,
        metavar="N",
        help="N trials drawn by Optuna from --over KEY=LOW:HIGH[:log] (1:5 whole numbers, 1.0:5 any)",
    ),
]


def demo(
    out: Annotated[Path, typer.Option("--out", help="where models, plots and corpus go")] = Path("runs/demo"),
    seeds: Annotated[str, typer.Option("--seeds", help="seeds to train with, such as 1,2,3")] = "1",
) -> None:
    """Train four ways to cut German numbers and show the cuts. This takes a few minutes."""
    from caesura.experiments.demo import run_demo

    outlive_readers()
    if not run_demo(out, parse_seeds(seeds)):
        raise typer.Exit(1)


def reproduce(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="iwslt14, depth, zh-en, ja-en, fr-en, multi30k, reading, answer, or a folder",
        ),
    ],
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="for models and tables; runs/reproduce-RECIPE by default")
    ] = None,
    budget: Budget = None,
    parallel: Parallel = 1,
    time_limit: TimeLimit = None,
    whole: Whole = False,
    launcher: Launcher = "local",
    partition: Partition = None,
    gpus_per_task: Gpus = None,
    array_parallelism: AtOnce = None,
    slurm: Slurm = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="NAME,...", help="only these tables, rows or TABLE-ROW")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="seeds in place of the recipe's, such as 1,2,3")
    ] = None,
    settings: SettingOptions = None,
    device: Device = None,
    threads: Threads = None,
    gold: Gold = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="the report of all systems")] = True,
    draw: Annotated[
        bool, typer.Option("--draw", help="only draw the tables, figures and appendix again")
    ] = False,
) -> None:
    """Train a recipe's systems; show them beside the paper's. The same command continues."""
    from caesura.experiments.recipe import Chosen, find_recipe
    from caesura.experiments.reproduce import redraw
    from caesura.experiments.reproduce import reproduce as run

    outlive_readers()
    if draw:
        if out is None:
            raise InputError("--draw: name the folder of the results with --out")
        for path in redraw(recipe, out):
            print_row(str(path))
        return
    cluster = _cluster(launcher, partition, gpus_per_task, array_parallelism, slurm, parallel)
    folder = out or Path("runs") / f"reproduce-{find_recipe(recipe).resolve().parent.name}"
    limits = _limits(budget, parallel, (time_limit, whole), cluster, folder)
    chosen = Chosen(
        folder,
        data,
        tuple(name.strip() for name in (only or "").split(",") if name.strip()),
        () if seeds is None else parse_seeds(seeds),
        all_settings(settings, {"training.device": device, "training.threads": threads}),
    )
    if not run(recipe, chosen, limits, report, gold):
        raise typer.Exit(1)


def sweep(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="CONFIG", help="a YAML file or a recipe; with --draw: one or more sweep.json"),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="the folder; runs/sweep-NAME by default")] = None,
    over: Over = None,
    listed: Listed = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="seeds for each run, such as 1,2,3; else the config's")
    ] = None,
    beside: Annotated[
        list[Path] | None, typer.Option("--beside", metavar="CONFIG", help="a baseline; may be repeated")
    ] = None,
    settings: SettingOptions = None,
    data: Data = None,
    device: Device = None,
    threads: Threads = None,
    gold: Gold = None,
    test: Annotated[
        bool,
        typer.Option("--test/--no-test", help="score each run on the config's test set; --no-test: quicker"),
    ] = True,
    moved: Annotated[
        int,
        typer.Option("--moved", min=0, help="sentences whose cuts are moved: fidelity and flips"),
    ] = 0,
    search: Search = None,
    budget: Budget = None,
    parallel: Parallel = 1,
    time_limit: TimeLimit = None,
    whole: Whole = False,
    launcher: Launcher = "local",
    partition: Partition = None,
    gpus_per_task: Gpus = None,
    array_parallelism: AtOnce = None,
    slurm: Slurm = None,
    draw: Annotated[bool, typer.Option("--draw", help="only draw tables and figures again")] = False,
) -> None:
    """Train a grid of settings; write a table, a JSON and figures. The same command continues."""
    from caesura.config import load_config
    from caesura.config.cookbook import find
    from caesura.experiments.sweep import Request, redraw, run_sweep
    from caesura.experiments.sweep_results import SWEEP, distinguished, load, refuse_sweep
    from caesura.experiments.sweep_tables import brief_table
    from caesura.terminal import FleetDisplay, say, table

    outlive_readers()
    if draw:
        if out is None:
            raise InputError("--draw: say where to with --out")
        for path in redraw(files, out, over or ()):
            print_row(str(path))
        return
    refuse_sweep(files[0])
    if len(files) > 1:
        raise InputError(f"{files[1]}: one config is swept; those to stand beside it are given by --beside")
    cluster = _cluster(launcher, partition, gpus_per_task, array_parallelism, slurm, parallel)
    common = all_settings(settings, {"training.device": device, "training.threads": threads})
    config, *baselines = [find(str(file), say) for file in (files[0], *(beside or ()))]
    rows = None if listed is None else find(str(listed), say)
    folder = out or Path("runs") / f"sweep-{load_config(config, common).name}"
    limits = _limits(budget, parallel, (time_limit, whole), cluster, folder)
    chosen = None if seeds is None else parse_seeds(seeds)
    request = Request(
        config, common=common, seeds=chosen, beside=tuple(baselines), data=data, out=folder,
        over=tuple(over or ()), listed=rows, gold=gold, test=test, moved=moved, trials=search,
        limits=limits,
    )  # fmt: skip
    try:
        with FleetDisplay() as display:
            good = run_sweep(request, display)
    except Interrupted:
        written = f"tables, figures and sweep.json so far: {one_line(folder)}"
        say(f"stopped; {written}; the same command goes on from here")
        raise
    table(*brief_table(distinguished(load(folder / SWEEP))))
    say(f"tables, figures and sweep.json: {one_line(folder)}")
    if not good:
        raise typer.Exit(1)


def _limits(
    budget: str | None,
    parallel: int,
    time_limit: tuple[str | None, bool],
    cluster: Cluster | None,
    folder: Path,
) -> Limits:
    from caesura.experiments.fleet import Limits
    from caesura.experiments.slurm import Jobs

    limit, whole = time_limit
    times = parse_duration(budget, "--budget"), parse_duration(limit)
    if whole and (limit is None or cluster is not None):
        raise InputError("--whole: only with --time-limit, and not with --launcher slurm")
    if cluster is None:
        return Limits(times[0], parallel, times[1], whole=whole)
    return Limits(times[0], cluster.parallel, times[1], partial(Jobs, cluster, folder))


def _cluster(
    launcher: str,
    partition: str | None,
    gpus_per_task: int | None,
    array_parallelism: int | None,
    slurm: list[str] | None,
    parallel: int,
) -> Cluster | None:
    """The cluster's options; None if trainings run here."""
    from caesura.experiments.slurm import PARALLEL, Cluster, check_slurm, parse_options

    given = {
        "--partition": partition,
        "--gpus-per-task": gpus_per_task,
        "--array-parallelism": array_parallelism,
        "--slurm": slurm,
    }
    if launcher == "local":
        if options := [option for option, value in given.items() if value]:
            raise InputError(f"{options[0]}: only with --launcher slurm")
        return None
    if parallel != 1:
        raise InputError("--parallel: with --launcher slurm it is --array-parallelism")
    others = parse_options(slurm or ())
    check_slurm()
    return Cluster(partition, gpus_per_task, array_parallelism or PARALLEL, others)
