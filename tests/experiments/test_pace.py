"""Calls with `--whole`: no training begins that the time limit would end."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cli.program import caesura, refusal
from experiments.fleets import QUICK, Heard, member
from experiments.test_fleet import Clock
from wording import wording

from caesura.experiments import fleet
from caesura.experiments.fleet import Limits, run_fleet
from caesura.experiments.outcome import TEST, Measure, Member, Outcome, read_outcome
from caesura.experiments.pace import Pace, Rest
from caesura.experiments.processes import Launcher
from caesura.training.checkpoint import Progress


def logged(
    folder: Path, name: str, *lines: tuple[str, int, float], together: int = 1, updates: str = "1000"
) -> Outcome:
    """A training of 1,000 updates whose log has these kinds, updates and seconds."""
    one = member(folder, name, f"training.updates={updates}")
    one.folder.mkdir(parents=True)
    records = [{"kind": kind, "update": update, "seconds": seconds} for kind, update, seconds in lines]
    (one.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    one.company.write_text(str(together))
    return read_outcome(one)


def paced(deadline: float, *outcomes: Outcome) -> Pace:
    pace = Pace(deadline)
    for outcome in outcomes:
        pace.look(outcome)
    return pace


def test_an_update_costs_what_it_took_without_the_first_ones_and_without_company(tmp_path: Path) -> None:
    lines = ("start", 0, 0.0), ("train", 100, 30.0), ("validation", 300, 50.0), ("train", 400, 60.0)
    rest = Rest.of(logged(tmp_path, "one", *lines, together=2))
    assert rest == Rest(False, 400, 1000, math.inf, pytest.approx(30 / 300 / 2))
    assert Rest.of(logged(tmp_path, "few", ("train", 100, 30.0), ("train", 149, 60.0))).each is None
    assert Rest.of(logged(tmp_path, "fresh")) == Rest(False, 0, 1000, math.inf, None)


def test_a_budget_counts_where_it_ends_first(tmp_path: Path) -> None:
    one = member(tmp_path, "one", "training.updates=1000")
    one.folder.mkdir(parents=True)
    (one.folder / "metrics.jsonl").write_text('{"kind": "train", "update": 10, "seconds": 5.0}\n')
    pace = paced(100.0, read_outcome(one, 20.0))
    assert pace.in_time(["one"], now=85.0)
    assert not pace.in_time(["one"], now=85.1), "15 s are left"
    pace.look(logged(tmp_path, "other", ("train", 100, 1.0), ("train", 200, 2.0)))
    assert pace.in_time(["one"], now=90.0), "990 updates of 0.01 s"
    assert not pace.in_time(["one"], now=90.2)


def test_all_that_run_side_by_side_have_to_end_and_to_be_measured_in_time(tmp_path: Path) -> None:
    begun = logged(tmp_path, "begun", ("train", 100, 10.0), ("train", 400, 70.0), together=2)
    fresh = logged(tmp_path, "fresh")
    pace = paced(1000.0, begun, fresh)
    # 0.1 s per update alone and 0.2 s for each of two: 120 s are left to one, and 200 to the other.
    assert pace.in_time(["begun", "fresh"], now=800.0)
    assert not pace.in_time(["begun", "fresh"], now=801.0)
    assert pace.in_time(["fresh"], now=900.0), "alone it takes half as long"
    assert paced(1000.0, fresh).in_time(["fresh"], now=999.0), "nothing tells how long it takes"
    pace.ended(100.0, 60.0)
    pace.ended(100.0, 90.0)
    assert pace.around == 40.0
    assert pace.in_time(["begun", "fresh"], now=760.0)
    assert not pace.in_time(["begun", "fresh"], now=761.0)


def test_a_slow_system_does_not_keep_a_fast_one_from_its_end(tmp_path: Path) -> None:
    slow = logged(tmp_path, "slow", ("train", 100, 0.0), ("train", 200, 100.0))
    fast = logged(tmp_path, "fast", ("train", 100, 0.0), ("train", 200, 1.0))
    pace = paced(1000.0, slow, fast, logged(tmp_path, "fresh"))
    assert pace.in_time(["fast"], now=990.0), "800 updates of 0.01 s, not of 1 s"
    assert not pace.in_time(["fresh"], now=990.0)


def test_one_that_ends_by_itself_takes_as_many_updates_as_others_did(tmp_path: Path) -> None:
    lines = ("train", 100, 0.0), ("train", 600, 50.0)
    ended, fresh = (logged(tmp_path, name, *lines[:n], updates="null") for name, n in (("a", 2), ("b", 0)))
    assert paced(100.0, ended, fresh).in_time(["b"], now=99.0), "nothing tells how long it takes"
    ended = replace(ended, progress=Progress(update=600, finished="it got no better"))
    pace = paced(100.0, ended, fresh, logged(tmp_path, "c"))
    assert pace.in_time(["a", "b"], now=-20.0)
    assert not pace.in_time(["a", "b"], now=-19.9), "600 updates of 0.2 s"
    assert pace.in_time(["b"], now=40.0)
    assert not pace.in_time(["b"], now=40.1)
    assert not pace.in_time(["c"], now=1.0), "1,000 updates of 0.1 s"


def test_many_that_wait_are_not_read_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [member(tmp_path, name) for name in "abcdefgh"]
    clock, reads = Clock(), []

    def outcome(one: Member, *_: object) -> Outcome:
        reads.append(one.name)
        return read_outcome(one)

    monkeypatch.setattr(fleet, "time", clock)
    monkeypatch.setattr(fleet, "read_outcome", outcome)
    launcher = Launcher()
    limits = Limits(parallel=9, time_limit=60.0, whole=True)
    made = fleet._Fleet(members, limits, Heard(), (), launcher, lambda: None)
    launcher.running = {"a": subprocess.CompletedProcess("", 0)}
    made.waiting.remove(members[0])
    monkeypatch.setattr(launcher, "ended", dict)
    monkeypatch.setattr(Pace, "in_time", lambda *_: False)
    reads.clear()
    for _ in range(3):
        assert made.step()
    assert reads == ["a"]
    clock.jump = fleet.LOOK
    assert made.step()
    assert reads == ["a", "a"]


def test_one_that_another_call_still_trains_is_looked_at_when_it_may_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = member(tmp_path, "one")
    monkeypatch.setattr(fleet, "is_held", lambda _: True)
    limits = Limits(time_limit=60.0, whole=True)
    made = fleet._Fleet([one], limits, Heard(), (), Launcher(), lambda: None)
    assert made.pace is not None
    assert made.pace.rests == {}
    assert made._in_time(one)
    assert [*made.pace.rests] == ["one"]


@pytest.mark.parametrize("measures", [(), (TEST,)])
def test_what_is_through_is_told_and_what_is_not_measured_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measures: tuple[Measure, ...]
) -> None:
    one = member(tmp_path, "one")
    through = replace(read_outcome(one), progress=Progress(update=12, finished="12 updates"))
    monkeypatch.setattr(fleet, "read_outcome", lambda *_: through)
    made = fleet._Fleet(
        [one], Limits(time_limit=0.0, whole=True), Heard(), measures, Launcher(), lambda: None
    )
    assert made._in_time(one) == (not measures)


@pytest.mark.slow
def test_one_that_could_not_end_in_time_waits_for_another_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [member(tmp_path, name, *QUICK) for name in ("one", "two", "three")]
    listener, clock = Heard(), Clock()
    monkeypatch.setattr(fleet, "time", clock)

    def nearly_over() -> None:
        clock.jump = 499.9  # less than it took to start a process

    limits = Limits(time_limit=500.0, whole=True)
    assert not run_fleet(members, limits, listener, measures=(), settled=nearly_over)
    assert listener.messages[-2].startswith("two, three: not started")
    assert [read_outcome(one).status for one in members] == ["finished", "not run", "not run"]


def test_those_nearest_to_their_end_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates = {"fresh": 0, "begun": 5, "done": 12, "another": 0}
    members = [member(tmp_path, name) for name in updates]

    def outcome(one: Member, *_: object) -> Outcome:
        update = updates[one.name]
        progress = Progress(update=update, finished="12 updates" if update == 12 else "")
        return replace(read_outcome(one), progress=progress)

    monkeypatch.setattr(fleet, "read_outcome", outcome)
    made = fleet._Fleet(members, Limits(), Heard(), (), Launcher(), lambda: None)
    assert [one.name for one in made.waiting] == ["done", "begun", "fresh", "another"]


def test_it_goes_with_a_time_limit_of_processes_of_this_machine() -> None:
    message = wording(refusal(caesura("reproduce", "answer", "--whole")))
    assert message.startswith("--whole: ")
