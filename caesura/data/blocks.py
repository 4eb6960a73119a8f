"""Text in blocks of lines, and processes that work on blocks; the results come in the order of the text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeVar, cast

from caesura.data.files import RawLines, stored
from caesura.data.unpacking import suffix_of
from caesura.errors import InputError, TrainingError

LINES = 8192  # per block: a multiple of the lines that are cut together
_BYTES = 1 << 22  # per block, about: its last line may be longer
_WORTH = 1 << 24  # bytes of text per process: less is not worth another one
_MOST = 32  # processes: more would wait for the process that reads the text
_PACKED = 4  # unpacked, text usually is so many times larger
_END = object()
# A new program, not a fork of this one, which may have threads. It finds modules where this one does.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import caesura.data.blocks as b; b.serve()"
)

Result = TypeVar("Result")


class Block(NamedTuple):
    """Lines of parallel files; the blocks of a text do not depend on the number of processes."""

    first: int  # the number of the first line
    rows: list[tuple[bytes | None, ...]]  # one line of each file; None: it is over the limit
    share: float  # of the files, up to the end of this block


def read_blocks(
    paths: Sequence[Path], uneven: Callable[[list[int]], InputError] | None = None
) -> Iterator[Block]:
    """The blocks of files; if they differ in length, `uneven` makes an error of the numbers of lines."""
    files = [RawLines(path) for path in paths]
    readers: list[Iterator[bytes | None]] = [iter(file) for file in files]
    first, size, rows = 1, 0, list[tuple[bytes | None, ...]]()
    for row in zip_longest(*readers, fillvalue=_END):
        if _END in row:
            number = first + len(rows) - 1
            yield Block(first, rows, 1.0)
            assert uneven is not None
            pairs = zip(row, readers, strict=True)
            raise uneven(
                [number if line is _END else number + 1 + sum(1 for _ in rest) for line, rest in pairs]
            )
        rows.append(row)  # type: ignore[arg-type]
        size += sum(map(len, filter(None, row)))  # type: ignore[arg-type]
        if len(rows) == LINES or size >= _BYTES:
            yield Block(first, rows, min(file.share for file in files))
            first, size, rows = first + len(rows), 0, []
    if rows:
        yield Block(first, rows, 1.0)


def workers_for(paths: Sequence[Path], cores: int) -> int:
    """How many processes a text is worth."""
    return max(1, min(cores, _MOST, text_size(paths) // _WORTH))


def text_size(paths: Iterable[Path]) -> int:
    """The bytes of a text, about, where it is packed."""
    files = [stored(path) for path in paths]
    return sum(os.path.getsize(file) * (_PACKED if suffix_of(file) else 1) for file in files)


def in_order(
    work: Callable[[Block], Result], blocks: Iterable[Block], count: int
) -> Generator[Result, None, None]:
    """The results of `work` for each block, in `count` processes; in this one if `count` is below two.

    A problem with a block comes after the results of those before it.
    """
    if count < 2:
        yield from map(work, blocks)
        return
    helpers: list[_Helper] = []
    free: SimpleQueue[_Helper] = SimpleQueue()

    def ask(block: Block) -> Result:
        helper = free.get()
        try:
            return cast(Result, helper(block))
        finally:
            free.put(helper)

    with ThreadPoolExecutor(count, "text") as threads:
        waiting: deque[Future[Result]] = deque()
        try:
            for _ in range(count):
                helpers.append(_Helper(work))
                free.put(helpers[-1])
            iterator, problem, more = iter(blocks), None, True
            while waiting or more:
                try:
                    while more and len(waiting) < count + 2:
                        waiting.append(threads.submit(ask, next(iterator)))
                except StopIteration:
                    more = False
                except InputError as error:
                    problem, more = error, False
                if waiting:
                    yield waiting.popleft().result()
            if problem is not None:
                raise problem
        finally:
            for future in waiting:
                future.cancel()
            for helper in helpers:  # before the threads, which wait for them
                helper.end()


class _Helper:
    """Another process, which works on one block at a time and ends when this one does.

    Objects go between the two as `multiprocessing` sends them, through a socket that nobody else can open.
    """

    def __init__(self, work: Callable[[Block], object]) -> None:
        self._first = [work]  # sent before the first block
        self._socket, other = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path), str(other.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
            process_group=0,  # Ctrl-C is for this process
        )
        other.close()

    def __call__(self, block: Block) -> object:
        try:
            while self._first:
                self._socket.send(self._first.pop())
            self._socket.send(block)
            result = self._socket.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        if isinstance(result, Exception):
            raise result
        return result

    def _lost(self) -> TrainingError:
        status = self._process.wait()
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        memory = " (out of memory?)" if status == -signal.SIGKILL else ""
        remedy = "the same command tries again"
        return TrainingError(f"a process that reads the text ended with {how}{memory}; {remedy}")

    def end(self) -> None:
        """End it without waiting for its work."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


def serve() -> None:
    """The program of another process."""
    socket = Connection(int(sys.argv[2]))
    with suppress(EOFError, ConnectionError):  # the other process has ended, or has no more blocks
        work = socket.recv()
        while True:
            socket.send(_answer(work, socket.recv()))


def _answer(work: Callable[[Block], object], block: Block) -> object:
    try:
        return work(block)
    except Exception as problem:
        return problem
