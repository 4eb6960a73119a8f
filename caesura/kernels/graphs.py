"""Work of many short kernels as CUDA graphs, one per shape, in one pool of memory that they use in turn."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar

import torch

VARIABLE = "CAESURA_GRAPHS"
MOST = 256  # graphs per owner
# Graphs are dropped if more than SHARE of the GPU's memory is taken, and more than PART of that by them.
SHARE, PART = 0.6, 0.1

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
        self._graphs: OrderedDict[Hashable, tuple[torch.cuda.CUDAGraph, Played[Any]]] = OrderedDict()
        self._seen: set[Hashable] = set()
        self._numbers = count()
        self.side = Side(device)  # after the graphs, which use its memory

    def __len__(self) -> int:
        return len(self._graphs)

    def play(self, key: Hashable | None, function: Callable[[], Result]) -> Played[Result]:
        """The function's results, in order with the current stream's work; without a key, never captured.

        Inside a function that is being played, and while another thread plays, it runs as it is.
        """
        if not _PLAYING.acquire(blocking=False):
            return Played(function(), None)
        try:
            if key not in self._graphs:
                with self.side.current():
                    return self._first(key, function)
            graph, played = self._graphs[key]
            self._graphs.move_to_end(key)
            graph.replay()
            return played
        finally:
            _PLAYING.release()

    def _first(self, key: Hashable | None, function: Callable[[], Result]) -> Played[Result]:
        """The result if there is no graph yet: from a plain run, or from a graph that is made now."""
        if key is None or key not in self._seen:
            # Compiles kernels and makes libraries ready, which a capture must not.
            self._seen.add(key)
            return Played(self.side.run(function), None)
        if self.side.full():
            self.forget()
        graph, result = self.side.record(function)
        played = Played(result, next(self._numbers))
        graph.replay()
        self._graphs[key] = graph, played
        if len(self._graphs) > MOST:
            self.side.wait()
            self._graphs.popitem(last=False)
        return played

    def forget(self) -> None:
        """Drop all graphs and their memory."""
        self.side.wait()
        self._graphs.clear()
        self._seen.clear()
        self.side.empty()


class Side:
    """A stream of a GPU and a pool of memory for captured work and for its first runs.

    All shapes share one pool, so that one can use memory that another no longer needs.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.memory = torch.cuda.get_device_properties(device).total_memory
        self._stream = _stream(device)
        self._pool = torch.cuda.MemPool()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, work on the device runs on this stream, in order with the work before and after."""
        here = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(here)
        torch.clear_autocast_cache()  # copies from outside would not follow the weights
        try:
            # In this thread: a pool belongs to a thread, and gradients would be allocated in another.
            with torch.cuda.stream(self._stream), torch.autograd.set_multithreading_enabled(False):
                yield
        finally:
            torch.clear_autocast_cache()  # copies from inside are in the pool
        here.wait_stream(self._stream)

    def run(self, function: Callable[[], Result]) -> Result:
        """The results, in the pool's memory."""
        with torch.cuda.use_mem_pool(self._pool):
            return function()

    def record(self, function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        """Like torch.cuda.graph, but without collecting garbage and emptying the cache for every shape."""
        graph = torch.cuda.CUDAGraph()
        # A thread that pins memory meanwhile must not break the capture.
        graph.capture_begin(self._pool.id, capture_error_mode="thread_local")  # type: ignore[arg-type]
        try:
            result = function()
        except RuntimeError as problem:
            problem.add_note(f"This happened in the capture of a CUDA graph; {VARIABLE}=0 does without them.")
            raise
        finally:
            graph.capture_end()
        return graph, result

    def full(self) -> bool:
        """Whether memory is short, and the pool holds much of it."""
        reserved = torch.cuda.memory_reserved(self.device)
        if reserved <= SHARE * self.memory:
            return False
        return sum(segment["total_size"] for segment in self._pool.snapshot()) > PART * reserved

    def wait(self) -> None:
        """Wait until the device has done all its work."""
        torch.cuda.synchronize(self.device)

    def empty(self) -> None:
        """Give back the pool's memory."""
        self._pool = torch.cuda.MemPool()
        torch.cuda.empty_cache()


_PLAYING = Lock()  # one at a time: another thread's work on the stream would be captured, too


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all graphs, so that cuBLAS allocates its workspace once."""
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for dtype in (torch.bfloat16, torch.float32):
            torch.mm(*[torch.ones(64, 64, device=device, dtype=dtype)] * 2)
    return stream
