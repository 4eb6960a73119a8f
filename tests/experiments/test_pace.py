"""Calls with `--whole`: no training begins that the time limit would end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cli.program import caesura, refusal
from experiments.fleets import QUICK, Heard, member
from experiments.test_fleet import Clock
from wording import wording

from caesura.experiments import fleet
from caesura.experiments.fleet import Limits, run_fleet
from caesura.experiments.outcome import Member, Outcome, read_outcome
from caesura.experiments.pace import Pace, seconds_left, update_alone
from caesura.experiments.processes import Launcher
from caesura.training.checkpoint import Progress


def logged(folder: Path, name: str, *lines: tuple[str, int, float], together: int = 1) -> Outcome:
    """A training of 1,000 updates whose log has these kinds, updates and seconds."""
    one = member(folder, name, "training.updates=1000")
    one.folder.mkdir(parents=True)
    records = [{"kind": kind, "update": update, "seconds": seconds} for kind, update, seconds in lines]
    (one.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    one.company.write_text(str(together))
    return read_outcome(one)


def test_an_update_costs_what_it_took_without_the_first_ones_and_without_company(tmp_path: Path) -> None:
    lines = ("start", 0, 0.0), ("train", 100, 30.0), ("validation", 300, 50.0), ("train", 400, 60.0)
    outcome = logged(tmp_path, "one", *lines, together=2)
    assert update_alone(outcome) == pytest.approx(30 / 300 / 2)
    assert seconds_left(outcome, 0.2) == pytest.approx(600 * 0.2)
    assert update_alone(logged(tmp_path, "few", ("train", 100, 30.0), ("train", 149, 60.0))) is None
    fresh = logged(tmp_path, "fresh")
    assert (update_alone(fresh), seconds_left(fresh, 0.2), seconds_left(fresh, None)) == (None, 200.0, 0.0)


def test_a_budget_counts_where_it_ends_first(tmp_path: Path) -> None:
    one = member(tmp_path, "one", "training.updates=1000")
    one.folder.mkdir(parents=True)
    (one.folder / "metrics.jsonl").write_text('{"kind": "train", "update": 10, "seconds": 5.0}\n')
    outcome = read_outcome(one, 20.0)
    assert seconds_left(outcome, None) == seconds_left(outcome, 1.0) == 15.0
    assert seconds_left(outcome, 0.01) == pytest.approx(9.9)


def test_all_that_run_side_by_side_have_to_end_and_to_be_measured_in_time(tmp_path: Path) -> None:
    begun = logged(tmp_path, "begun", ("train", 100, 10.0), ("train", 400, 70.0), together=2)
    fresh, pace = logged(tmp_path, "fresh"), Pace(1000.0)
    # 0.1 s per update alone and 0.2 s for each of two: 120 s are left to one, and 200 to the other.
    assert pace.in_time([begun, fresh], [begun], now=800.0)
    assert not pace.in_time([begun, fresh], [begun], now=801.0)
    assert pace.in_time([fresh], [begun], now=900.0), "alone it takes half as long"
    assert pace.in_time([fresh], [fresh], now=999.0), "nothing tells how long it takes"
    pace.ended(100.0, 60.0)
    pace.ended(100.0, 90.0)
    assert pace.around == 40.0
    assert pace.in_time([begun, fresh], [begun], now=760.0)
    assert not pace.in_time([begun, fresh], [begun], now=761.0)


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
