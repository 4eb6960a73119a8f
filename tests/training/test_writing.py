"""Checkpoints are written while training goes on, and what depends on them waits."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training.outcomes import Listener, configured, outcome
from training.test_checkpoint import setting, steps
from wording import refuses

from caesura.errors import InputError
from caesura.inference import Translator
from caesura.training import loop, start
from caesura.training import run as module
from caesura.training.checkpoint import (
    Progress,
    Snapshot,
    list_checkpoints,
    load_checkpoint,
    read_progress,
    save_checkpoint,
    snapshot,
)
from caesura.training.lock import hold
from caesura.training.loop import train

pytestmark = pytest.mark.usefixtures("frequent_log")


class Gate:
    """Has something done before the first checkpoint of an update is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, update: int, before: Callable[[], None]) -> None:
        self.update, self.before = update, before
        monkeypatch.setattr(module, "save_checkpoint", self._save)

    def _save(self, folder: Path, state: Snapshot, keep: int) -> Path:
        if state.progress["update"] == self.update:
            self.update = -1
            self.before()
        return save_checkpoint(folder, state, keep)


def test_a_snapshot_is_of_its_moment(tmp_path: Path) -> None:
    model, optimizer = setting(0)
    steps(model, optimizer, 3)
    progress = Progress(update=3, window={"loss": 1.0})
    state = snapshot(model, optimizer, progress)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    drawn = torch.rand(4)
    steps(model, optimizer, 2)
    progress.update, progress.window["loss"] = 5, 2.0
    path = save_checkpoint(tmp_path, state, keep=1)
    other, its_optimizer = setting(1)
    assert load_checkpoint(path, other, its_optimizer) == Progress(update=3, window={"loss": 1.0})
    assert all(value.equal(expected[name]) for name, value in other.state_dict().items())
    assert its_optimizer.state_dict()["state"][0]["exp_avg"].equal(moments)
    assert torch.rand(4).equal(drawn)


def test_updates_go_on_meanwhile_and_the_next_validation_waits(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of the first validation, after update 4, is held up; the second is after update 8."""
    listener, opened, evaluated = Listener(), threading.Event(), []
    evaluate = loop.evaluate

    def watched(*given: object, **named: object) -> object:
        evaluated.append(opened.is_set())
        return evaluate(*given, **named)  # type: ignore[arg-type]

    def wait() -> None:
        deadline = time.monotonic() + 300
        while len(listener.rates) < 8:  # updates, all that come before the second validation
            assert time.monotonic() < deadline, "training waits for its checkpoint"
            time.sleep(0.01)
        time.sleep(0.2)
        opened.set()

    monkeypatch.setattr(loop, "evaluate", watched)
    Gate(monkeypatch, 4, wait)
    train(configured(corpus), tmp_path / "out", listener)
    assert evaluated == [False, True, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2, 3])
@pytest.mark.parametrize("update", [0, 6])
@pytest.mark.usefixtures("no_ignored_signals")
def test_the_folder_is_held_until_the_last_checkpoint_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int, signals: int
) -> None:
    """Of the checkpoint at the start, and of that where a signal has stopped it."""
    folder, refused = tmp_path / "out", []

    def interrupt() -> None:
        for _ in range(signals - (update > 0)):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        try:
            with hold(folder, print):
                pass
        except InputError as problem:
            refused.append(str(problem))

    Gate(monkeypatch, update, interrupt)
    with pytest.raises((loop.Interrupted, KeyboardInterrupt)):
        train(configured(corpus), folder, Listener(*([update] if update else [])))
    assert len(refused) == 1
    assert [read_progress(path).update for path in list_checkpoints(folder / "checkpoints")] == [update]
    assert threading.active_count() == 1
    train(configured(corpus), folder, Listener())
    monkeypatch.undo()
    monkeypatch.setattr(loop, "LOG_EVERY", 4)
    train(configured(corpus), tmp_path / "whole", Listener())
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_run_is_closed_though_ctrl_c_comes_as_soon_as_it_is_open(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any) -> None:
        run, _ = start.open_run(*given)
        Gate(monkeypatch, 0, lambda: time.sleep(0.3))
        run.save()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "open_run", interrupted)
    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        train(configured(corpus), tmp_path, Listener())
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize("signals", [0, 2])
@pytest.mark.usefixtures("no_ignored_signals")
def test_a_checkpoint_that_could_not_be_written_ends_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    def fail() -> None:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        raise OSError(errno.ENOSPC, "No space left on device")

    Gate(monkeypatch, 4, fail)
    listener, folder = Listener(), tmp_path / "out"
    with pytest.raises(OSError, match="No space"):
        train(configured(corpus), folder, listener)
    assert len(listener.validations) == 1, "it ends before the next validation"
    assert [read_progress(path).update for path in list_checkpoints(folder / "checkpoints")] == [0]


def test_a_validation_is_saved_before_it_is_told(corpus: Path, tmp_path: Path) -> None:
    class Deaf(Listener):
        def validation(self, *_: object) -> None:
            raise OSError(errno.EIO, "the terminal is gone")

    with pytest.raises(OSError, match="is gone"):
        train(configured(corpus), tmp_path, Deaf())
    assert read_progress(list_checkpoints(tmp_path / "checkpoints")[-1]).update == 4


def test_a_validation_that_fails_saves_what_it_was_to_judge(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise RuntimeError("a search that fails")

    monkeypatch.setattr(loop, "evaluate", broken)
    with pytest.raises(RuntimeError, match="a search that fails"):
        train(configured(corpus), tmp_path, Listener())
    assert read_progress(list_checkpoints(tmp_path / "checkpoints")[-1]).update == 4


@pytest.mark.slow
def test_the_model_of_a_run_that_goes_on_with_another_bound_stays_whole(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("training.learning_rate=0.02", "training.patience=null")
    train(configured(corpus, "word", *settings, "training.updates=8"), tmp_path / "out", Listener())
    before = Translator.from_pretrained(tmp_path / "out").state_dict()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("caesura.model_folder.save_tensors", full)
    raised = configured(corpus, "word", *settings, "training.updates=200")
    with pytest.raises(OSError, match="No space"):  # at the next best
        train(raised, tmp_path / "out", Listener())
    after = Translator.from_pretrained(tmp_path / "out").state_dict()
    assert all(value.equal(before[name]) for name, value in after.items())
    monkeypatch.undo()
    lower = configured(corpus, "word", *settings, "training.updates=9")
    train(raised, tmp_path / "out", Listener())
    with refuses(InputError, "", "200 updates", "training.updates=9"):
        train(lower, tmp_path / "out", Listener())
