"""How fast models are: medians of repeats with their spread, or the reason why no speed can be given."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from caesura.kernels.cores import own_cores

SENTENCES = 64  # timed per text
REPEATS, FEWEST = 5, 3
PATIENCE = 20.0  # seconds, after which FEWEST repeats are enough
APART = 1.5  # no speed is shown where the slowest repeat takes longer than this times the fastest
OWN = 0.9  # share of the time for which this process must have a core to itself


@dataclass(frozen=True)
class Speed:
    """Sentences per second."""

    median: float
    spread: float  # half of the range
    repeats: int
    sentences: int
    problem: str = ""  # why it should not be shown


def speeds(works: Sequence[Callable[[], object]], sentences: int, device: str) -> list[Speed]:
    """Time all works in turn, on as many sentences each, so that a slow minute slows them all."""
    times: list[list[tuple[float, float]]] = [[] for _ in works]
    began = time.perf_counter()
    for turn in range(REPEATS):
        if turn >= FEWEST and time.perf_counter() - began > PATIENCE:
            break
        for work, each in zip(works, times, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            each.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [_speed(each, sentences, device) for each in times]


def _speed(times: Sequence[tuple[float, float]], sentences: int, device: str) -> Speed:
    walls = [max(wall, 1e-9) for wall, _ in times]
    rates = [sentences / wall for wall in walls]
    problem = ""
    waited = device == "cpu" and sum(cpu for _, cpu in times) < OWN * sum(walls)
    if waited or _crowded():
        problem = "other programs kept the processor busy"
    elif max(walls) > APART * min(walls):
        problem = f"the slowest repeat took {max(walls) / min(walls):.1f} times as long as the fastest"
    return Speed(median(rates), (max(rates) - min(rates)) / 2, len(rates), sentences, problem)


def _crowded() -> bool:
    """Whether more programs than cores wanted to run in the last minute, this one left out."""
    try:
        return os.getloadavg()[0] > own_cores() + 1
    except (AttributeError, OSError):  # not everywhere
        return False
