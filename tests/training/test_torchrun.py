"""`torchrun -m caesura train` as users start it, and what they may do wrong."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from cli.program import caesura, refusal, write_config, write_corpus
from torch import distributed
from training.outcomes import DROPOUT, outcome
from wording import refuses, wording

from caesura.config import load_config
from caesura.errors import InputError
from caesura.signals import SHOW_CURSOR
from caesura.training import start, world
from caesura.training.checkpoint import list_checkpoints

ENVIRONMENT = (world.SIZE, world.RANK, world.LOCAL, world.ADDRESS, world.PORT, world.VISIBLE)
WITHIN = 120  # seconds


@contextmanager
def torchrun(folder: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Two processes that train in `folder`/run and save after every update; none is left at the end."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    settings = "training.checkpoint_minutes=1e-9", "training.keep_last=1", *DROPOUT
    train = ["train", str(folder / "char.yaml"), "--out", str(folder / "run")]
    with subprocess.Popen(
        [*command, "-m", "caesura", *train, *(f"--set={setting}" for setting in settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as launcher:
        try:
            yield launcher
        finally:
            for pid in [*workers(launcher), launcher.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def workers(launcher: "subprocess.Popen[str]") -> list[int]:
    """The processes that torchrun has started."""
    path = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def wait_for_update(folder: Path, update: int) -> None:
    """Until a run has saved one as late as this."""
    deadline = time.monotonic() + WITHIN
    while not any(int(path.stem) >= update for path in list_checkpoints(folder / "run" / "checkpoints")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    write_corpus(tmp_path, train=41, dev=5)
    write_config(tmp_path / "char.yaml")
    return tmp_path


def said(printed: str) -> list[str]:
    """The sentences of the program among the lines that torchrun prints."""
    return [line for line in printed.splitlines() if line.startswith(("caesura: ", "stopped by", "going on"))]


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_and_ends(corpus: Path) -> None:
    with torchrun(corpus) as launcher:
        wait_for_update(corpus, 3)
        began = time.monotonic()
        launcher.send_signal(signal.SIGTERM)
        printed = launcher.communicate(timeout=WITHIN)[0]
        assert time.monotonic() - began < 20, "torchrun kills what goes on for 30 seconds"
    assert launcher.returncode == 1
    [sentence] = said(printed)
    update = int(list_checkpoints(corpus / "run" / "checkpoints")[-1].stem)
    assert sentence.startswith(f"stopped by the signal SIGTERM after {update} updates")
    assert "parameters on cpu, 2 processes" in printed
    assert not (corpus / "run" / ".lock").exists()


@pytest.mark.slow
def test_torchrun_starts_again_after_a_kill_and_a_run_ends_as_one_undisturbed(corpus: Path) -> None:
    with torchrun(corpus) as launcher:
        launcher.communicate(timeout=WITHIN)
    assert launcher.returncode == 0
    (corpus / "run").rename(corpus / "undisturbed")
    with torchrun(corpus, "--max-restarts=1") as launcher:
        wait_for_update(corpus, 3)
        os.kill(workers(launcher)[0], signal.SIGKILL)
        printed = launcher.communicate(timeout=WITHIN)[0]
    assert launcher.returncode == 0
    assert [line.partition(" ")[0] for line in said(printed)] == ["caesura:", "going"], printed
    assert outcome(corpus / "run") == outcome(corpus / "undisturbed")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variables of torchrun; what a test sets is gone after it, whoever sets it."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    "variables",
    [
        {"WORLD_SIZE": "2"},
        {"WORLD_SIZE": "two", "RANK": "0"},
        {"WORLD_SIZE": "2", "RANK": "0"},
        {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ""},
    ],
)
def test_variables_that_torchrun_did_not_set_are_refused(
    environment: pytest.MonkeyPatch, corpus: Path, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    assert "torchrun" in wording(refusal(caesura("train", corpus / "char.yaml", "--out", corpus / "run")))


@pytest.mark.parametrize("arrives", [False, True])
def test_a_process_does_not_wait_for_ever_for_the_others(
    environment: pytest.MonkeyPatch, corpus: Path, arrives: bool
) -> None:
    """One that is seen may be out of reach, as behind an address that is not that of its network."""
    monkeypatch, variables = environment, {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables["MASTER_PORT"] = str(free.getsockname()[1])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(world, "ARRIVAL", timedelta(seconds=WITHIN if arrives else 0.1))
    name_of_start, port = world._name_of_start, int(variables["MASTER_PORT"])

    def arrive() -> None:
        store = distributed.TCPStore("127.0.0.1", port, 2, False, timedelta(seconds=WITHIN))
        name_of_start(store, 1, 2)

    def agreed(*given: Any) -> str:
        name = name_of_start(*given)
        monkeypatch.setattr(world, "ARRIVAL", timedelta(seconds=0.1))
        return name

    monkeypatch.setattr(world, "_name_of_start", agreed)
    with ThreadPoolExecutor(1) as threads:
        if arrives:
            threads.submit(arrive)
        message = refusal(caesura("train", corpus / "char.yaml", "--out", corpus / "run"), status=1)
    start, _, reason = message.partition(": ")
    assert "do not find each other" in wording(start)
    assert ("clients joined" in reason) is not arrives


@pytest.mark.parametrize(
    ("visible", "local", "sees"),
    [(None, 3, "3"), ("2,5", 1, "5"), ("2,5", 2, ""), ("GPU-4f,GPU-77", 0, "GPU-4f")],
)
def test_each_process_sees_one_gpu_or_none(
    environment: pytest.MonkeyPatch, visible: str | None, local: int, sees: str
) -> None:
    if visible is not None:
        environment.setenv(world.VISIBLE, visible)
    world._use_own_gpu(local)
    assert os.environ[world.VISIBLE] == sees


def test_a_process_that_ends_in_the_midst_of_a_bar_shows_the_cursor_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What `end` needs of a process, and of its exit."""
    monkeypatch.setattr(os, "isatty", lambda stream: stream == 2)
    monkeypatch.setattr(os, "_exit", sys.exit)
    process = world.Launched.__new__(world.Launched)
    process._ending, process._store = Lock(), distributed.HashStore()
    with pytest.raises(SystemExit, match="1"):
        process.end(world.LostError("a sentence"))
    assert capfd.readouterr().err == "caesura: a sentence\n" + SHOW_CURSOR.decode()


@pytest.mark.parametrize("command", ["demo", "reproduce", "sweep"])
def test_commands_that_start_trainings_are_refused_in_several_processes(
    environment: pytest.MonkeyPatch, command: str
) -> None:
    environment.setenv("WORLD_SIZE", "2")
    environment.setenv("RANK", "0")
    assert command in wording(refusal(caesura(command, *(["x"] if command != "demo" else []))))
    environment.setenv("RANK", "1")
    done = caesura(command, *(["x"] if command != "demo" else []))
    assert (done.status, done.err) == (2, ""), "one sentence is enough"


class SomeWithout(world.World):
    """A world of which another process has no GPU."""

    def any(self, flag: bool) -> bool:
        return True


def test_more_processes_than_gpus_are_refused(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = load_config(corpus / "char.yaml", ["training.device=auto"])
    with refuses(InputError, "--set training.device=auto", "as many on each machine as it has GPUs"):
        start._device(config, SomeWithout())
