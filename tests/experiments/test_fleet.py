"""Trainings side by side: budgets, failures, kills, and going on."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from experiments.fleets import ENDLESS, QUICK, Heard, interrupt_once, member, wait_for
from wording import refuses

from caesura import signals
from caesura.errors import InputError, Interrupted
from caesura.experiments import fleet
from caesura.experiments.fleet import Limits, run_fleet
from caesura.experiments.outcome import TEST, Measure, Member, read_outcome
from caesura.experiments.processes import Children
from caesura.experiments.telling import last_words, progress_line
from caesura.training.lock import is_held


def outcomes(members: list[Member]) -> list[dict]:
    return [read_outcome(m, None, [TEST]).record() for m in members]


def test_all_members_are_trained_and_tested_and_then_left_alone(tmp_path: Path) -> None:
    members = [member(tmp_path, name, *QUICK, system=name) for name in ("word", "char")]
    listener = Heard()
    assert run_fleet(members, Limits(parallel=2), listener)
    for outcome in outcomes(members):
        assert (outcome["status"], outcome["reason"], outcome["updates"]) == ("finished", "12 updates", 12)
        assert outcome["best"]["seconds"] <= outcome["seconds"]
        assert outcome["measured"]["test"]["scores"]["signatures"]["bleu"].startswith("BLEU|")
    assert {name for name, _ in listener.validations} == {"word", "char"}
    assert sum("test BLEU" in message for message in listener.messages) == 2
    assert sorted(m for m in listener.messages if "testing" in m) == ["char: testing", "word: testing"]
    assert not list((tmp_path / "runs").glob("*.out"))
    logs = [m.log.read_bytes() for m in members]
    again = Heard()
    assert run_fleet(members, Limits(parallel=2), again)
    assert [m.log.read_bytes() for m in members] == logs
    assert again.validations == []
    assert not any("testing" in message for message in again.messages)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_budget_is_of_training_over_all_calls_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    one = member(tmp_path, "one", *ENDLESS)
    assert run_fleet([one], Limits(budget=1.0), Heard(), measures=())
    first = read_outcome(one, 1.0)
    assert first.status == "budget"
    assert first.progress.seconds >= 1.0
    larger = first.progress.seconds + 1.0
    assert read_outcome(one, larger).status == "stopped"
    assert run_fleet([one], Limits(budget=larger), Heard())
    second = read_outcome(one, larger, [TEST])
    assert (second.status, second.validations[: len(first.validations)]) == ("budget", first.validations)
    assert second.progress.seconds >= larger
    assert second.progress.update > first.progress.update
    assert one.log.read_text().count("stopped by the budget") == 2
    assert "test" in second.measured


def test_a_budget_belongs_to_its_member(tmp_path: Path) -> None:
    one, other = member(tmp_path, "one", *ENDLESS), member(tmp_path, "other", *QUICK)
    run_fleet([one], Limits(budget=0.5), Heard(), measures=())
    log, first = one.log.read_bytes(), read_outcome(one)
    assert (first.status, first.budget) == ("budget", 0.5)
    for budget in (None, 0.25):
        run_fleet([one, other], Limits(budget=budget), Heard(), measures=())
        assert (one.log.read_bytes(), read_outcome(one)) == (log, first)
    assert read_outcome(other).budget == 0.25
    assert read_outcome(one, first.progress.seconds + 1.0).status == "stopped"


def test_weights_that_were_trained_on_are_measured_again(tmp_path: Path) -> None:
    one = member(tmp_path, "one", *QUICK)
    run_fleet([one], Limits(), Heard())
    tested = json.loads(TEST.path(one).read_bytes())
    TEST.path(one).write_text(json.dumps(tested | {"weights": "of another model"}))
    assert read_outcome(one, None, [TEST]).measured == {}
    run_fleet([one], Limits(), Heard())
    assert json.loads(TEST.path(one).read_bytes()) == tested


def test_one_that_fails_leaves_the_others_alone_and_is_tried_again(tmp_path: Path) -> None:
    bad = member(tmp_path, "bad", *QUICK, "training.learning_rate=1e30", "training.max_skipped=1")
    good = member(tmp_path, "good", *QUICK, system="char")
    listener = Heard()
    assert run_fleet([bad, good], Limits(parallel=2), listener)
    failed, finished = outcomes([bad, good])
    assert (failed["status"], finished["status"]) == ("failed", "finished")
    assert "not finite" in failed["reason"]
    assert failed["reason"].endswith("(status 1)")
    assert any(
        message.startswith("bad: failed: ") and str(bad.log) in message for message in listener.messages
    )
    run_fleet([bad, good], Limits(parallel=2), Heard())
    assert bad.log.read_text().count("$ ") == 2
    assert good.log.read_text().count("$ ") == 2  # one training, one test


def test_a_member_that_is_killed_fails_and_goes_on_at_the_next_call(tmp_path: Path) -> None:
    one, other = member(tmp_path, "one", *ENDLESS), member(tmp_path, "other", *QUICK, system="char")
    killer = threading.Thread(target=kill_when_validated, args=(one,))
    killer.start()
    assert run_fleet([one, other], Limits(budget=300, parallel=2), Heard())
    killer.join()
    outcome = read_outcome(one, 300)
    assert outcome.status == "failed"
    assert re.fullmatch(r"killed by SIGKILL \(out of memory\?\) after [\d,]+ updates", outcome.reason)
    assert read_outcome(other, 300).status == "finished"
    spent = outcome.progress.seconds
    assert run_fleet([one, other], Limits(budget=spent + 0.5, parallel=2), Heard(), measures=())
    assert read_outcome(one, spent + 0.5).status == "budget"


def kill_when_validated(one: Member) -> None:
    holder = wait_for_validation(one)
    os.kill(holder, signal.SIGKILL)


def wait_for_validation(one: Member) -> int:
    """The process that trains a member, once it has validated."""
    wait_for(lambda: read_outcome(one).validations)
    return json.loads((one.folder / ".lock").read_text())["pid"]


class Clock:
    """A clock that jumps."""

    def __init__(self) -> None:
        self.jump = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.jump

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_the_time_limit_stops_all_with_their_states_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [member(tmp_path, name, *ENDLESS) for name in ("one", "two", "three")]
    listener, clock = Heard(), Clock()
    monkeypatch.setattr(fleet, "time", clock)

    def enough(lines: dict[str, str]) -> None:
        if {name for name, _ in listener.validations} == {"one", "two"}:
            clock.jump = 1000.0

    listener.running = enough  # type: ignore[method-assign]
    assert not run_fleet(members, Limits(budget=1000, parallel=2, time_limit=500), listener)
    assert listener.messages[-1].startswith("stopped by the time limit")
    outcome = [read_outcome(m, 1000) for m in members]
    assert [f.status for f in outcome] == ["stopped", "stopped", "not run"]
    assert all("stopped by the signal SIGTERM" in m.log.read_text() for m in members[:2])


@pytest.mark.usefixtures("no_ignored_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_is_passed_on(tmp_path: Path, number: int) -> None:
    one, listener = member(tmp_path, "one", *ENDLESS), Heard()
    listener.validation = interrupt_once(number)  # type: ignore[method-assign]
    with pytest.raises(Interrupted) as stopped:
        run_fleet([one], Limits(), listener)
    assert stopped.value.number == number
    assert read_outcome(one).status == "stopped"
    assert not one.failure.exists()


@pytest.mark.usefixtures("no_ignored_signals")
@pytest.mark.parametrize("measured", [False, True])
def test_what_a_third_ctrl_c_kills_is_said_and_fails_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: bool
) -> None:
    one, listener = member(tmp_path, "one", *(QUICK if measured else ENDLESS)), Heard()
    monkeypatch.setattr(signals, "HASTE", 0.0)

    class Thrice(Children):
        def start(self, *given: Any) -> None:
            super().start(*given)
            if "one: testing" in listener.messages:
                self.insist()

        def ended(self) -> dict[str, int]:
            if listener.validations and not measured and self.signal is None:
                self.insist()
            return super().ended()

        def insist(self) -> None:
            pid = self.running["one"].pid
            os.kill(pid, signal.SIGSTOP)  # it does not end when it is asked to, once it has stopped
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        def _answer(self) -> None:
            super()._answer()
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(fleet, "Children", Thrice)
    with pytest.raises(Interrupted):
        run_fleet([one], Limits(), listener)
    outcome = read_outcome(one)
    assert listener.messages[-1] == (
        "one: killed; testing begins anew"
        if measured
        else f"one: killed; goes on from update {outcome.progress.update}, its last checkpoint"
    )
    assert outcome.status == ("finished" if measured else "stopped")
    assert not one.failure.exists()


def test_only_what_ran_is_settled(tmp_path: Path) -> None:
    members, settled = [member(tmp_path, name, *QUICK) for name in ("one", "two")], []
    run_fleet(members[:1], Limits(), Heard(), settled=lambda: settled.append("first"))
    run_fleet(members, Limits(), Heard(), settled=lambda: settled.append("second"))
    run_fleet(members, Limits(), Heard(), settled=lambda: settled.append("third"))
    assert settled == ["first", "second"]


def test_a_running_member_is_a_line() -> None:
    start = {"kind": "start", "update": 0, "segment_length": 2.0}
    trained = {"kind": "train", "update": 50, "sentences": 5000, "seconds": 21.4}
    validated = {"kind": "validation", "update": 60, "sentences": 6000, "seconds": 30.0}
    validated |= {"segment_length": 1.5, "bleu": 12.345}
    assert progress_line([], 60) == "starting"
    assert progress_line([start], 60) == "update 0  0 sentences  segments 2.00  1m00s left"
    assert progress_line([start, trained], 60) == "update 50  5,000 sentences  segments 2.00  39s left"
    line = "update 60  6,000 sentences  BLEU 12.35  segments 1.50  30s"
    assert progress_line([start, trained, validated], None) == line


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_when_the_parent_is_killed_its_members_save_and_the_next_call_goes_on(tmp_path: Path) -> None:
    one = member(tmp_path, "one", *ENDLESS)
    program = (
        "import threading, time\nfrom pathlib import Path\nfrom caesura.experiments.fleet import *\n"
        "from experiments.fleets import Heard\n"
        "for _ in range(8):\n"  # each may tell the children that it is gone
        "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        f"one = Member('one', Path({str(one.config)!r}), {one.settings!r}, Path({str(one.folder)!r}))\n"
        "run_fleet([one], Limits(), Heard())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    wait_for_validation(one)
    parent.kill()
    parent.wait()
    assert run_fleet([one], Limits(budget=0.1), Heard(), measures=())  # waits for what was left
    assert "stopped by the signal SIGTERM" in one.log.read_text()
    assert not is_held(one.folder)
    outcome = read_outcome(one, 0.1)
    assert (outcome.status, outcome.progress.update > 0) == ("budget", True)


def test_what_cannot_be_trained_is_refused_before_anything_starts(tmp_path: Path) -> None:
    one = member(tmp_path, "one", *QUICK)
    with refuses(InputError):
        run_fleet([one, one], Limits(), Heard())
    missing = member(tmp_path, "two", f"data.test.src={tmp_path}/nowhere")
    with refuses(InputError, "", "data.test.src"):
        run_fleet([one, missing], Limits(), Heard())
    with refuses(InputError, "", "training.sed"):
        run_fleet([one, member(tmp_path, "two", "training.sed=1")], Limits(), Heard())
    assert not (tmp_path / "runs").exists()
    run_fleet([one], Limits(), Heard(), measures=())
    changed = member(tmp_path, "one", *QUICK, "training.seed=7")
    with refuses(InputError, "", "training.seed: 1 -> 7"):
        run_fleet([changed], Limits(), Heard())


def test_a_measure_that_prints_no_json_fails_its_member_with_its_training_kept(tmp_path: Path) -> None:
    one = member(tmp_path, "one", *QUICK)
    run_fleet([one], Limits(), Heard(), [Measure("version", lambda m: ["caesura.cli", "--version"])])
    outcome = read_outcome(one)
    assert (outcome.status, outcome.progress.finished) == ("failed", "12 updates")
    assert "version printed no line of JSON" in outcome.reason


def test_last_words_are_the_error_sentence_of_the_last_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("$ a\ncaesura: old\n$ b\nhello\ncaesura: it broke\nbye\n")
    assert last_words(log) == "it broke"
    log.write_text("$ a\ncaesura: old\n$ b\nTraceback (most recent call last):\nValueError: x\n\n")
    assert last_words(log) == "ValueError: x"
    log.write_text("$ a\ncaesura: old\n$ b\nBLEU 3.21\n  source: eins\n")
    assert last_words(log) == ""
    log.write_text("$ b\n")
    assert last_words(log) == ""
