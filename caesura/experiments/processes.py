"""Where commands run: as processes side by side, none of which outlives the program that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from caesura.data.files import refuse_odd
from caesura.data.held import check_held
from caesura.signals import hasty, restore_signals, take_signals
from caesura.training.checkpoint import newest_progress

POLL = 0.05  # seconds


class Ending(Protocol):
    """A started command, as all launchers know it."""

    returncode: int | None  # its exit status or negative signal; None: it has not ended


class Launcher:
    """Starts commands and reads how they end, as long as the `with` lasts.

    A first signal is remembered for the caller.
    """

    whole = False  # whether one command both trains and measures a member, because each waits in a queue
    outlive = False  # whether commands go on after a signal or an error has ended the `with`

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.signal: int | None = None
        self.running: Mapping[str, Ending] = {}
        self._before: dict[int, Any] = {}
        self._say = say

    def __enter__(self) -> Self:
        self._before = take_signals(self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        restore_signals(self._before)

    def log(self, folder: Path) -> Path:
        """The file for the output of a command that trains in this folder."""
        return Path(f"{folder}.log")

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        """Start a command whose output is added to `log`; its standard output goes to `output` if given."""
        raise NotImplementedError

    def discard(self, log: Path) -> None:
        """End the command, if any, that an earlier call has left with this log."""

    def ended(self) -> dict[str, int]:
        """The exit statuses (or negative signals) of ended commands, which are then forgotten."""
        raise NotImplementedError

    def place(self, name: str) -> str:
        """Why a command waits; empty once it runs."""
        return ""

    def reason(self, name: str) -> str:
        """Why a command was ended from outside, if its launcher knows."""
        return ""

    def _remember(self, number: int, _: object) -> None:
        if number == signal.SIGINT:
            hasty()
        if self.signal is None:
            self.signal = number


class Children(Launcher):
    """Processes that do not outlive the `with`: those still running at its end are asked once to end.

    A second Ctrl-C prints how to kill them: by another Ctrl-C after a pause, so that haste does not cost
    unsaved work. They run in their own sessions, so that Ctrl-C does not reach them directly.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(say)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._impatient = self._warned = self._killing = False

    def __exit__(self, *_: object) -> None:
        for child in self.running.values():
            child.terminate()
        while any(child.poll() is None for child in self.running.values()):
            self._answer()
            time.sleep(POLL)
        super().__exit__()

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        """Start a process whose output is added to `log`; its standard output goes to `output` if given."""
        check_held(log)
        refuse_odd([log, *([] if output is None else [output])])
        leashed = [sys.executable, "-m", "caesura.experiments.leash", str(os.getpid()), *command]
        with ExitStack() as stack:
            errors = stack.enter_context(log.open("ab"))
            self.running[name] = subprocess.Popen(
                leashed,
                stdin=subprocess.DEVNULL,
                stdout=errors if output is None else stack.enter_context(output.open("wb")),
                stderr=errors,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def ended(self) -> dict[str, int]:
        """The exit statuses (or negative signals) of ended processes, which are then forgotten."""
        polled = {name: child.poll() for name, child in self.running.items()}
        statuses = {name: status for name, status in polled.items() if status is not None}
        for name in statuses:
            del self.running[name]
        return statuses

    def _remember(self, number: int, _: object) -> None:
        pressed = number == signal.SIGINT
        deliberate = pressed and not hasty()
        if self.signal is None:
            self.signal = number
        elif pressed:
            self._impatient = True
            self._killing = self._killing or (self._warned and deliberate)

    def _answer(self) -> None:
        """Answer Ctrl-C while children end: first say how to kill them, then do it."""
        if self._impatient and not self._warned:
            self._say("still saving; wait a second and press Ctrl-C again to kill what is not done")
            self._warned = True
        if self._killing:
            for child in self.running.values():
                if child.poll() is None:
                    child.kill()


def kill_notice(name: str, folder: Path) -> str:
    """Says that a training was killed, and where it goes on."""
    progress = newest_progress(folder / "checkpoints")
    where = (
        "begins anew" if progress is None else f"goes on from update {progress.update}, its last checkpoint"
    )
    return f"{name}: killed; {where}"
