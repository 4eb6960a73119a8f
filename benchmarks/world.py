"""What it costs to be one of several processes: updates alone, and updates that exchange numbers.

    python benchmarks/world.py [--rounds 20]

The same model is trained twice, in turns: alone, as without torchrun, and as the only one of "several"
processes, whose gradients, counts and decisions go through NCCL (on a CPU gloo) and back to itself. What
other GPUs would add is not in it. An update is that of the training loop. On a CPU, CPU time counts.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import time
from types import SimpleNamespace
from typing import Any, cast

import torch
from systems import SYSTEMS, System

from caesura.training import loop
from caesura.training.feed import Planned
from caesura.training.interrupt import Interrupt
from caesura.training.optimizer import build_adam
from caesura.training.run import Run
from caesura.training.step import SUMS, Step
from caesura.training.world import ADDRESS, PORT, RANK, SIZE, Launched, World


class Training:
    """Updates of a fresh model on one batch."""

    def __init__(self, system: System, world: World, device: str, size: int, length: int) -> None:
        model = system.model("bfloat16" if device == "cuda" else "float32", device)
        batch, settings = system.batch(size, length), model.config.training
        self.planned, self.interrupt, self.device = Planned(batch.indices, [batch]), Interrupt(None), device
        self.step = Step(model, settings, shared=not world.alone)
        facts: dict[str, Any] = {
            "config": model.config,
            "model": model,
            "optimizer": build_adam(model, settings),
            "progress": SimpleNamespace(update=0, learning_rate=1e-5),
            "guard": SimpleNamespace(note=lambda rows, wrong: None),
            "window": torch.zeros(len(SUMS) + len(model.counted) + 2, dtype=torch.float64, device=device),
            "world": world,
        }
        self.run = cast(Run, SimpleNamespace(**facts))

    def milliseconds(self, updates: int) -> float:
        """Of one update, as a mean over some."""
        began = self._now()
        for _ in range(updates):
            self.interrupt.agreed(self.run.world)
            loop._update(self.run, self.step, self.planned)
            self.run.progress.update += 1
        return 1000 * (self._now() - began) / updates

    def _now(self) -> float:
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def only_one() -> Launched:
    """The only one of several processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {RANK: "0", SIZE: "1", ADDRESS: "127.0.0.1", PORT: str(port)}
    return Launched()


def calls(world: World) -> float:
    """Microseconds of all that an update asks of the world of a process alone."""
    interrupt, count, sums = Interrupt(None), 10_000, torch.zeros(())
    began = time.process_time()
    for update in range(count):
        interrupt.agreed(world)
        world.seed(1, update)
        world.sum(None, sums)
    return 1e6 * (time.process_time() - began) / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    given, alone, exchanging = parser.parse_args(), World(), only_one()  # before anything looks for a GPU
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, length, updates = (128, 100, 20) if device == "cuda" else (8, 50, 1)
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if device == "cuda" else "a CPU, one thread"
    print(f"{where}, torch {torch.__version__}; {size} sentences of {length} characters")
    print(f"{'':27}{'alone, ms':>10}{'calls, µs':>11}{'exchanging, ms':>16}{'ratio':>8}  quartiles of pairs")
    for system in SYSTEMS[:2]:
        pair = [Training(system, world, device, size, length) for world in (alone, exchanging)]
        for training in pair:
            training.milliseconds(5)  # compiles and captures
        times = [[training.milliseconds(updates) for training in pair] for _ in range(given.rounds)]
        one, other = (statistics.median(column) for column in zip(*times, strict=True))
        low, middle, high = statistics.quantiles((b / a for a, b in times), n=4)
        row = f"{one:10.2f}{calls(alone):11.2f}{other:16.2f}{middle:8.3f}  {low:.3f} to {high:.3f}"
        print(f"{system.name:27}{row}", flush=True)
    exchanging.close()


if __name__ == "__main__":
    main()
