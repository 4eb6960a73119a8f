"""One training at a time per folder: a lock that names its holder and ends with its process."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from caesura.data.files import refuse_unwritable
from caesura.data.held import LOCK, holding, is_lock
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.training.world import World  # which imports torch

_TRIES, _PAUSE = 10, 0.005  # seconds
APPEARS_WITHIN = 30.0  # seconds: network file systems show new files to other machines late


@contextmanager
def hold(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder and keep others from training in it; the lock of a killed process is taken over.

    Where the folder is removed, moved or taken over meanwhile, a TrainingError ends the work inside.
    """
    path = folder / LOCK
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = _acquire(path, say)
    try:
        with holding(folder, file):
            yield
    finally:
        if is_lock(file, folder):  # else it belongs to another process
            path.unlink(missing_ok=True)  # before others can take it
        os.close(file)


def refuse_unseen(folder: Path, world: World) -> None:
    """Refuse a folder that some process of the world does not see, as on another machine's disk."""
    content = world.shared((folder / LOCK).read_bytes() if world.leads else b"")
    sees = world.leads or _appears(folder / LOCK, content)
    processes = world.gathered(None if sees else f"process {world.rank} on {socket.gethostname()}")
    if unseeing := [process for process in processes or [] if process is not None]:
        remedy = "choose an --out that all machines share"
        raise InputError(f"{folder}: {unseeing[0]} does not see what process 0 writes there; {remedy}")


def _appears(path: Path, content: bytes) -> bool:
    deadline = time.monotonic() + APPEARS_WITHIN
    while time.monotonic() < deadline:
        with suppress(OSError):
            if path.read_bytes() == content:
                return True
        time.sleep(_PAUSE)
    return False


def is_held(folder: Path) -> bool:
    """Whether a training holds a folder; False where that cannot be told."""
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)


def _acquire(path: Path, say: Callable[[str], None]) -> int:
    while True:
        try:  # without waiting: opening a pipe would wait for its other end
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a link, a folder, a socket
                raise _odd(path) from problem
            raise
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _odd(path)
            if not _locked(file, path, say):
                os.close(file)
                continue
            if content := os.read(file, 1000):
                say(f"taken over from {_holder(content)}, which ended without releasing the folder")
            facts = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(facts).encode(), 0)
            return file
        except BaseException:
            os.close(file)
            raise


def _odd(path: Path) -> InputError:
    return InputError(f"{path}: not a plain file; remove it or choose another --out")


def _locked(file: int, path: Path, say: Callable[[str], None]) -> bool:
    """Whether the lock is ours; it is not if its file was removed by its last holder meanwhile."""
    try:
        _take(file)
    except BlockingIOError:
        who = _holder(os.read(file, 1000))
        raise InputError(
            f"{path.parent}: {who} is training here; wait for it or choose another --out"
        ) from None
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
            raise
        say(f"{path.parent}: its file system has no locks; take care that nothing else trains here")
    return is_lock(file, path.parent)


def _take(file: int) -> None:
    for _ in range(_TRIES):
        with suppress(BlockingIOError):  # `is_held` takes it for an instant
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(_PAUSE)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(content: bytes) -> str:
    """The process that wrote the lock, as far as it can be read."""
    try:
        facts = json.loads(content)
        return f"process {facts['pid']} on {facts['host']} (since {facts['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
