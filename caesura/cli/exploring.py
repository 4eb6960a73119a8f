"""The command that shows models in a browser: explore."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from caesura.cli.options import Testing, Threads
from caesura.errors import missing_extra
from caesura.streams import refuse_closed_output


def explore(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="model folders, trained or in training")
    ],
    host: Annotated[
        str, typer.Option("--host", help="address to listen on; if others can reach it, the link has a token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port")] = 0,
    browse: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
    threads: Threads = None,
    testing: Testing = None,
) -> None:
    """Move cuts in a browser and watch the translation change. Prints a link; Ctrl-C stops it."""
    refuse_closed_output()
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise missing_extra("explore", "explore")
    import torch

    from caesura.explorer.serve import Address, serve
    from caesura.kernels.cores import own_cores

    torch.set_num_threads(1)  # a step of one sentence is too small to share; requests run side by side
    workers = threads or max(2, min(4, own_cores()))
    serve(models, Address(host, port), workers, testing or (), browse)
