"""Folders that this process holds: nothing is written to one that was removed, moved or taken over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caesura.errors import TrainingError

LOCK = ".lock"
_locks: dict[str, int] = {}  # open lock files, by the absolute path of their folder


@contextmanager
def holding(folder: Path, file: int) -> Iterator[None]:
    """Inside, `check_held` watches a folder whose lock is the open `file`; it is also called at the end."""
    name = os.path.abspath(folder)
    _locks[name] = file
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
    name = os.path.abspath(path)
    for folder, file in [*_locks.items()]:
        if (name == folder or name.startswith(os.path.join(folder, ""))) and not is_lock(file, folder):
            raise TrainingError(
                f"{folder}: was removed, moved or taken over by another process; this one ends, and has "
                "written nothing there since"
            )


def is_lock(file: int, folder: str | Path) -> bool:
    """Whether an open file is still the lock in a folder."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(os.path.join(folder, LOCK)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def make_folder(path: str | Path) -> None:
    """Make a folder and its parents, but never again one that was held and is gone."""
    check_held(path)
    Path(path).mkdir(parents=True, exist_ok=True)
