"""CPU cores: how many there are for this process, and how many threads to compute with."""

from __future__ import annotations

import os


def own_cores() -> int:
    """How many cores this process may use, where the system tells; else how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """How many of them others have left idle in the last minute; all where they left half or more."""
    cores = own_cores()
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not everywhere
        return cores
    return cores if load <= cores / 2 else max(1, int(cores - load))


def use_threads(requested: int | None) -> str:
    """Compute with so many CPU threads, or with as many as cores are free; a sentence where those are fewer.

    Threads wait for each other: where one of two has no core of its own, both are slower than one alone.
    OMP_NUM_THREADS counts as a wish.
    """
    import torch

    usual = torch.get_num_threads()
    if requested is None and "OMP_NUM_THREADS" in os.environ:
        return ""
    threads = requested or min(usual, free_cores())
    torch.set_num_threads(threads)
    if requested is not None or threads == usual:
        return ""
    number = "1 CPU thread" if threads == 1 else f"{threads} CPU threads"
    return f"other programs keep cores busy, so this one uses {number}; --threads {usual} would use all"
