"""One of several processes: it trains one model after the other with them, in float64.

It is given a list of trainings: config, settings, folder, and what goes wrong in which rank.
"""

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
from poison import poison

from caesura.config import load_config
from caesura.errors import Interrupted
from caesura.training import loop
from caesura.training.checkpoint import Progress
from caesura.training.run import Silent
from caesura.training.world import launched

TINY = "training.batch_size=10", "training.keep_last=1", "training.learning_rate=1e-3"


class Signalling(Silent):
    """A reporter that sends its own process a signal after an update."""

    def __init__(self, number: int, update: int | None) -> None:
        self.number, self.at = number, update

    def update(self, progress: Progress, loss: float | None) -> None:
        if progress.update == self.at:
            os.kill(os.getpid(), self.number)


def trained(job: dict[str, Any], world: Any = None) -> None:
    """Train as a job says: `poisoned`, `stopped` and `killed` have the update of a rank, by its number."""
    rank = str(world.rank if world else 0)
    number = signal.SIGKILL if rank in job.get("killed", {}) else signal.SIGTERM
    update = {**job.get("stopped", {}), **job.get("killed", {})}.get(rank)
    with ExitStack() as opened:
        if rank in job.get("poisoned", {}):
            opened.enter_context(poison(job["poisoned"][rank]))
        opened.enter_context(suppress(Interrupted))
        config = load_config(Path(job["config"]), (*TINY, *job["settings"]))
        loop.train(config, Path(job["folder"]), Signalling(number, update), world=world)


def main(jobs: list[dict[str, Any]]) -> None:
    torch.set_default_dtype(torch.float64)
    loop.LOG_EVERY = 4
    with launched() as world:
        for job in jobs:
            trained(job, world)
