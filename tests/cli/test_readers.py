"""A training is worth more than what it prints: it outlives the terminal and the pipe that it prints to."""

import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from cli.program import command, write_config, write_corpus

from caesura.cli.program import main
from caesura.streams import Stream
from caesura.training.checkpoint import list_checkpoints, read_progress
from caesura.training.journal import METRICS


@contextmanager
def unread() -> Iterator[io.TextIOWrapper]:
    """A stream into a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        yield stream


def test_what_nobody_can_read_is_lost_and_no_error() -> None:
    with unread() as stream:
        lossy = Stream(stream, "standard output", lossy=True)
        for _ in range(3):
            assert lossy.write("much" * 10_000) == 40_000
            lossy.flush()
        assert not lossy.isatty()


def test_a_training_goes_on_when_its_pipe_is_gone(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path / "c.yaml", "word")
    given = ["caesura", "train", str(config), "--out", str(tmp_path / "out")]
    with (
        unread() as out,
        unread() as err,
        mock.patch.multiple(sys, argv=given, stdout=out, stderr=err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert end.value.code == 0
    assert read_progress(list_checkpoints(tmp_path / "out" / "checkpoints")[-1]).finished == "60 updates"


@pytest.mark.slow
def test_a_training_whose_terminal_is_closed_saves_its_state(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path / "c.yaml", "word")
    out = tmp_path / "out"
    endless = command("train", config, "--out", out, "--set", "training.updates=1000000")
    master, terminal = pty.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    running = subprocess.Popen(endless, **streams, start_new_session=True, preexec_fn=take_terminal)
    os.close(terminal)
    os.set_blocking(master, False)
    log, deadline = out / METRICS, time.monotonic() + 300
    while not (log.exists() and '"validation"' in log.read_text()):
        assert running.poll() is None
        assert time.monotonic() < deadline
        try:
            os.read(master, 1 << 16)  # else the training waits for somebody to read
        except BlockingIOError:
            time.sleep(0.02)
    os.close(master)
    assert running.wait(timeout=300) == 128 + signal.SIGHUP
    reached = read_progress(list_checkpoints(out / "checkpoints")[-1])
    assert reached.update >= 20
    assert reached.journal[METRICS] == log.stat().st_size
