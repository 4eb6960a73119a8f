"""A run folder that is removed, moved or taken over during training: nothing is written there any more."""

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.program import caesura, command, contents, refusal, write_config, write_corpus
from training.outcomes import DROPOUT, Listener, configured, in_batch, outcome, run, stopped
from wording import refuses

from caesura.data.files import write_beside
from caesura.data.held import make_folder
from caesura.data.tensors import load_tensors, save_tensors
from caesura.errors import InputError, TrainingError
from caesura.training.checkpoint import list_checkpoints
from caesura.training.lock import LOCK, hold
from caesura.training.loop import train

pytestmark = pytest.mark.usefixtures("frequent_log")
NEVER = 10**9  # calls


@pytest.fixture(scope="module")
def other(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of another run, which a process still holds; not to be written to."""
    folder = tmp_path_factory.mktemp("other") / "out"
    assert train(configured(corpus, "word", "training.seed=2"), folder, Listener()) == "finished"
    (folder / LOCK).write_text("{}")
    return folder


def removed(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)


def moved(folder: Path, other: Path) -> None:
    folder.rename(folder.with_name("moved"))


def taken_over(folder: Path, other: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


ENDS = [removed, moved, taken_over]


def untouched(folder: Path, other: Path, end: Callable[[Path, Path], None]) -> bool:
    return contents(folder) == contents(other) if end is taken_over else not folder.exists()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("moment", ["update", "validation"])
def test_a_run_that_lost_its_folder_ends_and_writes_nothing(
    corpus: Path, other: Path, tmp_path: Path, end: Callable[[Path, Path], None], moment: str
) -> None:
    folder, config = tmp_path / "out", configured(corpus)
    reporter = Listener()

    def act() -> None:
        end(folder, other)

    def update(progress: Any, loss: float | None) -> None:
        if moment == "update" and progress.update == 6:
            act()

    reporter.update = update  # type: ignore[method-assign]
    # The dev set has two batches, which are measured before training too.
    with in_batch(4 if moment == "validation" else NEVER, act), pytest.raises(TrainingError) as caught:
        train(config, folder, reporter)
    assert str(caught.value).startswith(f"{folder}: ")
    assert untouched(folder, other, end)


@pytest.mark.parametrize("end", ["moved", "removed"])
def test_a_run_in_a_relative_folder_notices_that_the_current_one_is_lost(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Then the same relative path would lead elsewhere, or nowhere."""
    here, reporter = tmp_path / "here", Listener()
    here.mkdir()
    config = configured(corpus)
    monkeypatch.chdir(here)

    def update(progress: Any, loss: float | None) -> None:
        if progress.update == 6:
            if end == "moved":
                here.rename(tmp_path / "elsewhere")
            shutil.rmtree((tmp_path / "elsewhere" / "out") if end == "moved" else here)

    reporter.update = update  # type: ignore[method-assign]
    with refuses(TrainingError, f"{tmp_path}/here/out: "):
        train(config, Path("out"), reporter)
    assert not [*tmp_path.rglob("out")]


def lost_at_call(number: int, folder: Path, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `act` done before the call of this number that makes a change last."""
    numbers = itertools.count(1)

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            if next(numbers) == number:
                act()
            return function(*given, **named)

        return called

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, within(getattr(os, name)))


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.soak)])
def test_a_folder_that_is_lost_while_something_is_written(
    corpus: Path, other: Path, tmp_path: Path, every: int
) -> None:
    config, lost = configured(corpus), 0
    for number in itertools.count(1, every):
        folder, end = tmp_path / str(number) / "out", ENDS[number % 3]
        done: list[int] = []

        def act(folder: Path = folder, end: Any = end, done: list[int] = done) -> None:
            done.append(1)
            end(folder, other)

        with pytest.MonkeyPatch.context() as monkeypatch:
            lost_at_call(number, folder, act, monkeypatch)
            try:
                assert train(config, folder, Listener()) == "finished"
                assert not done
                break  # it does not have so many calls
            except TrainingError as problem:
                message = str(problem)
        assert message.startswith(f"{folder}: ")
        assert untouched(folder, other, end), (number, end)
        lost += 1
    print("lost", lost)
    assert lost >= 4


@pytest.mark.parametrize("name", ["metrics.jsonl", "validations.tsv"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_is_removed_or_replaced_ends_the_run(
    corpus: Path, tmp_path: Path, name: str, replaced: bool
) -> None:
    folder = tmp_path / "out"

    def act() -> None:
        (folder / name).unlink()
        if replaced:
            (folder / name).write_text("mine")

    with in_batch(4, act), pytest.raises(TrainingError) as caught:
        train(configured(corpus), folder, Listener())
    assert str(caught.value).startswith(f"{folder / name}: ")
    assert (folder / name).exists() == replaced
    assert not replaced or (folder / name).read_text() == "mine"


@pytest.mark.parametrize("end", ENDS)
def test_what_is_done_in_a_held_folder_that_is_lost_makes_no_folder_or_file(
    tmp_path: Path, other: Path, end: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "out"

    def work() -> None:
        with write_beside(folder / "before") as file:
            file.write(b"1")
        end(folder, other)
        with pytest.raises(TrainingError):
            make_folder(folder / "runs")
        with pytest.raises(TrainingError), write_beside(folder / "after"):
            pass
        with write_beside(tmp_path / "outer") as file:  # which nobody holds
            file.write(b"1")

    with pytest.raises(TrainingError), hold(folder, print):  # though the work itself came to its end
        work()
    assert untouched(folder, other, end)
    assert (tmp_path / "outer").exists()


def test_a_checkpoint_of_another_config_is_refused_whatever_the_folder_says(
    corpus: Path, tmp_path: Path
) -> None:
    ours, theirs = configured(corpus, "word"), configured(corpus, "word", "training.seed=2")
    run(ours, tmp_path / "a", 6)
    run(theirs, tmp_path / "b", 6)
    for path in list_checkpoints(tmp_path / "a" / "checkpoints"):
        shutil.copy(path, tmp_path / "b" / "checkpoints")
    config = corpus / "word.yaml"
    bounds = ("training.updates=14", "training.validation_freq=35", "training.keep_last=1", "training.seed=2")
    words = [word for setting in bounds for word in ("--set", setting)]
    before = contents(tmp_path / "b")
    message = refusal(caesura("train", config, *words, "--out", tmp_path / "b"))
    assert message.startswith(f"{path.parents[2]}/b/checkpoints/{path.name}: ")
    assert "training.seed: 1 -> 2" in message
    assert contents(tmp_path / "b") == before


def test_a_checkpoint_of_an_earlier_version_has_no_config_and_goes_on(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "word", *DROPOUT)
    run(config, tmp_path / "whole")
    stopped(config, tmp_path / "old", 6)
    [path] = list_checkpoints(tmp_path / "old" / "checkpoints")
    tensors, facts = load_tensors(path)
    assert facts.pop("config")["training"]["seed"] == 1
    save_tensors(path, tensors, facts)
    run(config, tmp_path / "old")
    assert outcome(tmp_path / "old") == outcome(tmp_path / "whole")


def test_a_config_in_a_checkpoint_that_is_none_is_damage(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "word")
    run(config, tmp_path)
    [path] = list_checkpoints(tmp_path / "checkpoints")
    tensors, facts = load_tensors(path)
    for wrong in ([], {"name": 1}, "seed", {**facts["config"], "model": None}):
        save_tensors(path, tensors, facts | {"config": wrong})
        with refuses(InputError, f"{tmp_path}/checkpoints: "):
            train(config, tmp_path, Listener())


@pytest.mark.slow
def test_a_stopped_training_whose_folder_another_took_leaves_it_alone(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config, out = write_config(tmp_path / "c.yaml", "word"), tmp_path / "out"
    words = ("train", config, "--out", out, "--set")
    first = subprocess.Popen(
        command(*words, "training.updates=1000000"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 300
        while not (out / "model.safetensors").exists():
            assert first.poll() is None, first.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        shutil.rmtree(out)
        assert caesura(*words, "training.seed=2").status == 0
        before = contents(out)
        first.send_signal(signal.SIGCONT)
        message = first.communicate(timeout=300)[1].decode()
    finally:
        first.kill()
        first.communicate()
    assert first.returncode == 1
    assert message.startswith(f"caesura: {out}: ")
    assert message.count("\n") == 1
    assert contents(out) == before
