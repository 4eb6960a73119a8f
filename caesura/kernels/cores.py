"""CPU cores: how many there are for this process, and how many threads to compute with."""

from __future__ import annotations

import os


def own_cores() -> int:
    """The number of cores that this process may use, if the system tells, else of all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """The number of cores that others left idle in the last minute; all if they left half or more."""
    cores = own_cores()
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not everywhere
        return cores
    return cores if load <= cores / 2 else max(1, int(cores - load))


def use_threads(requested: int | None) -> str:
    """Compute with the requested number of CPU threads, or one per free core; say so if those are fewer.

    Threads wait for each other: two threads on one free core are slower than one thread.
    OMP_NUM_THREADS counts as a request.
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
