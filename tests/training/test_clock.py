"""Time limits, budgets and checkpoints by the clock: when a run stops, and that it learns the same."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.outcomes import DROPOUT, Listener, ask_to_end, configured, in_batch, outcome, records, run

from caesura.errors import Interrupted
from caesura.experiments.outcome import Member, read_outcome
from caesura.output import Output
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress
from caesura.training.interrupt import overrun
from caesura.training.loop import train
from caesura.training.validation import Validation

pytestmark = pytest.mark.usefixtures("frequent_log")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which goes on where it is told to."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


class Ticking(Listener):
    """Every update takes a second, and every validation ten."""

    def __init__(self, clock: list[float], *stops: int) -> None:
        super().__init__(*stops)
        self.clock = clock

    def update(self, progress: Progress, loss: float | None) -> None:
        super().update(progress, loss)
        self.clock[0] += 1.0

    def validation(self, validation: Validation, examples: Sequence[tuple[str, Output, str]]) -> None:
        super().validation(validation, examples)
        self.clock[0] += 10.0


def test_a_time_limit_ends_a_run_between_updates(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(corpus)
    run(config, tmp_path / "whole")
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Clock(Listener):
        def update(self, progress: Progress, loss: float | None) -> None:
            now[0] += 1.0

    assert train(config, tmp_path / "parts", listener := Clock(), time_limit=6.5) == "time limit"
    assert listener.messages[-1].startswith("stopped by the time limit after 7 updates")
    assert train(config, tmp_path / "parts", Clock(), time_limit=100) == "finished"
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert records(tmp_path / "parts")[-1]["seconds"] == 14, "the clock goes on where it was"


def test_a_time_limit_ends_a_validation_between_its_batches(
    corpus: Path, tmp_path: Path, clock: list[float]
) -> None:
    def wait() -> None:
        clock[0] += 100

    config = configured(corpus, "word", *DROPOUT, "testing.batch_size=2")
    run(config, tmp_path / "whole")
    with in_batch(5, wait):  # of three before training and three in the first validation
        assert train(config, tmp_path / "parts", listener := Ticking(clock), time_limit=100) == "time limit"
    assert listener.messages[-1].startswith("stopped by the time limit after 4 updates")
    assert listener.validations == []
    run(config, tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_a_budget_ends_with_a_validation_of_what_was_learned_off_the_clock(
    corpus: Path, tmp_path: Path, clock: list[float]
) -> None:
    config, folder = configured(corpus, "word", "training.validation_freq=60"), tmp_path / "out"
    assert train(config, folder, listener := Ticking(clock), budget=3) == "budget"
    assert listener.messages[-1].startswith("stopped by the budget after 3 updates; one with a larger budget")
    assert [(v.update, v.seconds) for v in listener.validations] == [(3, 3.0)]
    assert (folder / "model.safetensors").exists()
    [checkpoint] = list_checkpoints(folder / "checkpoints")
    progress = read_progress(checkpoint)
    assert (progress.since_validation, progress.seconds) == (0, 3.0)
    before = outcome(folder)
    assert train(config, folder, again := Ticking(clock), budget=3) == "budget"
    assert again.validations == []
    assert outcome(folder) == before
    assert train(config, folder, more := Ticking(clock), budget=5) == "budget"
    assert [(v.update, v.seconds) for v in more.validations] == [(5, 5.0)]
    assert train(config, folder, last := Ticking(clock), budget=1000) == "finished"
    assert [v.update for v in last.validations] == [12, 14], "60 sentences after the last one, and the end"


@pytest.mark.parametrize("stops", [(2,), (3,), (1, 2, 3)])
def test_a_budget_that_is_spent_in_parts_is_that_spent_at_once(
    corpus: Path, tmp_path: Path, clock: list[float], stops: tuple[int, ...]
) -> None:
    config = configured(corpus, "word", *DROPOUT)
    assert train(config, tmp_path / "whole", Ticking(clock), budget=3) == "budget"
    for _ in stops:
        with pytest.raises(Interrupted):
            train(config, tmp_path / "parts", Ticking(clock, *stops), budget=3)
    assert train(config, tmp_path / "parts", Ticking(clock), budget=3) == "budget"
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_the_last_validation_of_a_budget_is_made_again_where_it_was_interrupted(
    corpus: Path, tmp_path: Path, clock: list[float]
) -> None:
    config = configured(corpus, "word", "testing.batch_size=5")
    with in_batch(2, ask_to_end), pytest.raises(Interrupted):  # the first is measured before training
        train(config, tmp_path / "out", listener := Ticking(clock), budget=3)
    assert listener.messages[-1].startswith("stopped by the signal SIGTERM after 3 updates")
    member = Member("one", tmp_path / "word.yaml", (), tmp_path / "out")
    assert read_outcome(member, 3.0).status == "stopped"
    assert train(config, tmp_path / "out", listener := Ticking(clock), budget=3) == "budget"
    assert [v.update for v in listener.validations] == [3]
    assert read_outcome(member, 3.0).status == "budget"


def test_checkpoints_come_by_the_clock_too_and_change_nothing(
    corpus: Path, tmp_path: Path, clock: list[float]
) -> None:
    class Killed(BaseException):
        pass

    class Killer(Ticking):
        def update(self, progress: Progress, loss: float | None) -> None:
            super().update(progress, loss)
            if progress.update == 7:
                raise Killed

    train(
        configured(corpus, "word", *DROPOUT, "training.checkpoint_minutes=null"),
        tmp_path / "rare",
        Ticking(clock),
    )
    config, folder = (
        configured(corpus, "word", *DROPOUT, "training.checkpoint_minutes=0.033"),
        tmp_path / "often",
    )
    with pytest.raises(Killed):
        train(config, folder, Killer(clock))
    [checkpoint] = list_checkpoints(folder / "checkpoints")
    assert read_progress(checkpoint).update == 5, "eleven seconds after that of the validation, of update 4"
    train(config, folder, Ticking(clock))
    assert outcome(folder) == outcome(tmp_path / "rare")


def test_a_budget_that_an_update_exceeds_is_explained_before_and_after(
    corpus: Path, tmp_path: Path, clock: list[float]
) -> None:
    class Slow(Ticking):
        def update(self, progress: Progress, loss: float | None) -> None:
            clock[0] += 299
            super().update(progress, loss)

    config = configured(corpus, "word", "training.validation_freq=60")
    assert train(config, tmp_path, listener := Slow(clock), budget=5) == "budget"
    assert [message for message in listener.messages if message.startswith("5s of training: ")]
    assert listener.messages[-1].startswith(
        "stopped by the budget after 1 updates in 300s, more than the 5s "
    )
    assert [v.update for v in listener.validations] == [1]
    assert train(config, tmp_path, longer := Ticking(clock), budget=303) == "budget"
    assert not any("of training: " in message for message in longer.messages)
    assert "more than" not in longer.messages[-1]


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6))
def test_only_what_took_clearly_longer_than_its_budget_is_explained(seconds: float, budget: float) -> None:
    assert bool(overrun(seconds, budget)) == (seconds >= 1.2 * budget)
    assert overrun(seconds, None) == ""
