"""Milliseconds of work on a GPU, as it is called and as a CUDA graph plays it."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


def milliseconds(step: Callable[[], object], rounds: int, warm: int = 4) -> float:
    """Median of the time from call to result; the first calls compile and capture."""
    times = []
    for turn in range(warm + rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if turn >= warm:
            times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def replayed(step: Callable[[], object], rounds: int) -> float:
    """The same from a CUDA graph, as training plays it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()
    return milliseconds(graph.replay, rounds)


@contextmanager
def environment(**settings: str) -> Iterator[None]:
    """These variables, for a while."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def fresh() -> None:
    """Forget what the last row left, so that the next one's memory is its own."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
