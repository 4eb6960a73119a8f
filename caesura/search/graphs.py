"""Pieces of a search as CUDA graphs, over buffers that all shapes share.

A graph holds the addresses that it was captured with: of the parameters, which training changes in place, and
of buffers, into which a piece's arguments are copied where they do not lie there already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from caesura.kernels import pick
from caesura.kernels.graphs import VARIABLE

SHAPES = 256  # whose graphs are kept
LARGEST = 4 << 30  # bytes of the buffers; what needs more runs without graphs

Piece = Callable[..., tuple[Any, ...]]  # returns its arguments as it leaves them, and whatever else
Play = Callable[[Hashable, Piece, tuple[Any, ...]], tuple[Any, ...]]  # name, piece, arguments


@contextmanager
def borrow(decoder: nn.Module, allowed: bool) -> Iterator[Play]:
    """A function that plays pieces of a search, from the decoder's graphs unless these are in use."""
    graphs = _graphs.setdefault(decoder, SearchGraphs()) if allowed else None
    if graphs is None or not graphs.lock.acquire(blocking=False):
        yield lambda _, piece, arguments: piece(*arguments)
        return
    try:
        surroundings = _surroundings(decoder)
        yield lambda name, piece, arguments: graphs.play((name, surroundings), piece, arguments)
    finally:
        graphs.lock.release()


def forget(decoder: nn.Module, device: torch.device) -> None:
    """Give back the memory of a decoder's graphs, and what else the allocator keeps."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        _graphs.pop(decoder, None)
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Captured:
    """A graph, the buffers that it reads, and what it leaves in them or in memory of its own."""

    graph: torch.cuda.CUDAGraph
    buffers: list[Tensor]
    results: tuple[Any, ...]


class SearchGraphs:
    """The graphs of one decoder."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._memory: list[Tensor] = []  # one piece for each tensor of the arguments, whatever its shape
        self._captured: OrderedDict[Hashable, Captured | None] = OrderedDict()  # None: seen, not captured

    def play(self, name: Hashable, piece: Piece, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the piece as it is the first time, which compiles and warms up, and as a graph from then on.

        Its result may be overwritten when the next piece is played.
        """
        key, leaves = (name, _outline(arguments)), _leaves(arguments)
        if key not in self._captured or not self._make_room(leaves):
            self._captured.setdefault(key)
            self._forget(len(self._captured) - SHAPES)
            return piece(*arguments)
        self._captured.move_to_end(key)
        captured = self._captured[key]
        buffers = captured.buffers if captured else self._buffers(leaves)
        self._fill(buffers, leaves)
        if captured is None:
            captured = self._captured[key] = self._capture(piece, _rebuilt(arguments, iter(buffers)), buffers)
        captured.graph.replay()
        tensors = [leaf if self._holds(leaf) else leaf.clone() for leaf in _leaves(captured.results)]
        return _rebuilt(captured.results, iter(tensors))

    def _capture(self, piece: Piece, arguments: tuple[Any, ...], buffers: list[Tensor]) -> Captured:
        """Record the piece with the arguments that lie in `buffers`."""

        def work() -> tuple[Any, ...]:
            returned = piece(*arguments)
            results = _leaves(returned)
            for i, leaf in enumerate(results):  # none is written to before all are read
                if self._holds(leaf) and not (i < len(buffers) and leaf is buffers[i]):
                    results[i] = leaf.clone()
            for i, buffer in enumerate(buffers):
                if results[i] is not buffer and _outline(results[i]) == _outline(buffer):
                    results[i] = buffer.copy_(results[i])
            return _rebuilt(returned, iter(results))

        others = [other.graph for other in self._captured.values() if other]
        graph, results = _record(work, others, buffers[0].device)
        return Captured(graph, buffers, results)

    # Tensors made in inference mode could not be written to outside of it.
    @torch.inference_mode(False)
    def _buffers(self, leaves: list[Tensor]) -> list[Tensor]:
        return [
            memory[: leaf.nbytes].view(leaf.dtype).view(leaf.shape)
            for memory, leaf in zip(self._memory, leaves, strict=False)
        ]

    def _fill(self, buffers: list[Tensor], leaves: list[Tensor]) -> None:
        """Copy leaves that are not in their buffers yet; none is written to before all are read."""
        pairs = [
            (buffer, leaf.clone() if self._holds(leaf) else leaf)
            for buffer, leaf in zip(buffers, leaves, strict=True)
            if leaf.data_ptr() != buffer.data_ptr() or not leaf.is_contiguous()
        ]
        for buffer, leaf in pairs:
            buffer.copy_(leaf)

    def _holds(self, leaf: Tensor) -> bool:
        address = leaf.untyped_storage().data_ptr()
        return any(memory.data_ptr() == address for memory in self._memory)

    @torch.inference_mode(False)
    def _make_room(self, leaves: list[Tensor]) -> bool:
        """See that the buffers are large enough; the graphs of one that grows are to be captured again."""
        self._memory += [leaf.new_empty(0, dtype=torch.uint8) for leaf in leaves[len(self._memory) :]]
        # A quarter more than before: a corpus sorted by length would otherwise capture every shape again.
        growing = {
            i: max(leaf.nbytes, memory.nbytes * 5 // 4)
            for i, (memory, leaf) in enumerate(zip(self._memory, leaves, strict=False))
            if leaf.nbytes > memory.nbytes
        }
        if sum(growing.get(i, memory.nbytes) for i, memory in enumerate(self._memory)) > LARGEST:
            return False
        if growing:
            seen = list(self._captured)
            self._forget(len(seen))
            self._captured.update(dict.fromkeys(seen))
        for i, size in growing.items():
            self._memory[i] = self._memory[i].new_empty(0)  # the old is free before the new is asked for
            self._memory[i] = self._memory[i].new_empty(size)
        return True

    def _forget(self, count: int) -> None:
        if count > 0 and self._memory and self._memory[0].is_cuda:
            torch.cuda.synchronize(self._memory[0].device)
        for _ in range(count):
            self._captured.popitem(last=False)


_graphs: WeakKeyDictionary[nn.Module, SearchGraphs] = WeakKeyDictionary()


def _surroundings(decoder: nn.Module) -> Hashable:
    """The surroundings of a piece: all it depends on besides its arguments and the parameters' values."""
    shared = (part for part in vars(decoder).values() if isinstance(part, nn.Module))
    parts = [decoder, *shared]
    tensors = [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())]
    kind = tensors[0].device.type if tensors else "cpu"
    autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
    return decoder.training, autocast, pick(kind), tuple(tensor.data_ptr() for tensor in tensors)


