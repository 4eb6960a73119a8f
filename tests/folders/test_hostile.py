"""Hostile model folders through the program: refused in a sentence, or a model; nothing is run or written."""

import json
import os
import random
import shutil
import signal
import subprocess
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cli.program import Done, caesura, command
from folders.hostile import TEXT, hostile_folder, judge, listing
from folders.test_strangers import little_memory
from helpers import ACT, ACT_DECODER, tiny_model

STDIN = "\n".join(TEXT).encode()
SEED = 1


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; not to be written to."""
    folder = tmp_path_factory.mktemp("hostile") / "original"
    tiny_model(ACT, decoder=ACT_DECODER).float().save_pretrained(folder)
    caesura("translate", folder, stdin=STDIN)  # what is loaded once
    return folder


def forked(folder: Path, seconds: int = 60) -> Done:
    """`translate` in a fork of this warm process, with half a gigabyte to spare."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            with little_memory(1 << 29):
                done = caesura("translate", folder, "--beam", 2, stdin=STDIN)
            os.write(theirs, json.dumps([done.status, done.out, done.err]).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        content = file.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{folder}: ended by signal {status}"
    return Done(*json.loads(content))


@pytest.mark.parametrize("rounds", [40, pytest.param(2000, marks=pytest.mark.soak)])
def test_a_hostile_folder_is_refused_or_translates_and_nothing_is_written(
    original: Path, tmp_path: Path, rounds: int
) -> None:
    rng, outcomes = random.Random(SEED + rounds), Counter[str]()
    for number in range(rounds):
        home = tmp_path / str(number)
        home.mkdir()
        (home / "secret").write_text("hunter2")
        folder, changes = hostile_folder(original, home, rng)
        before = listing(home)
        try:
            done = forked(folder)
            outcomes[judge(done)] += 1
            assert "hunter2" not in done.out + done.err
        except Exception as problem:
            raise AssertionError(f"round {number}: {changes}") from problem
        assert listing(home) == before, changes
        shutil.rmtree(home)
    print(dict(outcomes))
    assert outcomes["refused"] > rounds // 2
    assert outcomes["translated"] > 0


@pytest.mark.soak
def test_the_program_itself_refuses_hostile_folders_within_its_memory(original: Path, tmp_path: Path) -> None:
    rng, folders = random.Random(SEED), []
    for number in range(60):
        (tmp_path / str(number)).mkdir()
        folders.append(hostile_folder(original, tmp_path / str(number), rng))
    before = listing(tmp_path)

    def run(made: tuple[Path, str]) -> str:
        limited = ["bash", "-c", 'ulimit -v 6000000; exec "$@"', "bash", *command("translate", made[0])]
        ended = subprocess.run(limited, input=STDIN, capture_output=True, timeout=120)
        try:
            return judge(Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode()))
        except Exception as problem:
            raise AssertionError(made[1]) from problem

    with ThreadPoolExecutor(2) as pool:
        outcomes = Counter(pool.map(run, folders))
    print(dict(outcomes))
    assert listing(tmp_path) == before
