"""Signals that end the work: their handlers, and Ctrl-C without a traceback."""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

SHOW_CURSOR = b"\x1b[?25h"  # which progress bars hide
HASTE = 1.0  # seconds: Ctrl-C that follows another one sooner is the same press

_last = -math.inf  # when Ctrl-C came last


def take_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Let `handler` have SIGINT, SIGTERM and SIGHUP; returns the argument of `restore_signals`.

    Signals that were ignored when the process started (nohup, cron, `&` in a script) stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    active = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in active}


def restore_signals(before: Mapping[int, Any]) -> None:
    """Give signals back to the handlers from before `take_signals`."""
    for number, handler in before.items():
        signal.signal(number, handler)


def hasty() -> bool:
    """Note that Ctrl-C came; returns whether it came so soon after another that both are one press."""
    global _last
    before, _last = _last, time.monotonic()
    return _last - before < HASTE


class QuietInterrupt:
    """Inside it the first Ctrl-C is a KeyboardInterrupt; where that could go wrong, it ends with status 130.

    While modules are imported an exception is lost in some places and aborts the process in others, and there
    is nothing yet to save. The same holds for a second Ctrl-C, and for one in a destructor. One that is part
    of a press that `Children` has handled is dropped: tables are being written because of that press.
    """

    def __init__(self) -> None:
        self.ending = False  # whether another Ctrl-C ends it at once
        self._installed = False

    def __enter__(self) -> QuietInterrupt:
        global _last
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._installed = True
            _last = -math.inf
            self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            atexit.unregister(_ignore_interrupts)
            atexit.register(_ignore_interrupts)  # the last to be registered is the first to be called
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = self._hook

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if hasty() and not self.ending:
            return
        if self.ending or _importing(frame):
            _leave()
        self.ending = True
        raise KeyboardInterrupt

    def _unraisable(self, problem: sys.UnraisableHookArgs) -> None:
        if issubclass(problem.exc_type, KeyboardInterrupt):
            _leave()
        self._hook(problem)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def show_cursor() -> None:
    """Give a terminal the cursor that a progress bar may have hidden, before the process ends at once."""
    if os.isatty(2):
        os.write(2, SHOW_CURSOR)


def _leave() -> None:
    show_cursor()
    os._exit(128 + signal.SIGINT)


def _ignore_interrupts() -> None:
    """The work is done, and its status known."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
