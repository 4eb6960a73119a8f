"""Standard input, output and error, which may be closed, full, or without a reader; lines for programs."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from caesura.errors import InputError
from caesura.visible import HALVES, escaped

OUTPUT = "standard output"


class Stream:
    """Standard output or error. A failed write is an error with the stream's name, or is ignored."""

    def __init__(self, stream: TextIO, name: str, lossy: bool, missing: bool = False) -> None:
        self._stream, self._name = stream, name
        self.lossy = lossy
        self.missing = missing  # the process was started without it
        self._problem: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._failing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._failing():
            self._stream.flush()

    def refuse_missing(self) -> None:
        """Refuse to begin work whose output has nowhere to go."""
        if self.missing:
            raise InputError(f"{self._name} is closed; send it to a file or a pipe")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._problem = problem
            problem.filename = self._name
            with open(os.devnull, "wb") as nowhere:  # also for the text in the buffer
                os.dup2(nowhere.fileno(), self._stream.fileno())
        if self._problem is not None and not self.lossy:  # raised each time, because libraries ignore it
            self.refuse_missing()
            raise self._problem


def open_streams() -> None:
    """Begin a program: a stream that is closed gets a stand-in, so that no file of ours takes its number.

    Reading from a stand-in is an error, and so is writing. Failed writes to standard error are ignored: there
    is no place to report them.
    """
    missing = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in missing:  # in the order of their numbers: the lowest that is free is taken
        number = os.open(os.devnull, os.O_WRONLY if name == "stdin" else os.O_RDONLY)
        os.set_inheritable(number, True)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # text comes in as UTF-8 and goes out as UTF-8 everywhere
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    sys.stdout = Stream(sys.stdout, OUTPUT, lossy=False, missing="stdout" in missing)
    sys.stderr = Stream(sys.stderr, "standard error", lossy=True)


def refuse_closed_output() -> None:
    """Refuse, before there is work, a command whose result has nowhere to go."""
    if isinstance(sys.stdout, Stream):
        sys.stdout.refuse_missing()


def outlive_readers() -> None:
    """For work that is worth more than its output: it goes on when nobody can read the output."""
    if isinstance(sys.stdout, Stream):
        sys.stdout.lossy = True


def print_row(*columns: str) -> None:
    """A line for programs, with TABs between columns; at a terminal, invisible characters are escaped."""
    print(*(map(escaped, columns) if sys.stdout.isatty() else columns), sep="\t", flush=True)


def print_json(value: Any) -> None:
    """One line of JSON, letters of any script as they are."""
    text = json.dumps(value, ensure_ascii=False)
    seen = escaped(text) == text or not sys.stdout.isatty()
    # A folder's name that is not UTF-8 decodes to text that cannot be written as UTF-8.
    print(text if seen and not HALVES.search(text) else json.dumps(value), flush=True)
