"""Threads that compute answers: quick ones beside long ones, each with a queue that has an end."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from caesura.explorer.refused import Refused
from caesura.search.rounds import Check

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for the result any more."""


@dataclass
class _Job(Generic[T]):
    work: Callable[[Check], T]
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
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._pending: dict[int, _Job[Any]] = {}
        self._ending = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Check], T]) -> T:
        """The result of `work`, which gets a check to call; if cancelled, it ends at its next check."""
        if self._ending:
            raise Refused(503, "the server is shutting down")
        if len(self._pending) >= self._most:
            raise Refused(503, "too many requests are waiting; try again in a moment")
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop, time.monotonic() + self._seconds)
        self._pending[id(job)] = job
        self._jobs.put(job)
        try:
            return await job.future
        finally:
            job.stop.set()
            del self._pending[id(job)]

    def stop(self) -> None:
        """Take nothing more, and end what is waiting or running at its next check."""
        self._ending = True
        for job in [*self._pending.values()]:
            job.stop.set()
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Wait for the threads to end, at most this long."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # or its result would stay until the next one
