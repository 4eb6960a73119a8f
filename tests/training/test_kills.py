"""Killed at any moment, a run goes on and ends as an undisturbed one: the same bits, nothing left over."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from cli.program import write_config, write_corpus
from training.outcomes import outcome

from caesura.inference import Translator

TEXT = ["eins zwei", "neun", "fünf sechs sieben acht"]
DROPOUT = ("model.encoder.dropout=0.3", "model.decoder.dropout=0.3")
BOUNDS = ("training.updates=14", "training.validation_freq=35", "training.keep_best=2", *DROPOUT)


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
    stages: dict[str, int] = json.loads(done.stdout)
    return stages


def killed(
    folder: Path, how: str, first: int, second: int, system: str = "act", *settings: str
) -> dict[str, int]:
    """What was killed: `first` at random moments with seed `second`, or at every `first`-th system call."""
    write_corpus(folder, train=45, dev=5)
    moments = kill(folder, how, first, second, system, *BOUNDS, *settings)
    runs = [path for path in (folder / "runs").iterdir() if path.name != "whole"]
    whole = folder / "runs" / "whole"
    expected, model = outcome(whole), Translator.from_pretrained(whole)
    for run in runs:
        assert outcome(run) == expected, run.name
        assert Translator.from_pretrained(run).translate(TEXT) == model.translate(TEXT)
        assert {path.name for path in run.rglob("*")} == {path.name for path in whole.rglob("*")}
    return moments


@pytest.mark.slow
def test_killed_at_some_system_calls(tmp_path: Path) -> None:
    assert killed(tmp_path, "calls", 61, 5)["system calls"] >= 2


LONG = {"update", "validation", "checkpoint"}


@pytest.mark.slow
def test_killed_at_many_random_moments(tmp_path: Path) -> None:
    stages = killed(tmp_path, "clock", 15, 2)
    assert sum(stages.values()) >= 15
    assert set(stages) >= LONG, "in the middle of everything that takes long"


READER = "reader: {type: bigru, embedding_dim: 8, size: 8}"
FORMS = [
    ("act-act",),
    ("char", f"model.segmenter={{{READER}, cutter: cif, pooling: weighted, rate: {{target: 3.0}}}}"),
    ("char", f"model.segmenter={{{READER}, cutter: bernoulli, pooling: mean, rate: {{target: 3.0}}}}"),
    ("act", "model.segmenter.tau=0", "model.segmenter.rate={target: 3.0, by: pi}"),
    ("bpe", "data.joint=true"),
]
OBJECTIVES = [
    ("training.label_smoothing=0.1",),
    ("training.sampling=0.5", "training.sampling_updates=10"),
    ("training.risk_candidates=2", "training.risk_after=3"),
]


def drawn(rng: random.Random) -> list[str]:
    """How a run is trained."""
    choices = {
        "training.seed": range(100),
        "training.clip_grad_norm": ("null", 0.1, 1.0),
        "training.warmup": (0, 5),
        "training.patience": (1, 3),
        "training.max_halvings": (1, 10),
        "training.normalization": ("symbols", "sentences"),
        "model.encoder.num_layers": (1, 2),
    }
    # With checkpoints by the clock, only the last one is the same in two runs.
    keep, minutes = rng.choice([(1, 0.0005), (1, 0.005), (2, "null"), (3, "null")])
    kept = [f"training.keep_last={keep}", f"training.checkpoint_minutes={minutes}"]
    return [*kept, *(f"{key}={rng.choice(values)}" for key, values in choices.items())]


@pytest.mark.soak
@pytest.mark.parametrize("half", [0, 1])
def test_killed_at_random_moments_under_random_configs(tmp_path: Path, half: int) -> None:
    rng, kills = random.Random(half), Counter[str]()
    for chain in range(6 * half, 6 * half + 6):  # both halves: each form with each objective
        (system, *form), objective = FORMS[chain % len(FORMS)], OBJECTIVES[chain % len(OBJECTIVES)]
        (folder := tmp_path / str(chain)).mkdir()
        stages = killed(folder, "clock", 13, chain, system, *form, *objective, *drawn(rng))
        print(system, *objective, stages, flush=True)
        kills += Counter(stages)
    print(dict(kills))
    assert sum(kills.values()) >= 75
    assert set(kills) >= LONG


@pytest.mark.soak
def test_killed_before_and_after_the_system_calls_that_make_changes_last(tmp_path: Path) -> None:
    stages = killed(tmp_path, "calls", 1, 1)
    print(stages)
    assert stages["system calls"] > 100
