"""Standard streams that are closed, full or unread: training goes on, and nothing is lost in silence."""

import os
import shlex
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli.program import command, write_config
from cli.test_demo import PROGRAM
from experiments.fleets import write_text
from experiments.recipes import RECIPE

from caesura.cli.program import main
from caesura.experiments.recipe import FILE
from caesura.streams import open_streams
from caesura.training.checkpoint import list_checkpoints, read_progress

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")

NAMES = ("stdin", "stdout", "stderr")
TEXT = "eins zwei\nquatsch\ndrei\n"
# What is wrong with streams, by their numbers; the others are files.
WRONG = {
    "<&-": {0: "closed"},
    ">&-": {1: "closed"},
    "2>&-": {2: "closed"},
    ">&- 2>&-": {1: "closed", 2: "closed"},
    "<&- >&- 2>&-": {0: "closed", 1: "closed", 2: "closed"},
    "> /dev/full": {1: "full"},
    "2> /dev/full": {2: "full"},
    "> /dev/full 2>&1": {1: "full", 2: "full"},
    "| true": {1: "unread"},
    "2>&1 | true": {1: "unread", 2: "unread"},
}


def opened(number: int, how: str, folder: Path) -> int:
    """A descriptor for a standard stream."""
    if how == "unread":
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    if how == "full":
        return os.open("/dev/full", os.O_WRONLY)
    path = folder / NAMES[number]
    if number == 0:
        path.write_text(TEXT, encoding="utf-8")
        return os.open(path, os.O_RDONLY)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def in_child(work: Callable[[], Any], wrong: Mapping[int, str], folder: Path) -> tuple[int, str, str]:
    """Status, output and errors of work in a fork, with streams as Python would have begun with."""
    folder.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if child == 0:
        status: Any = 70
        try:
            for number, name in enumerate(NAMES):
                how = wrong.get(number, "")
                if how == "closed":
                    os.close(number)
                    setattr(sys, name, None)
                    continue
                descriptor = opened(number, how, folder)
                if descriptor != number:
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                mode = "w" if number else "r"
                setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
            status = work()
        except SystemExit as end:
            status = end.code
        finally:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(status if isinstance(status, int) else 71)
    deadline = time.monotonic() + 120
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.01)
    out, err = ((folder / name).read_text() if (folder / name).exists() else "" for name in NAMES[1:])
    return os.waitstatus_to_exitcode(ended[1]), out, err


def caesura(folder: Path, wrong: Mapping[int, str], *arguments: object) -> tuple[int, str, str]:
    def work() -> None:
        sys.argv = ["caesura", *map(str, arguments)]
        main()

    return in_child(work, wrong, folder)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_no_file_takes_the_number_of_a_stream(tmp_path: Path, wrong: dict[int, str]) -> None:
    def work() -> int:
        open_streams()
        with open(__file__, "rb") as file:
            return file.fileno()

    assert in_child(work, wrong, tmp_path)[0] > 2


@pytest.mark.parametrize(
    "words",
    [
        "translate MODEL",
        pytest.param("segment MODEL", marks=pytest.mark.slow),
        pytest.param("evaluate MODEL --json --src TEXT/dev.de --trg TEXT/dev.en", marks=pytest.mark.slow),
    ],
)
def test_what_is_printed_is_whole_or_there_is_one_sentence(
    models: dict[str, Path], corpus: Path, tmp_path: Path, words: str
) -> None:
    given = words.replace("MODEL", str(models["word"])).replace("TEXT", str(corpus)).split()
    status, whole, warning = caesura(tmp_path / "whole", {}, *given)
    assert (status, bool(whole)) == (0, True)
    for number, wrong in enumerate(WRONG.values()):
        status, out, err = caesura(tmp_path / str(number), wrong, *given)
        unread = wrong.get(0) == "closed" and "--src" not in given
        if wrong.get(1) == "closed" or unread:
            stream = "standard output" if wrong.get(1) == "closed" else "standard input"
            assert (status, out) == (2, ""), wrong
            assert 2 in wrong or (err.startswith(f"caesura: {stream}") and err.count("\n") == 1)
        elif wrong.get(1) == "full":
            assert status == 1, wrong
            assert 2 in wrong or err == "caesura: standard output: No space left on device\n"
        elif wrong.get(1) == "unread":
            assert (status, err) == (1, ""), wrong
        else:
            assert (status, out) == (0, whole), wrong
            assert 2 in wrong or err == warning


