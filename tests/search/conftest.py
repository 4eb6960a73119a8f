"""How searches go on a GPU, without one."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from caesura.search import graphs, rounds
from caesura.search.rounds import Pace

PACES = {"at once": Pace(1, 1, False), "in rounds": Pace(1, 5, False), "in graphs": Pace(2, 6, True)}


class Replay:
    """In place of a CUDA graph: it reads and writes the memory that it was recorded with."""

    def __init__(self, work: Callable[[], tuple[Any, ...]]) -> None:
        self.work = work
        memory = [piece for own in graphs._graphs.values() for piece in own._memory]
        before = [piece.clone() for piece in memory]
        self.results = work()
        for piece, value in zip(memory, before, strict=True):
            piece.copy_(value)

    def replay(self) -> None:
        news = graphs._leaves(self.work())
        with torch.inference_mode():  # writes to whatever there is, as a graph does
            for old, new in zip(graphs._leaves(self.results), news, strict=True):
                old.copy_(new)


@pytest.fixture(scope="module")
def replays() -> Iterator[list[Replay]]:
    """What was recorded: on a CPU, pieces that run as they are, over buffers."""
    made = []

    def record(work: Callable[[], tuple[Any, ...]], *_: Any) -> tuple[Replay, tuple[Any, ...]]:
        made.append(Replay(work))
        return made[-1], made[-1].results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs, "_record", record)
        yield made


@pytest.fixture(scope="module", params=PACES)
def pace(request: pytest.FixtureRequest, replays: list[Replay]) -> Iterator[Pace]:
    """A search on the CPU goes at each of these; with graphs, batches are padded as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: PACES[request.param])
        yield PACES[request.param]
