"""Stopping cleanly: Ctrl-C, a request to end, a time limit, a budget."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from caesura.signals import restore_signals, take_signals
from caesura.training.world import World

BUDGET, TIME_LIMIT = "budget", "time limit"
SHORT = 60.0  # seconds: a smaller budget gets a message on what comes on top of it
ON_TOP = "what has begun, an update or a validation, is finished, and the last validation comes on top"
OVERRUN = 1.2  # times a budget: from here on, a message says that training took longer


def overrun(seconds: float, budget: float | None) -> str:
    """The message after the time that training took, if that is clearly over its budget; else ""."""
    if budget is None or seconds < OVERRUN * budget:
        return ""
    return f", more than the {budget:g}s that it had: an update or a validation that has begun is finished"


class Stop(Exception):
    """Raised to stop work that will be repeated."""


class Interrupt:
    """Inside it, SIGINT, SIGTERM and SIGHUP are only remembered; ignored signals stay ignored.

    Ctrl-C after one of them is a KeyboardInterrupt. The others are not: a job scheduler may send several.
    With `lasting`, this holds after its end, too: torchrun sends SIGTERM to processes that are about to say
    why they end.
    """

    def __init__(self, time_limit: float | None = None, lasting: bool = False) -> None:
        self.signal: int | None = None
        self._deadline = None if time_limit is None else time.monotonic() + time_limit
        self._spent: float | None = None
        self._before: dict[int, Any] = {}
        self._shields = 0
        self._impatient = False
        self._lasting = lasting

    def reason(self) -> str | None:
        """Why to stop now, or None."""
        if self.signal is not None:
            return f"signal {signal.Signals(self.signal).name}"
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return TIME_LIMIT
        if self._spent is not None and time.monotonic() >= self._spent:
            return BUDGET
        return None

    def agreed(self, world: World) -> str | None:
        """Why to stop now, the same in all processes: what one has a reason for, all do."""
        if world.alone:
            return self.reason()
        limits = [None, BUDGET, TIME_LIMIT]
        mine = self.reason() if self.signal is None else None
        number = world.maximum(limits.index(mine) if self.signal is None else len(limits) + self.signal)
        if number < len(limits):
            return limits[number]
        self.signal = number - len(limits)
        return self.reason()

    def spent_at(self, moment: float) -> None:
        """Stop at this moment of time.monotonic() too: the budget of training is spent then."""
        self._spent = moment

    def check(self) -> None:
        """Raise `Stop` for any reason but the budget, which does not bound the last validation."""
        if self.reason() not in (None, BUDGET):
            raise Stop

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Inside it nothing is cut short: a KeyboardInterrupt comes at the end."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._impatient and not self._shields:
            self._impatient = False
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupt:
        self._before = take_signals(self._remember)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._lasting:
            restore_signals(self._before)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
        elif number == signal.SIGINT:
            if not self._shields:
                raise KeyboardInterrupt
            self._impatient = True