@pytest.mark.parametrize("wrong", [WRONG["<&- >&- 2>&-"], WRONG["> /dev/full 2>&1"]], ids=["closed", "full"])
def test_a_training_goes_on(
    models: dict[str, Path], corpus: Path, tmp_path: Path, wrong: dict[int, str]
) -> None:
    config, out = write_config(tmp_path / "word.yaml", "word", corpus), tmp_path / "out"
    status, *printed = caesura(tmp_path / "streams", wrong, "train", config, "--out", out)
    assert (status, printed) == (0, ["", ""])
    names = {path.relative_to(out).as_posix() for path in out.rglob("*")}
    assert names == {path.relative_to(models["word"]).as_posix() for path in models["word"].rglob("*")}
    assert (out / "model.safetensors").read_bytes() == (models["word"] / "model.safetensors").read_bytes()
    assert read_progress(list_checkpoints(out / "checkpoints")[-1]).finished == "60 updates"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_printed_is_one_sentence(tmp_path: Path, option: str) -> None:
    for how, status in (("closed", 2), ("full", 1)):
        code, _, err = caesura(tmp_path, {1: how}, option)
        assert (code, err.count("\n")) == (status, 1)
        assert err.startswith("caesura: standard output")


def shell(words: list[object], wrong: str, after: str = "") -> subprocess.CompletedProcess[str]:
    """The program, as a shell starts it; the shell's own errors and output are kept."""
    line = f"set -o pipefail; {shlex.join(map(str, words))} {wrong} {after}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)


TEXTS = "--src TEXT/dev.de --trg TEXT/dev.en"
SMALL = "--sample 5 --translate 5 --bpe 50 --moved 2 --out"


# Each command once; the quick tests above cross streams with commands, in forks.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (f"compare MODEL CHAR {TEXTS} {SMALL} OUT", ">&-"),
        (f"compare MODEL CHAR {TEXTS} {SMALL} OUT", "2> /dev/full"),
        (f"analyze MODEL {TEXTS} {SMALL} OUT", "| true"),
        (f"analyze MODEL {TEXTS} --only cuts --json --moved 2", "> /dev/full"),
        ("translate MODEL TEXT/dev.de", "| true"),
        ("translate MODEL TEXT/dev.de", "2>&-"),
    ],
)
def test_every_command_as_a_shell_starts_it(
    models: dict[str, Path], corpus: Path, tmp_path: Path, words: str, wrong: str
) -> None:
    places = {"MODEL": models["word"], "CHAR": models["char"], "TEXT": corpus, "OUT": tmp_path / "out"}
    for name, place in places.items():
        words = words.replace(name, str(place))
    done = shell(command(*words.split()), wrong)
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
    assert "Exception ignored" not in done.stderr
    closed, lost = wrong == ">&-", wrong in ("> /dev/full", "| true")
    assert done.returncode == (2 if closed else 1 if lost else 0), done.stderr
    if 2 in WRONG[wrong]:
        assert done.stderr == ""


FEW = "--no-test --set training.updates=10 --set training.validation_freq=100"
QUICK_DEMO = """
from caesura.experiments import demo
demo.SYSTEMS = {"cif": demo.SYSTEMS["cif"]}
""" + PROGRAM.replace("updates=1000000", "updates=3")


# Three updates teach nobody numbers: the demo ends with status 1.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wrong", "status", "made"),
    [
        (
            f"-m caesura.cli sweep TEXT/word.yaml --over training.learning_rate=0.01 {FEW} --out OUT",
            "2>&1 | true",
            0,
            "sweep.json",
        ),
        pytest.param(
            "-m caesura.cli reproduce TEXT --only word --data TEXT --out OUT",
            "> /dev/full 2>&1",
            0,
            "report/report.html",
            marks=pytest.mark.soak,
        ),
        ("-c DEMO demo --out OUT", "<&- >&- 2>&-", 1, "report/report.html"),
        ("-m caesura.data.numerals --size 50 --out OUT", "> /dev/full 2>&1", 0, "train.tsv"),
    ],
    ids=["sweep", "reproduce", "demo", "numerals"],
)
def test_work_that_is_worth_more_than_what_it_prints_goes_on(
    tmp_path: Path, words: str, wrong: str, status: int, made: str
) -> None:
    text, out = tmp_path / "numbers", tmp_path / "out"
    text.mkdir()
    write_text(text)
    for system in ("word", "char", "act"):
        write_config(text / f"{system}.yaml", system)
    (text / FILE).write_text(RECIPE, encoding="utf-8")
    given = [word.replace("TEXT", str(text)).replace("OUT", str(out)) for word in words.split()]
    done = shell([sys.executable, *(QUICK_DEMO if word == "DEMO" else word for word in given)], wrong)
    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    assert (out / made).stat().st_size > 0
    modes = [path.stat().st_mode for path in out.rglob("*")]
    assert all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes)
