"""Children by fork instead of by a new interpreter, which spares the seconds that importing torch takes."""

import io
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from caesura.experiments.processes import Children


class Fork:
    """As much of `subprocess.Popen` as is asked for."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, seconds: float = 300.0) -> int:
        """Its status; still running after so long is an error."""
        deadline = time.monotonic() + seconds
        while (status := self.poll()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return status

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def start(
    children: Children,
    name: str,
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> None:
    """In the place of `Children.start`."""
    python, option, module, *arguments = command
    assert (python, option) == (sys.executable, "-m")
    run = import_module(module).main
    children.running[name] = fork(run, arguments, log, environment, output)  # type: ignore[assignment]


def fork(
    run: Callable[[], Any],
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> Fork:
    """A process of its own for a program's `main`, whose output is added to `log`."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        pid = os.fork()
    if pid == 0:
        os.environ.update(environment or {})
        _run(run, arguments, log, output, signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    return Fork(pid, log)


def _run(
    run: Callable[[], Any], arguments: Sequence[str], log: Path, output: Path | None, signals: tuple[Any, ...]
) -> None:
    status: Any = 1
    try:
        os.setsid()
        errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(errors, 2)
        os.dup2(errors if output is None else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w", False), "utf-8") for n in (1, 2))
        sys.argv = ["caesura", *arguments]
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        status = run() or 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status if isinstance(status, int) else 1)
