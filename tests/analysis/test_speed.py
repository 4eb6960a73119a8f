"""A speed is a median of repeats with its spread, or the reason why it is left out."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from analysis.test_report import LINES, SMALL, keep_chapters, subject

from caesura.analysis import speed as timing
from caesura.analysis import tables
from caesura.analysis.report import Report
from caesura.analysis.speed import FEWEST, PATIENCE, REPEATS, Speed, speeds
from caesura.analysis.study import analyse


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wall and processor time, which stand still until a piece of work moves them; nobody else is there."""
    now = [0.0, 0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: now[1])
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    return now


def work(clock: list[float], seconds: list[float], share: float = 1.0) -> Callable[[], None]:
    """Takes these seconds in turn, of which the process has a share to itself."""
    rest = iter(seconds)

    def once() -> None:
        taken = next(rest)
        clock[0] += taken
        clock[1] += share * taken

    return once


def test_a_speed_is_the_median_of_repeats_that_take_turns(clock: list[float]) -> None:
    order: list[str] = []
    a, b = work(clock, [1.0, 2.0, 2.0, 2.0, 2.5]), work(clock, [0.5] * 5)
    timings = speeds([lambda: (order.append("a"), a()), lambda: (order.append("b"), b())], 20, "cuda")
    assert order == ["a", "b"] * REPEATS
    assert [(s.median, s.spread, s.repeats, s.sentences) for s in timings] == [(10, 6, 5, 20), (40, 0, 5, 20)]
    assert "2.5 times" in timings[0].problem
    assert timings[1].problem == ""


def test_slow_work_is_repeated_less(clock: list[float]) -> None:
    [speed] = speeds([work(clock, [PATIENCE] * REPEATS)], 20, "cpu")
    assert (speed.repeats, speed.problem) == (FEWEST, "")


@pytest.mark.parametrize(
    ("device", "share", "noticed"), [("cpu", 0.8, True), ("cpu", 0.95, False), ("cuda", 0.1, False)]
)
def test_a_process_that_waits_for_the_processor_tells_no_speed(
    clock: list[float], device: str, share: float, noticed: bool
) -> None:
    [speed] = speeds([work(clock, [1.0] * REPEATS, share)], 20, device)
    assert bool(speed.problem) == noticed


def test_a_crowded_machine_tells_no_speed(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "own_cores", lambda: 4)
    for load, noticed in ((4.9, False), (5.1, True)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        [speed] = speeds([work(clock, [1.0] * REPEATS)], 20, "cuda")
        assert bool(speed.problem) == noticed
    monkeypatch.delattr(os, "getloadavg")
    assert speeds([work(clock, [1.0] * REPEATS)], 20, "cuda")[0].problem == ""


def test_a_report_has_speeds_with_their_spread_and_says_which_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_chapters(monkeypatch, "cost")
    one = analyse(subject(), LINES[:5], "text", None, replace(SMALL, moved=0))
    assert one.cost.segmenting is not None
    assert one.cost.translating is not None
    assert one.cost.segmenting.sentences == one.cost.translating.sentences == 5
    cost = replace(one.cost, segmenting=Speed(30, 2, 5, 64), translating=Speed(9, 8, 5, 64, "it was busy"))
    one = replace(one, cost=cost)
    html = Report([one]).page()[0]
    assert "medians of 5 repeats on 64 sentences, ± half their range" in html
    assert "No speed for translating with act: it was busy." in html
    [row] = tables.cost([one]).rows
    cells = dict(zip((column.name for column in tables.cost([one]).columns), row, strict=True))
    assert (cells["segmented per second"], cells["± segmented"]) == (30, 2)
    assert "translated per second" not in cells
