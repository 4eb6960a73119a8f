"""Pieces of a search as CUDA graphs, over buffers that all shapes share.

A graph holds the addresses that it was captured with: of the parameters, which training changes in place, and
of buffers, into which a piece's arguments are copied where they do not lie there already.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from caesura.kernels import pick
from caesura.kernels.graphs import Graphs

LARGEST = 0.25  # of the GPU's memory, for buffers; a search that needs more runs without graphs

Piece = Callable[..., tuple[Any, ...]]  # returns its changed arguments first, then other results
Play = Callable[[Hashable, Piece, tuple[Any, ...]], tuple[Any, ...]]  # name, piece, arguments


@contextmanager
def borrow(decoder: nn.Module, device: torch.device | None) -> Iterator[Play]:
    """A function that plays pieces of a search, from the decoder's graphs on the device if they are free."""
    if device and decoder not in _graphs:
        _graphs.setdefault(decoder, SearchGraphs(device))
    graphs = _graphs[decoder] if device else None
    if graphs is None or not graphs.lock.acquire(blocking=False):
        yield lambda _, piece, arguments: piece(*arguments)
        return
    try:
        surroundings = _surroundings(decoder)
        yield lambda name, piece, arguments: graphs.play((name, surroundings), piece, arguments)
    finally:
        graphs.lock.release()


def forget(decoder: nn.Module, device: torch.device) -> None:
    """Give back the memory of a decoder's graphs, and the allocator's spare memory."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        _graphs.pop(decoder, None)
        torch.cuda.empty_cache()


class SearchGraphs:
    """The graphs of one decoder."""

    def __init__(self, device: torch.device) -> None:
        self.lock = Lock()
        self.graphs = Graphs(device)
        self._largest = LARGEST * self.graphs.side.memory
        self._memory: list[Tensor] = []  # one piece for each tensor of the arguments, whatever its shape

    def play(self, name: Hashable, piece: Piece, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The piece's results; playing the next piece may overwrite them."""
        leaves = _leaves(arguments)
        if not self._make_room(leaves):
            return piece(*arguments)
        buffers = self._filled(leaves)
        work = partial(self._work, piece, _rebuilt(arguments, iter(buffers)), buffers)
        results = self.graphs.play((name, _outline(arguments)), work).result
        tensors = [leaf if self._holds(leaf) else leaf.clone() for leaf in _leaves(results)]
        return _rebuilt(results, iter(tensors))

    def _work(self, piece: Piece, arguments: tuple[Any, ...], buffers: list[Tensor]) -> tuple[Any, ...]:
        """Run the piece with arguments that lie in `buffers`, and write its results back there."""
        returned = piece(*arguments)
        results = _leaves(returned)
        for i, leaf in enumerate(results):  # none is written to before all are read
            if self._holds(leaf) and not (i < len(buffers) and leaf is buffers[i]):
                results[i] = leaf.clone()
        for i, buffer in enumerate(buffers):
            if results[i] is not buffer and _outline(results[i]) == _outline(buffer):
                results[i] = buffer.copy_(results[i])
        return _rebuilt(returned, iter(results))

    def _filled(self, leaves: list[Tensor]) -> list[Tensor]:
        """Buffers that hold these tensors' values; none is written to before all are read."""
        with torch.inference_mode(False):  # else they could not be written to outside it
            pairs = zip(self._memory, leaves, strict=False)
            buffers = [part[: leaf.nbytes].view(leaf.dtype).view(leaf.shape) for part, leaf in pairs]
        moving = [
            (buffer, leaf.clone() if self._holds(leaf) else leaf)
            for buffer, leaf in zip(buffers, leaves, strict=True)
            if leaf.data_ptr() != buffer.data_ptr() or not leaf.is_contiguous()
        ]
        for buffer, leaf in moving:
            buffer.copy_(leaf)
        return buffers

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
        if sum(growing.get(i, memory.nbytes) for i, memory in enumerate(self._memory)) > self._largest:
            return False
        if growing:
            self.graphs.forget()
        for i, size in growing.items():
            self._memory[i] = self._memory[i].new_empty(0)  # the old is free before the new is asked for
            self._memory[i] = self._memory[i].new_empty(size)
        return True


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
    """Equal for two trees that differ only in the values of their tensors."""
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
        return getattr(tree, "_make", type(tree))(branches.values())  # a named tuple is built from its fields
    return replace(tree, **branches)


def _branches(tree: Any) -> list[tuple[str, Any]]:
    if is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in fields(tree)]
    return [(str(i), branch) for i, branch in enumerate(tree)] if isinstance(tree, (tuple, list)) else []
