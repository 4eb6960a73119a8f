"""Searches on the CPU that go as on a GPU."""

from collections.abc import Iterator

import pytest
from paces import PACES, Replay, Side

from caesura.kernels import graphs as kernels
from caesura.search import rounds
from caesura.search.rounds import Pace


@pytest.fixture(scope="module")
def replays() -> Iterator[list[Replay]]:
    """What was recorded: on a CPU, pieces that run as they are, over buffers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "Side", Side)
        patch.setattr(Side, "replays", [])
        yield Side.replays


@pytest.fixture(scope="module", params=PACES)
def pace(request: pytest.FixtureRequest, replays: list[Replay]) -> Iterator[Pace]:
    """A search on the CPU goes at each of these; with graphs, batches are padded as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: PACES[request.param])
        yield PACES[request.param]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches begin with little room, so that states grow."""
    monkeypatch.setattr(rounds, "ROOM", 8)
