"""Threads that compute answers: quick ones beside long ones, each with a queue that has an end.

Of the jobs that wait, the oldest of those comes next whose owner has the fewest running.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from caesura.explorer.refused import Refused
from caesura.search.rounds import Check

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for the result any more."""


@dataclass(eq=False)
class _Job(Generic[T]):
    work: Callable[[Check], T]
    owner: str
    future: asyncio.Future[T]
    loop: asyncio.AbstractEventLoop
    deadline: float
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """The work calls this from time to time; it ends work that nobody wants any more."""
        if self.stop.is_set():
            raise Stopped
        if time.monotonic() > self.deadline:
            raise Refused(503, "this took too long and was stopped; try a shorter text")

    def run(self) -> None:
        """Do the work and hand the result over to the event loop."""
        try:
            self.check()
            self._tell(self.future.set_result, self.work(self.check))
        except BaseException as problem:
            self._tell(self.future.set_exception, problem)

    def _tell(self, method: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else method(value))


class Pool:
    """Some threads and the requests that wait for them; only the event loop submits."""

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._most, self._seconds = threads + waiting, seconds
        self._waiting: list[_Job[Any]] = []  # and which owners have how many running: under the lock
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()  # a signal may stop the loop while it holds this: it re-enters
        self._pending: set[_Job[Any]] = set()
        self._ending = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Check], T], owner: str = "") -> T:
        """The result of `work`, which gets a check to call; if cancelled, it ends at its next check."""
        if self._ending:
            raise Refused(503, "the server is shutting down")
        if len(self._pending) >= self._most:
            raise Refused(503, "too many requests are waiting; try again in a moment")
        loop = asyncio.get_running_loop()
        job = _Job(work, owner, loop.create_future(), loop, time.monotonic() + self._seconds)
        self._pending.add(job)
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()
        try:
            return await job.future
        finally:
            job.stop.set()
            self._pending.remove(job)
            with self._changed, suppress(ValueError):  # a thread has taken it
                self._waiting.remove(job)

    def stop(self) -> None:
        """Take nothing more, and end what is waiting or running at its next check."""
        self._ending = True
        for job in [*self._pending]:
            job.stop.set()
        with self._changed:
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, at most this long."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while (job := self._taken()) is not None:
            job.run()
            with self._changed:
                self._running -= Counter([job.owner])
            del job  # or its result would stay until the next one

    def _taken(self) -> _Job[Any] | None:
        """The next job, of which the calling thread must say when it is done; None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            if not self._waiting:
                return None
            job = min(self._waiting, key=lambda job: self._running[job.owner])
            self._waiting.remove(job)
            self._running[job.owner] += 1
            return job
