"""Ctrl-C pressed twice in `demo`, `sweep` and `reproduce`: all is saved, and the next call goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from cli.program import command
from experiments import forks
from experiments.fleets import wait_for

from caesura.cli import program as cli
from caesura.data.tensors import load_tensors
from caesura.experiments.processes import Children
from caesura.model_folder import WEIGHTS
from caesura.training.checkpoint import Progress, newest_progress
from caesura.training.journal import METRICS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_ignored_signals")]

UPDATES = 600  # more than are made before Ctrl-C comes
DEMO = f"""
from functools import partial
from caesura.cli import program as cli
from caesura.experiments import demo
from caesura.data.numerals import HeldOut
size = {{"updates": {UPDATES // 20}, "size": 100, "held_out": HeldOut(4, 4, 4, 4)}}
demo.run_demo = partial(demo.run_demo, scale=demo.Scale(**size, time_limit=600, demanding=False))
demo.SYSTEMS = {{name: demo.SYSTEMS[name] for name in ("act", "cif")}}
demo._report = lambda *_: None  # which takes longer than all else, when the trainings are done
cli.main()
"""


def interrupted(words: list[str], presses: tuple[float, ...], ready: Callable[[], object]) -> tuple[int, str]:
    """Status and output of a command that gets Ctrl-C when it is `ready`, and again after each pause."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        try:
            wait_for(lambda: ready() or running.poll() is not None)
            for pause in presses:
                time.sleep(pause)
                os.killpg(running.pid, signal.SIGINT)  # as a terminal does
            out, _ = running.communicate(timeout=300)
        except BaseException:
            running.kill()
            raise
    return running.returncode, out


def undisturbed(words: list[str], log: Path) -> tuple[int, str]:
    """The same without Ctrl-C, in a fork, and its trainings in forks of that."""
    with mock.patch.object(Children, "start", forks.start):
        run = partial(exec, DEMO, {}) if words[1] == "-c" else cli.main
        status = forks.fork(run, words[3:], log).wait()
    return status, log.read_text()


def trained(folder: Path) -> bool:
    """Whether updates have been made: the first line of the log is written after one."""
    return '"kind": "train"' in (folder / METRICS).read_text()


def commands(folder: Path, name: str) -> Callable[[Path], list[str]]:
    """The words of a command that trains models two at a time, by its --out."""
    updates = ("--set", f"training.updates={UPDATES}", "--set", "training.validation_freq=2000")
    return {
        "demo": lambda out: [sys.executable, "-c", DEMO, "demo", "--out", str(out)],
        "sweep": lambda out: command(
            *("sweep", folder / "word.yaml", "--over", "training.learning_rate=1e-2,1e-3", "--no-test"),
            *("--parallel", "2", "--out", out, *updates),
        ),
        "reproduce": lambda out: command(
            *("reproduce", folder, "--data", folder / "data", "--only", "word,act", "--parallel", "2"),
            *("--no-report", "--out", out, *updates),
        ),
    }[name]


def models(out: Path, name: str) -> list[Path]:
    """The folders in which a command has begun to train."""
    names = {"demo": "*-1", "sweep": "runs/*", "reproduce": "*-*-1"}
    return sorted(path.parent for path in out.glob(f"{names[name]}/{METRICS}"))


def weights(folder: Path) -> dict[str, list[float]]:
    return {name: value.flatten().tolist() for name, value in load_tensors(folder / WEIGHTS)[0].items()}


@pytest.mark.parametrize(
    ("name", "pause"),
    [
        ("demo", 0.1),
        pytest.param("sweep", 0.05, marks=pytest.mark.soak),
        pytest.param("reproduce", 0.15, marks=pytest.mark.soak),
    ],
)
def test_nothing_is_lost_and_the_end_is_that_of_an_undisturbed_run(
    recipe: Path, tmp_path: Path, name: str, pause: float
) -> None:
    words, out, whole = commands(recipe, name), tmp_path / "out", tmp_path / "whole"
    status, output = interrupted(words(out), (0.0, pause), lambda: sum(map(trained, models(out, name))) >= 2)
    assert status == 130, output
    folders = models(out, name)
    assert "killed" not in output
    assert "the same command goes on from here" in output.splitlines()[-1]
    reached = {folder: newest_progress(folder / "checkpoints") or Progress() for folder in folders}
    stopped = {folder: progress.update for folder, progress in reached.items() if not progress.finished}
    assert stopped  # the first may have come to its end before the second began
    for folder, updates in stopped.items():
        log = Path(f"{folder}.log").read_text()
        assert f"stopped by the signal SIGTERM after {updates} updates; the same command" in log
    for folder in (out, whole):
        status, output = undisturbed(words(folder), tmp_path / "log")
        assert status == 0, output
    assert [*map(weights, models(out, name))] == [*map(weights, models(whole, name))]
