"""Folders that this process holds: nothing is written to one that was removed, moved or taken over."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caesura.errors import TrainingError

LOCK = ".lock"
_locks: dict[str, tuple[int, str]] = {}  # by folder: its open lock file, and where relative paths start from


@contextmanager
def holding(folder: Path, file: int) -> Iterator[None]:
    """Inside, `check_held` watches a folder whose lock is the open `file`; it is also called at the end."""
    name = os.path.abspath(folder)
    _locks[name] = file, os.getcwd()
    try:
        yield
    except Exception:
        check_held(folder)  # a lost folder is then the cause
        raise
    else:
        check_held(folder)
    finally:
        del _locks[name]


def check_held(path: str | Path) -> None:
    """Raise a TrainingError if `path` is in a folder that was held and no longer is."""
    for folder, (file, start) in [*_locks.items()]:
        name = os.path.normpath(os.path.join(start, path))  # the current folder may have another name by now
        if (name == folder or name.startswith(os.path.join(folder, ""))) and not is_lock(file, folder):
            raise TrainingError(
                f"{folder}: was removed, moved or taken over by another process; this one ends, and has "
                "written nothing there since"
            )


def is_lock(file: int, folder: str | Path) -> bool:
    """Whether an open file is still the lock in a folder."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(os.path.join(folder, LOCK)))
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE):
            return False
        raise


def make_folder(path: str | Path) -> None:
    """Make a folder and its parents, but never again one that was held and is gone."""
    check_held(path)
    Path(path).mkdir(parents=True, exist_ok=True)
