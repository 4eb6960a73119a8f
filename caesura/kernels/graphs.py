"""Work of many short kernels as CUDA graphs, one per shape, in one pool of memory that they use in turn."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

import torch

VARIABLE = "CAESURA_GRAPHS"
MOST = 128  # graphs kept
SHARE = 0.6  # of the GPU's memory, beyond which all of them are forgotten

Result = TypeVar("Result")


def wanted(device: torch.device) -> bool:
    """Whether work on this device is captured: on a GPU, unless CAESURA_GRAPHS=0."""
    return device.type == "cuda" and os.environ.get(VARIABLE) != "0"


@dataclass(frozen=True)
class Played(Generic[Result]):
    """The result of a function; from a graph, the same tensors every time, with other contents."""

    result: Result
    number: int | None  # of the graph; None: there is none yet


class Graphs:
    """Runs a function as it is when a shape first comes, captures it when it comes again, replays it then.

    A graph remembers addresses, not contents: it may read tensors that outlive it, such as weights and
    input buffers, and its results are valid until another graph is played. One that reads the results of
    another has that one's number in its key, so that it is not played once those are gone.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._graphs: OrderedDict[Hashable, tuple[torch.cuda.CUDAGraph, Played[Any]]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._numbers = count()
        # One stream and one pool for all, so that the next shape may use memory that one no longer needs.
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.MemPool()

    def __len__(self) -> int:
        return len(self._graphs)

    def play(self, key: Hashable | None, function: Callable[[], Result]) -> Played[Result]:
        """The function's results, in order with the current stream's work; without a key, never captured."""
        here = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(here)
        # In this thread: a pool belongs to a thread, and gradients would be allocated in another.
        with torch.cuda.stream(self._stream), torch.autograd.set_multithreading_enabled(False):
            played = self._play(key, function)
        here.wait_stream(self._stream)
        return played

    def _play(self, key: Hashable | None, function: Callable[[], Result]) -> Played[Result]:
        if key in self._graphs:
            graph, played = self._graphs[key]
            self._graphs.move_to_end(key)
            graph.replay()
            return played
        if key is None or key not in self._seen:
            # Compiles kernels and makes libraries ready, which a capture must not.
            self._seen.add(key)
            with torch.cuda.use_mem_pool(self._pool):
                return Played(function(), None)
        total = torch.cuda.get_device_properties(self.device).total_memory
        if torch.cuda.memory_reserved(self.device) > SHARE * total:
            self.forget()
        graph = torch.cuda.CUDAGraph()
        # A thread that pins memory meanwhile must not break the capture.
        graph.capture_begin(self._pool.id, capture_error_mode="thread_local")  # type: ignore[arg-type]
        try:
            played = Played(function(), next(self._numbers))
        except RuntimeError as problem:
            problem.add_note(f"This happened in the capture of a CUDA graph; {VARIABLE}=0 does without them.")
            raise
        finally:
            graph.capture_end()
        graph.replay()
        self._graphs[key] = graph, played
        if len(self._graphs) > MOST:
            torch.cuda.synchronize(self.device)
            self._graphs.popitem(last=False)
        return played

    def forget(self) -> None:
        """Give up all graphs and their memory."""
        torch.cuda.synchronize(self.device)
        self._graphs.clear()
        self._seen.clear()
        self._pool = torch.cuda.MemPool()
        torch.cuda.empty_cache()
