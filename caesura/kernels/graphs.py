"""Loops of many short kernels as CUDA graphs, in one piece of memory that all shapes share.

A graph holds the addresses that it was captured with. Were each shape to keep its own buffers, memory would
grow with every new shape; here all buffers of one pass lie in one arena, as large as the largest pass needs,
and only the pass that holds the arena may use it.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import cache
from math import prod

import torch
from torch import Tensor

VARIABLE = "CAESURA_GRAPHS"
SHAPES = 64  # whose graphs are kept
LARGEST = 4 << 30  # bytes of an arena; a pass that needs more runs without
ALIGNMENT = 512

Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]


class Pass:
    """The buffers of one shape and the graphs of its loops."""

    def __init__(self, buffers: dict[str, Tensor]) -> None:
        self.buffers = buffers
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}

    def play(self, name: Hashable, loop: Callable[[], None]) -> None:
        """Run the loop as it is the first time, which compiles and warms up, and as a graph from then on."""
        if name not in self._graphs:
            self._graphs[name] = None
            loop()
            return
        graph = self._graphs[name]
        if graph is None:
            graph = self._graphs[name] = _capture(loop)
        graph.replay()


class Ticket:
    """Held by whoever may still need what is in the arena."""

    done = False


class Arena:
    """Memory that passes of different shapes use in turn."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        self._passes: OrderedDict[Hashable, Pass] = OrderedDict()
        self._stream = torch.cuda.current_stream(device)
        self._holder: weakref.ref[Ticket] | None = None

    def enter(self, key: Hashable, layout: Layout) -> tuple[Pass, Ticket] | None:
        """The buffers for a pass, and the ticket that keeps them from others; None if they are not free."""
        holder = self._holder() if self._holder else None
        if holder is not None and not holder.done:
            return None
        stream = torch.cuda.current_stream(self.device)
        if stream != self._stream or torch.cuda.is_current_stream_capturing():
            return None
        if key not in self._passes and not self._add(key, layout):
            return None
        self._passes.move_to_end(key)
        ticket = Ticket()
        self._holder = weakref.ref(ticket)
        return self._passes[key], ticket

    # What is allocated in inference mode could not be written to in training.
    @torch.inference_mode(False)
    def _add(self, key: Hashable, layout: Layout) -> bool:
        sizes = [_bytes(*entry) for entry in layout.values()]
        if sum(sizes) > LARGEST:
            return False
        if sum(sizes) > len(self._memory):
            self._forget(len(self._passes))
            # A quarter more than before, lest a corpus sorted by length should capture every shape anew.
            size = max(sum(sizes), min(LARGEST, len(self._memory) * 5 // 4))
            self._memory = self._memory.new_empty(0)  # the old one is free before the new one is asked for
            self._memory = self._memory.new_empty(size)
        pieces = self._memory[: sum(sizes)].split(sizes)
        self._passes[key] = Pass(
            {name: _shaped(piece, *layout[name]) for name, piece in zip(layout, pieces, strict=True)}
        )
        self._forget(len(self._passes) - SHAPES)
        return True

    def check(self, ticket: Ticket) -> None:
        """Raise if another pass has overwritten what this ticket was for."""
        if self._holder is None or self._holder() is not ticket:
            raise RuntimeError(
                "the buffers of this pass were used again after its gradient was taken once; "
                f"set {VARIABLE}=0 to take it twice"
            )

    def _forget(self, count: int) -> None:
        if count > 0:
            torch.cuda.synchronize(self.device)
            for _ in range(count):
                self._passes.popitem(last=False)


_arenas: dict[torch.device, Arena] = {}


def arena(device: torch.device) -> Arena | None:
    """The device's arena; None where there are no graphs, or CAESURA_GRAPHS=0 does not want them."""
    if device.type != "cuda" or os.environ.get(VARIABLE) == "0":
        return None
    if device not in _arenas:
        _arenas[device] = Arena(device)
    return _arenas[device]


def release() -> None:
    """Give the memory and the graphs of all arenas back; the next pass starts anew."""
    _arenas.clear()


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def _shaped(piece: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return piece[: prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _capture(loop: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """What torch.cuda.graph does, less its collecting garbage and emptying the cache for every new shape."""
    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    side = _side_stream(here.device_index)
    side.wait_stream(here)
    with torch.cuda.stream(side):
        # A thread that pins memory meanwhile must not break the capture.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            loop()
        finally:
            graph.capture_end()
    here.wait_stream(side)
    return graph


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One stream for all captures, on which cuBLAS then has its workspace once."""
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        for dtype in (torch.bfloat16, torch.float32):
            torch.mm(*[torch.ones(64, 64, device="cuda", dtype=dtype)] * 2)
    return side
