"""How searches go on a GPU, without one."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import torch

from caesura.search import graphs
from caesura.search.rounds import Pace

PACES = {"at once": Pace(1, 1, False), "in rounds": Pace(1, 5, False), "in graphs": Pace(2, 6, True)}


class Replay:
    """In place of a CUDA graph: it reads and writes the memory that it was recorded with."""

    def __init__(self, work: Callable[[], tuple[Any, ...]]) -> None:
        self.work = work
        memory = [piece for graph in graphs._graphs.values() for piece in graph._memory]
        before = [piece.clone() for piece in memory]
        self.results = work()
        for piece, value in zip(memory, before, strict=True):
            piece.copy_(value)

    def replay(self) -> None:
        news = graphs._leaves(self.work())
        with torch.inference_mode():  # writes to whatever there is, as a graph does
            for old, new in zip(graphs._leaves(self.results), news, strict=True):
                old.copy_(new)


class Side:
    """The stand-in for graphs on a CPU: pieces that run as they are, over buffers."""

    memory = 1 << 40
    replays: ClassVar[list[Replay]] = []  # all that were made

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def current(self) -> Any:
        return nullcontext()

    def run(self, function: Callable[[], Any]) -> Any:
        return function()

    def record(self, function: Callable[[], Any]) -> tuple[Replay, Any]:
        self.replays.append(Replay(function))
        return self.replays[-1], self.replays[-1].results

    def full(self) -> bool:
        return False

    def wait(self) -> None:
        pass

    def empty(self) -> None:
        pass