def _leaves(tree: Any) -> list[Tensor]:
    """The tensors of nested dataclasses, tuples and lists, always in the same order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [leaf for _, branch in _branches(tree) for leaf in _leaves(branch)]


def _outline(tree: Any) -> Hashable:
    """The same for two trees that differ in the values of their tensors alone."""
    if isinstance(tree, Tensor):
        return tree.shape, tree.dtype
    branches = _branches(tree)
    return (type(tree), *((name, _outline(branch)) for name, branch in branches)) if branches else tree


def _rebuilt(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """The tree with other tensors."""
    if isinstance(tree, Tensor):
        return next(leaves)
    branches = {name: _rebuilt(branch, leaves) for name, branch in _branches(tree)}
    if not branches:
        return tree
    if isinstance(tree, (tuple, list)):
        return getattr(tree, "_make", type(tree))(branches.values())  # a named tuple has a way of its own
    return replace(tree, **branches)


def _branches(tree: Any) -> list[tuple[str, Any]]:
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in fields(tree)]
    return [(str(i), branch) for i, branch in enumerate(tree)] if isinstance(tree, (tuple, list)) else []


def _record(
    work: Callable[[], tuple[Any, ...]], others: list[torch.cuda.CUDAGraph], device: torch.device
) -> tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]:
    """What torch.cuda.graph does, less its collecting garbage and emptying the cache for every new shape.

    No graph leaves anything in its working memory that is needed later, so all use the same.
    """
    graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    side = _side_stream(device)
    side.wait_stream(here)
    torch.clear_autocast_cache()  # copies of weights that were made outside would not follow the weights
    with torch.cuda.stream(side):
        # A thread that pins memory meanwhile must not break the capture.
        graph.capture_begin(others[0].pool() if others else None, capture_error_mode="thread_local")
        try:
            results = work()
        except RuntimeError as problem:
            problem.add_note(f"This happened in the capture of a CUDA graph; {VARIABLE}=0 does without them.")
            raise
        finally:
            graph.capture_end()
    torch.clear_autocast_cache()  # those made inside are the graph's
    here.wait_stream(side)
    return graph, results


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all captures, on which cuBLAS then has its workspace once."""
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        for dtype in (torch.bfloat16, torch.float32):
            torch.mm(*[torch.ones(64, 64, device=device, dtype=dtype)] * 2)
    return side
