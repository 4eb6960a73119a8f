"""Which functions are captured, kept and dropped; on the CPU, where a second run stands for a graph."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import torch

from caesura.kernels import graphs
from caesura.kernels.graphs import Graphs, Played


class Recorded:
    """Stands in for a graph."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.replay = function


class Side:
    """Stands in for a stream and a pool of memory; it records all calls."""

    def __init__(self, device: torch.device) -> None:
        self.short, self.asked = False, list[str]()

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def run(self, function: Callable[[], Any]) -> Any:
        self.asked.append("run")
        return function()

    def record(self, function: Callable[[], Any]) -> tuple[Recorded, Any]:
        self.asked.append("record")
        return Recorded(function), "recorded"

    def full(self) -> bool:
        return self.short

    def wait(self) -> None:
        self.asked.append("wait")

    def empty(self) -> None:
        self.asked.append("empty")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    monkeypatch.setattr(graphs, "Side", Side)
    monkeypatch.setattr(graphs, "MOST", 3)
    return Graphs(torch.device("cpu"))


def asked(recorder: Graphs) -> list[str]:
    """The calls since the last look."""
    requests: list[str] = recorder.side.asked  # type: ignore[assignment, attr-defined]
    recorder.side.asked = []  # type: ignore[attr-defined]
    return requests


def play(recorder: Graphs, *keys: Any) -> list[str]:
    for key in keys:
        recorder.play(key, lambda: "plain")
    return asked(recorder)


def test_a_shape_is_run_then_captured_then_replayed(recorder: Graphs) -> None:
    runs: list[int] = []

    def work() -> str:
        runs.append(len(runs))
        return "plain"

    assert recorder.play("a", work) == Played("plain", None)
    assert recorder.play("a", work) == Played("recorded", 0)
    assert recorder.play("a", work) == Played("recorded", 0)
    assert runs == [0, 1, 2]  # each time once
    assert asked(recorder) == ["run", "record"]
    play(recorder, "b")
    assert recorder.play("b", work).number == 1


def test_without_a_key_nothing_is_captured(recorder: Graphs) -> None:
    assert play(recorder, None, None, None) == ["run"] * 3
    assert len(recorder) == 0


def test_the_graph_that_was_played_longest_ago_is_given_up(recorder: Graphs) -> None:
    play(recorder, *"aabbcc")
    assert len(recorder) == 3
    assert play(recorder, *"add") == ["run", "record", "wait"]  # a is replayed; b leaves
    assert len(recorder) == 3
    assert play(recorder, *"acd") == []
    assert play(recorder, "b") == ["record", "wait"]  # it has run before
    assert play(recorder, "c", "d", "b") == []  # a had to leave


def test_where_memory_is_short_all_are_forgotten_before_the_next_capture(recorder: Graphs) -> None:
    play(recorder, *"aabb")
    recorder.side.short = True  # type: ignore[attr-defined]
    assert play(recorder, *"ab") == []
    assert play(recorder, *"cc") == ["run", "wait", "empty", "record"]
    assert len(recorder) == 1
    assert play(recorder, "a") == ["run"]


def test_inside_of_what_is_played_a_function_runs_as_it_is(recorder: Graphs) -> None:
    other = Graphs(torch.device("cpu"))
    for _ in range(4):
        inner = recorder.play(None, lambda: other.play("a", lambda: "plain")).result
        assert inner == Played("plain", None)
    assert asked(other) == []
    play(other, *"aa")
    assert len(other) == 1


def test_so_it_does_while_another_thread_plays(recorder: Graphs) -> None:
    other, played = Graphs(torch.device("cpu")), list[Played[str]]()

    def meanwhile() -> None:
        thread = Thread(target=lambda: played.append(other.play("a", lambda: "plain")))
        thread.start()
        thread.join(10)

    recorder.play(None, meanwhile)
    assert played == [Played("plain", None)]
    assert asked(other) == []


def test_after_a_failure_it_goes_on(recorder: Graphs) -> None:
    def failing() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    for key in (None, "a"):
        with pytest.raises(torch.OutOfMemoryError):
            recorder.play(key, failing)
    asked(recorder)
    assert play(recorder, *"bbb") == ["run", "record"]
