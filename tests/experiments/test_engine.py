"""The rules that all experiments share: what is trained, what stands as it was kept, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments.fleets import Heard, member

from caesura.errors import InputError, Interrupted
from caesura.experiments import engine
from caesura.experiments.engine import Experiment
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import Member, Outcome
from caesura.experiments.provenance import described, digest
from caesura.training.checkpoint import Progress

FINISHED = Progress(20, 1, sentences=200, seconds=9.0, finished="20 updates")


class Remembering(Experiment):
    """An experiment that keeps its results in memory."""

    def __init__(self, out: Path, *rounds: Sequence[Member], **results: Outcome) -> None:
        super().__init__(out)
        self.rounds, self.results = [*rounds], results
        self.written: list[bool] = []

    def kept(self, member: Member) -> Outcome | None:
        return self.results.get(member.name)

    def more(self) -> Sequence[Member]:
        return self.rounds.pop(0) if self.rounds else ()

    def write(self, drawn: bool = False) -> None:
        self.written.append(drawn)


class Fleet:
    """In place of `run_fleet`: remembers what it was to train."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, result: object = True) -> None:
        self.result, self.trained, self.limits = result, list[list[str]](), list[Limits]()
        monkeypatch.setattr(engine, "run_fleet", self)

    def __call__(self, members: Sequence[Member], limits: Limits, *_: object) -> bool:
        self.trained.append([member.name for member in members])
        self.limits.append(limits)
        if isinstance(self.result, BaseException):
            raise self.result
        return bool(self.result)


def kept(of: Member, other: bool = False, **given: Any) -> Outcome:
    """What an earlier machine has kept of a member, or of another config in its place."""
    tree = described(of.load())
    made = {
        "digest": "0123" if other else digest(tree),
        "config": tree | ({"name": "other"} if other else {}),
    }
    return replace(Outcome(of, "finished", "", FINISHED, 1, None, [], {}, None, made, "kept.json"), **given)


def test_what_was_kept_of_the_same_config_is_not_trained_again(tmp_path, monkeypatch):
    one, two = member(tmp_path, "one"), member(tmp_path, "two")
    experiment, fleet, listener = Remembering(tmp_path, one=kept(one)), Fleet(monkeypatch), Heard()
    experiment.check([one, two])
    assert experiment.run([one, two], Limits(), listener)
    assert fleet.trained == [["two"]]
    assert [text.partition(":")[0] for text in listener.messages] == ["one"]
    assert experiment.outcome(one) == kept(one)
    assert experiment.outcome(two).status == "not run"


def test_results_of_another_config_are_refused_with_what_differs_before_anything_starts(tmp_path):
    one = member(tmp_path, "one")
    with pytest.raises(InputError, match=r"/kept\.json: one .* \(name: other -> \w+\)"):
        Remembering(tmp_path, one=kept(one, other=True)).check([one])


@pytest.mark.parametrize("lost", [{"status": "failed"}, {"status": "stopped", "progress": Progress()}])
def test_another_configs_failure_or_start_is_replaced_and_not_shown(tmp_path, monkeypatch, lost):
    one = member(tmp_path, "one")
    experiment, fleet, listener = (
        Remembering(tmp_path, one=kept(one, other=True, **lost)),
        Fleet(monkeypatch),
        Heard(),
    )
    experiment.check([one])
    assert experiment.run([one], Limits(), listener)
    assert (fleet.trained, listener.messages) == ([["one"]], [])
    assert not experiment.outcome(one).kept


@pytest.mark.parametrize("problem", [Interrupted(2), InputError("no"), KeyboardInterrupt()])
def test_whatever_ends_it_everything_is_written(tmp_path, monkeypatch, problem):
    experiment = Remembering(tmp_path)
    Fleet(monkeypatch, problem)
    with pytest.raises(type(problem)):
        experiment.run([member(tmp_path, "one")], Limits(), Heard())
    assert experiment.written == [True]


def test_rounds_share_one_time_limit_and_end_with_it(tmp_path, monkeypatch):
    one, two = member(tmp_path, "one"), member(tmp_path, "two")
    experiment, fleet = Remembering(tmp_path, [one], [one, two], one=kept(one)), Fleet(monkeypatch)
    assert experiment.run([], Limits(time_limit=50.0), Heard())
    assert fleet.trained == [[], ["two"]]
    assert 50.0 >= fleet.limits[0].time_limit >= fleet.limits[1].time_limit > 40.0
    experiment, fleet = Remembering(tmp_path, [one], [two]), Fleet(monkeypatch, result=False)
    assert not experiment.run([], Limits(), Heard())
    assert (fleet.trained, fleet.limits[0].time_limit) == ([["one"]], None)
    assert experiment.written == [True]
