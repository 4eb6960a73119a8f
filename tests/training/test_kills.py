"""Killed at any moment, a run goes on and ends as an undisturbed one: the same bits, nothing left over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.program import write_config, write_corpus
from training.outcomes import outcome

from caesura.model import Translator

TEXT = ["eins zwei", "neun", "fünf sechs sieben acht"]
DROPOUT = ("model.encoder.dropout=0.3", "model.decoder.dropout=0.3")
BOUNDS = ("training.updates=14", "training.validation_freq=35", *DROPOUT)


def kill(folder: Path, how: str, first: int, second: int, system: str, *settings: str) -> dict[str, int]:
    """Have runs killed as `how` says, below `folder`/runs; what was."""
    config = write_config(folder / "config.yaml", system)
    program = [
        sys.executable,
        str(Path(__file__).parent / "killer.py"),
        how,
        str(config),
        str(folder / "runs"),
    ]
    done = subprocess.run(
        [*program, str(first), str(second), *settings],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def killed(folder: Path, how: str, first: int, second: int, system: str = "act") -> dict[str, int]:
    """What was killed: `first` at random moments with seed `second`, or at every `first`-th system call."""
    write_corpus(folder, train=45, dev=5)
    found = kill(folder, how, first, second, system, *BOUNDS)
    runs = [path for path in (folder / "runs").iterdir() if path.name != "whole"]
    whole = folder / "runs" / "whole"
    wanted, model = outcome(whole), Translator.from_pretrained(whole)
    for run in runs:
        assert outcome(run) == wanted, run.name
        assert Translator.from_pretrained(run).translate(TEXT) == model.translate(TEXT)
        assert {path.name for path in run.rglob("*")} == {path.name for path in whole.rglob("*")}
    return found


def test_killed_at_random_moments(tmp_path: Path) -> None:
    assert sum(killed(tmp_path, "clock", 4, 1).values()) == 4


def test_killed_at_some_system_calls(tmp_path: Path) -> None:
    assert killed(tmp_path, "calls", 61, 5)["system calls"] >= 2


@pytest.mark.parametrize(
    ("system", "kills"),
    [pytest.param("bpe", 30, marks=pytest.mark.slow), pytest.param("act-act", 40, marks=pytest.mark.soak)],
)
def test_killed_at_many_random_moments(tmp_path: Path, system: str, kills: int) -> None:
    found = killed(tmp_path, "clock", kills, 2, system)
    print(system, found)
    assert sum(found.values()) >= kills
    assert {"update", "validation", "checkpoint"} <= set(found), "in the middle of everything that takes long"


@pytest.mark.soak
def test_killed_before_and_after_the_system_calls_that_make_changes_last(tmp_path: Path) -> None:
    found = killed(tmp_path, "calls", 1, 1)
    print(found)
    assert found["system calls"] > 100
