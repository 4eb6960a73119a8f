"""How children end: with what they have to save saved, unless whoever presses Ctrl-C insists."""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from experiments.fleets import wait_for

from caesura import signals
from caesura.experiments.processes import Children

pytestmark = pytest.mark.usefixtures("no_ignored_signals")

# A child that needs a while to save when it is asked to end, and one that never ends by itself.
SAVING = """
import signal, sys, time

def save(*_):
    time.sleep({seconds})
    print("saved", flush=True)
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes here, and no Ctrl-C of another test."""
    monkeypatch.setattr(signals, "_last", float("-inf"))


def end(tmp_path: Path, seconds: float, pauses: Sequence[float]) -> tuple[str, int, list[str]]:
    """What a child wrote, its status, and what was said when Ctrl-C came once and after each pause again."""

    def press() -> None:
        for pause in pauses:
            time.sleep(pause)
            os.kill(os.getpid(), signal.SIGINT)

    messages: list[str] = []
    log, pressing = tmp_path / "log", threading.Thread(target=press)
    before = signal.getsignal(signal.SIGINT)
    with Children(messages.append) as children:
        children.start("one", [sys.executable, "-c", SAVING.format(seconds=seconds)], log)
        wait_for(log.read_text)
        os.kill(os.getpid(), signal.SIGINT)
        pressing.start()
        wait_for(lambda: children.signal is not None)
    pressing.join(60)
    assert signal.getsignal(signal.SIGINT) is before
    return log.read_text(), children.running["one"].returncode, messages


@pytest.mark.slow
@pytest.mark.parametrize("pauses", [[0.0], [0.05], [0.15], [0.1] * 12], ids=str)
def test_ctrl_c_in_haste_is_pressed_once(tmp_path: Path, pauses: list[float]) -> None:
    text, status, messages = end(tmp_path, sum(pauses) + 0.4, pauses)
    assert (text, status) == ("up\nsaved\n", 143)
    assert len(messages) == 1


def test_no_child_outlives_ctrl_c_after_it_was_said_what_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "HASTE", 0.3)
    text, status, messages = end(tmp_path, 60, [0.5, 0.5])
    assert (text, status) == ("up\n", -signal.SIGKILL)
    assert len(messages) == 1


def test_the_second_half_of_a_press_does_not_cut_short_what_comes_after_the_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with signals.QuietInterrupt():
        with Children() as children:
            os.kill(os.getpid(), signal.SIGINT)
        assert children.signal == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)  # tables are written here
        monkeypatch.setattr(signals, "HASTE", 0.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
