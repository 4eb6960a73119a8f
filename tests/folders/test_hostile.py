"""Hostile model folders through the program: refused in a sentence, or a model; nothing is run or written."""

import json
import os
import random
import shutil
import signal
import subprocess
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli.program import Done, caesura, command
from folders.hostile import TEXT, hostile_folder, judge, listing
from folders.test_golden import GOLDEN
from folders.test_strangers import little_memory
from helpers import ACT, ACT_DECODER, tiny_model

STDIN = "\n".join(TEXT).encode()


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Model folders, one of them with n-grams and one with a GRU that cuts; not to be written to."""
    folder = tmp_path_factory.mktemp("hostile") / "act"
    tiny_model(ACT, decoder=ACT_DECODER).float().save_pretrained(folder)
    folders = [folder, GOLDEN / "format7-entropy", GOLDEN / "format7-gru"]
    for path in folders:
        assert judge(caesura("translate", path, stdin=STDIN)) == "translated"  # what is loaded once
    return folders


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


def drawn(originals: Sequence[Path], home: Path, rng: random.Random) -> tuple[Path, str]:
    """A hostile folder beside a secret, in a new folder; what was changed."""
    home.mkdir()
    (home / "secret").write_text("hunter2")
    return hostile_folder(originals, home, rng)


def check(outcomes: Counter[str], changes: str, done: Done) -> None:
    """Count how a command on such a folder ended, if it was a good end."""
    try:
        outcomes[f"{changes.split(',')[0]} {judge(done)}"] += 1
        assert "hunter2" not in done.out + done.err
    except Exception as problem:
        raise AssertionError(changes) from problem


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [
        pytest.param(0, 60, marks=pytest.mark.slow),
        *(pytest.param(seed, 500, marks=pytest.mark.soak) for seed in range(1, 5)),
    ],
)
def test_a_hostile_folder_is_refused_or_translates_and_nothing_is_written(
    originals: list[Path], tmp_path: Path, seed: int, rounds: int
) -> None:
    rng, outcomes = random.Random(seed), Counter[str]()
    for number in range(rounds):
        home = tmp_path / str(number)
        folder, changes = drawn(originals, home, rng)
        before = listing(home)
        check(outcomes, f"{changes}, round {number}", forked(folder))
        assert listing(home) == before, changes
        shutil.rmtree(home)
    print(dict(outcomes))
    for original in originals:
        assert outcomes[f"{original.name} refused"] > rounds // (2 * len(originals))
        assert outcomes[f"{original.name} translated"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_the_program_itself_refuses_hostile_folders_within_its_memory(
    originals: list[Path], tmp_path: Path, seed: int
) -> None:
    rng, outcomes = random.Random(seed), Counter[str]()
    for number in range(15):
        folder, changes = drawn(originals, tmp_path / str(number), rng)
        before = listing(tmp_path)
        limited = ["bash", "-c", 'ulimit -v 6000000; exec "$@"', "bash", *command("translate", folder)]
        ended = subprocess.run(limited, input=STDIN, capture_output=True, timeout=120)
        check(outcomes, changes, Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode()))
        assert listing(tmp_path) == before, changes
    print(dict(outcomes))
