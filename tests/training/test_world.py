"""Several processes make the updates of one, whatever rows each of them gets, and end together."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import write_config, write_corpus
from experiments.forks import Fork, fork
from safetensors.torch import load_file
from training import ranks
from training.outcomes import DROPOUT, outcome, records
from wording import wording

from caesura.training import loop
from caesura.training.checkpoint import list_checkpoints, read_progress

READER = "reader: {type: bigru, embedding_dim: 8, size: 8}"
CIF = f"model.segmenter={{{READER}, cutter: cif, pooling: weighted, rate: {{target: 3.0}}}}"
SYSTEMS = {
    "char": ("char", ()),
    "act": ("act", ("model.segmenter.rate={target: 3.0, by: pi}", "model.segmenter.tau=0")),
    "cif": ("char", (CIF,)),
}
WITHIN = 120  # seconds for a program: a defect may make processes wait for each other


@contextmanager
def processes(size: int, jobs: list[dict[str, Any]]) -> Iterator[list[Fork]]:
    """So many processes that train together, forks of this one; none is left at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    started = [
        fork(
            partial(ranks.main, jobs),
            [],
            Path(f"{jobs[0]['folder']}.log{rank}"),
            {**place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def together(size: int, *jobs: dict[str, Any]) -> None:
    """Train with so many processes to the end."""
    with processes(size, [*jobs]) as started:
        statuses = [process.wait(WITHIN) for process in started]
    assert statuses == [0] * size, [process.log.read_text() for process in started]


def job(corpus: Path, folder: Path, system: str, *settings: str, **wrong: Any) -> dict[str, Any]:
    name, options = SYSTEMS[system]
    config = write_config(corpus / f"{name}.yaml", name)
    bounds = "training.updates=10", "training.validation_freq=50"
    return {"config": str(config), "folder": str(folder), "settings": [*bounds, *options, *settings], **wrong}


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loop, "LOG_EVERY", 4)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    [checkpoint] = list_checkpoints(folder / "checkpoints")
    return {name: value for name, value in load_file(checkpoint).items() if not name.startswith("random.")}


def near(value: Any, expected: Any) -> bool:
    """Whether two results are the same but for rounding."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(near(value[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(near, value, expected))
    return (
        value == pytest.approx(expected, rel=1e-9, abs=1e-12)
        if isinstance(expected, float)
        else value == expected
    )


def check_equal(folder: Path, expected: Path) -> None:
    """The weights and moments of two runs are equal to 1e-12, and so is what they logged."""
    for name, value in weights(expected).items():
        torch.testing.assert_close(weights(folder)[name], value, rtol=0, atol=1e-12, msg=name)
    assert near(outcome(folder)["metrics"], outcome(expected)["metrics"])
    assert near(outcome(folder)["progress"], outcome(expected)["progress"])


@pytest.mark.usefixtures("in_float64")
def test_two_processes_make_the_updates_of_one(tmp_path: Path) -> None:
    """41 sentences in batches of 10: of the last batch, one process has no row."""
    write_corpus(tmp_path, train=41, dev=5)
    jobs = [job(tmp_path, tmp_path / f"{system} by two", system) for system in SYSTEMS]
    jobs.append(job(tmp_path, tmp_path / "poisoned by two", "char", poisoned={"1": 3}))
    together(2, *jobs)
    for system in SYSTEMS:
        ranks.trained(job(tmp_path, tmp_path / system, system))
        check_equal(tmp_path / f"{system} by two", tmp_path / system)
    ranks.trained(job(tmp_path, tmp_path / "poisoned", "char", poisoned={"0": 3}))
    assert len(records(tmp_path / "poisoned by two", "skipped")) == 1
    check_equal(tmp_path / "poisoned by two", tmp_path / "poisoned")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, and in `whole` a run of two processes with dropout."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_corpus(folder, train=45, dev=5)
    together(2, job(folder, folder / "whole", "char", *DROPOUT))
    return folder


@pytest.mark.usefixtures("in_float64")
def test_a_signal_to_one_process_stops_all_and_any_number_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    first = job(undisturbed, tmp_path / "two, then one", "char", stopped={"1": 6})
    second = job(undisturbed, tmp_path / "one, then two", "char", stopped={"0": 4})
    ranks.trained(second)
    drawn = job(undisturbed, tmp_path / "two, then two", "char", *DROPOUT, stopped={"0": 7})
    together(2, first, second, drawn)
    for folder, update in ((first["folder"], 6), (drawn["folder"], 7)):
        [checkpoint] = list_checkpoints(Path(folder) / "checkpoints")
        assert read_progress(checkpoint).update == update
    together(2, drawn)
    assert outcome(Path(drawn["folder"])) == outcome(undisturbed / "whole")
    ranks.trained(job(undisturbed, tmp_path / "one", "char"))
    ranks.trained(first)
    for run in (first, second):
        check_equal(Path(run["folder"]), tmp_path / "one")


def test_when_one_process_dies_all_end_with_one_sentence_and_the_next_start_goes_on(
    undisturbed: Path, tmp_path: Path
) -> None:
    settings = "training.checkpoint_minutes=1e-9", *DROPOUT
    killed = job(undisturbed, tmp_path / "run", "char", *settings, killed={"1": 6})
    with processes(2, [killed]) as [left, dying]:
        assert dying.wait(WITHIN) == -signal.SIGKILL
        began = time.monotonic()
        assert left.wait(WITHIN) == 1
        assert time.monotonic() - began < 5
    printed = left.log.read_text()
    assert wording(printed).startswith("caesura: another process")
    assert printed.count("\n") == 1
    together(2, killed | {"killed": {}})
    assert outcome(tmp_path / "run") == outcome(undisturbed / "whole")
