"""Searches on the CPU that go as on a GPU."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paces import PACES, Replay

from caesura.search import graphs, rounds
from caesura.search.rounds import Pace


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
