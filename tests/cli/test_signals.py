"""Ctrl-C at any moment is status 130 and no traceback; where it is ignored, nothing happens."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.program import command

pytestmark = pytest.mark.usefixtures("no_ignored_signals")

# Ctrl-C when a module is about to be imported.
WHILE_IMPORTING = """
import os, signal, sys

module = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from caesura.cli.program import main
main()
"""
AT_EXIT = """
import atexit, os, signal
from caesura.cli.program import main
atexit.register(os.kill, os.getpid(), signal.SIGINT)
main()
"""
IN_A_DESTRUCTOR = """
import os, signal, time
from caesura.cli import program as cli

class Fragile:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)

def run(**_):
    Fragile()
    print("goes on")

cli.parser = lambda app: run
cli.main()
"""
TWICE = """
import os, signal, time
from caesura.cli import program as cli

def run(**_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        print("goes on")

cli.parser = lambda app: run
cli.main()
"""


def python(program: str, *arguments: object) -> tuple[int, str, str]:
    """Status, output and errors of a program."""
    words = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "module", ["typer", "caesura.cli.options", "torch", "torch._C", "caesura.cli.streaming"]
)
def test_ctrl_c_while_modules_are_imported_is_quiet(module: str) -> None:
    assert python(WHILE_IMPORTING, module, "translate", "nowhere") == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("program", [IN_A_DESTRUCTOR, TWICE], ids=["in a destructor", "twice"])
def test_ctrl_c_where_an_exception_would_be_lost_is_the_end_unless_it_is_ignored(program: str) -> None:
    assert python(program) == (130, "", "")
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    assert python(ignoring + program) == (0, "goes on\n", "")


def test_ctrl_c_after_the_work_changes_nothing() -> None:
    status, out, err = python(AT_EXIT, "--version")
    assert (status, err) == (0, "")
    assert out.startswith("caesura ")


def test_a_child_hears_its_parent_though_others_are_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import signal, sys, time\nfrom pathlib import Path\n"
        "from caesura.experiments.processes import Children\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "with Children() as children:\n"
        "    words = [sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(100)']\n"
        f"    children.start('one', words, Path({str(log)!r}))\n"
        f"    while not Path({str(log)!r}).read_text(): time.sleep(0.02)\n"
        "print(children.running['one'].returncode)\n"
    )
    assert python(program) == (0, f"{-signal.SIGTERM}\n", "")


def interrupted(words: list[str], text: bytes, delay: float) -> tuple[int, str, str]:
    """A program that gets Ctrl-C so many seconds after its start."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, **pipes) as running:
        time.sleep(delay)
        running.send_signal(signal.SIGINT)
        try:
            out, err = running.communicate(text, timeout=120)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        return running.returncode, out.decode(), err.decode()


def check_interrupts(arguments: list[object], delays: list[float], lines: int) -> int:
    """No traceback and status 130, or 0 if it had ended; before the program begins Ctrl-C is Python's.

    Returns how often it had begun.
    """
    begun = 0
    words = [sys.executable, "-X", "importtime", *command(*arguments)[1:]]
    for delay in delays:
        status, out, err = interrupted(words, b"eins zwei\n" * lines, delay)
        imports = [line for line in err.splitlines() if line.startswith("import time:")]
        if any(line.split()[-1] == "caesura.signals" for line in imports):
            begun += 1
            assert status in (0, 130), (delay, status, err)
            assert len(imports) == err.count("\n"), (delay, err)
            assert status == 130 or out.count("\n") == lines
    return begun


def test_ctrl_c_at_the_start_is_quiet(models: dict[str, Path]) -> None:
    check_interrupts(["translate", models["word"]], [0.0, 0.1, 0.4], 3)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["translate", "evaluate"])
def test_ctrl_c_at_any_moment_is_quiet(models: dict[str, Path], corpus: Path, name: str) -> None:
    rng = random.Random(1)
    given = [name, models["word"]]
    if name == "evaluate":
        given += ["--json", "--src", corpus / "dev.de", "--trg", corpus / "dev.en"]
    began = time.monotonic()
    subprocess.run(command(*given), input=b"eins\n", stdout=subprocess.DEVNULL, check=True, timeout=120)
    most = 1.2 * (time.monotonic() - began)
    delays = [most * rng.random() for _ in range(30)]
    assert check_interrupts(given, delays, 1 if name == "evaluate" else 400) > 5
