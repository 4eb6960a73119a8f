"""A fleet whose launcher trains and measures a member in one job, and may have to go on in another one."""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from experiments.fleets import ENDLESS, QUICK, Heard, member
from wording import wording

from caesura.experiments.fleet import Limits, run_fleet
from caesura.experiments.outcome import TEST, read_outcome
from caesura.experiments.processes import Children


class Whole(Children):
    """Jobs that are children."""

    whole = True
    started: list[str]

    def log(self, folder: Path) -> Path:
        return Path(f"{folder}.job")

    def start(self, name: str, command: Sequence[str], log: Path, *more: Any) -> None:
        super().start(name, command, log, *more)
        self.started.append(name)

    def place(self, name: str) -> str:
        return "in the queue" if name == "char" else ""


@pytest.fixture
def jobs() -> type[Whole]:
    """A class of its own for each test, with the names of its jobs."""
    return type("Jobs", (Whole,), {"started": []})


def test_a_job_trains_and_measures_and_is_not_started_again(
    tmp_path: Path, jobs: type[Whole], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["caesura", "sweep", "one.yaml"])
    members = [member(tmp_path, name, *QUICK, system=name) for name in ("word", "char")]
    listener = Heard()
    assert run_fleet(members, Limits(launcher=jobs), listener)
    assert sorted(jobs.started) == ["char", "word"]  # more than may run side by side here
    for one in members:
        outcome = read_outcome(one, None, [TEST])
        assert (outcome.status, outcome.side_by_side, [*outcome.measured]) == ("finished", 1, ["test"])
        assert [by["command"] for by in outcome.made["by"]] == ["caesura sweep one.yaml"]
        assert f"{one.name}: testing" in Path(f"{one.folder}.job").read_text()
    assert {name for name, _ in listener.validations} == {"word", "char"}
    assert {lines["char"] for lines in listener.lines if "char" in lines} == {"in the queue"}
    again = Heard()
    assert run_fleet(members, Limits(launcher=jobs), again)
    assert len(jobs.started) == 2
    assert len(again.messages) == 2


def test_a_training_that_fails_in_a_job_is_named_once_with_its_reason(
    tmp_path: Path, jobs: type[Whole]
) -> None:
    bad = member(tmp_path, "bad", *QUICK, "training.learning_rate=1e30", "training.max_skipped=1")
    listener = Heard()
    assert run_fleet([bad], Limits(launcher=jobs), listener)
    assert read_outcome(bad).reason.count("(status 1)") == 1
    assert "not finite" in read_outcome(bad).reason
    assert listener.messages == [f"bad: failed: {read_outcome(bad).reason}; all it said: {bad.log}"]


def test_a_job_that_was_asked_to_end_goes_on_in_another_one(tmp_path: Path, jobs: type[Whole]) -> None:
    one = member(tmp_path, "one", *ENDLESS)
    listener, reached = Heard(), list[int]()

    class Asking(jobs):  # type: ignore[misc,valid-type]
        def ended(self) -> dict[str, int]:
            if listener.validations and not reached:
                reached.append(0)
                self.running["one"].terminate()
            ended: dict[str, int] = super().ended()
            if ended and len(self.started) == 1:
                assert ended == {"one": 128 + signal.SIGTERM}
                progress = read_outcome(one).progress
                reached[0] = progress.update
                one.allowance.write_text(str(progress.seconds + 0.3))
            return ended

    assert run_fleet([one], Limits(launcher=Asking), listener, measures=())
    assert (jobs.started, one.failure.exists()) == (["one", "one"], False)
    assert read_outcome(one).status == "budget"
    assert read_outcome(one).progress.update > reached[0] > 0


@pytest.mark.parametrize(("status", "times"), [(0, 2), (143, 2), (3, 1)])
def test_a_job_that_comes_to_nothing_is_not_started_for_ever(
    tmp_path: Path, jobs: type[Whole], status: int, times: int
) -> None:
    one, listener = member(tmp_path, "one", *QUICK), Heard()

    class Empty(jobs):  # type: ignore[misc,valid-type]
        def start(self, name: str, command: Sequence[str], log: Path, *more: Any) -> None:
            log.write_text("$ nothing\n")
            self.started.append(name)
            self.running[name] = Ended(status)

    assert run_fleet([one], Limits(launcher=Empty), listener)
    assert jobs.started == ["one"] * times
    assert read_outcome(one).status == "failed"
    wording(read_outcome(one).reason)
    assert f"all it said: {one.folder}.job" in listener.messages[-1]


class Ended:
    """A process that has ended."""

    def __init__(self, returncode: int) -> None:
        self.returncode = returncode

    def poll(self) -> int:
        return self.returncode


def test_why_a_job_was_killed_is_in_the_table(tmp_path: Path, jobs: type[Whole]) -> None:
    one, other = member(tmp_path, "one", *QUICK), member(tmp_path, "two", *QUICK)

    class Killed(jobs):  # type: ignore[misc,valid-type]
        def reason(self, name: str) -> str:
            return "no memory" if name == "one" else ""

    assert run_fleet([one, other], Limits(launcher=Killed), Heard())
    assert (read_outcome(one).status, read_outcome(one).reason) == ("failed", "no memory")
    assert read_outcome(other).status == "finished"
