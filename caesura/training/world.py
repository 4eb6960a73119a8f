"""The processes that train one model together: one alone, or as many as torchrun has started.

All of them run the same code and call the same methods in the same order. All decisions follow from numbers
that are the same in every process. Process 0 leads: only it writes to the folder, the log and the terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import timedelta
from io import StringIO
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

from caesura.errors import InputError, Interrupted, TrainingError, explain
from caesura.signals import show_cursor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Store

# What torchrun sets; without all of them, several processes cannot find each other.
RANK, SIZE, LOCAL, ADDRESS, PORT = "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"
VISIBLE = "CUDA_VISIBLE_DEVICES"
ARRIVAL = timedelta(minutes=10)  # until all processes have started and can reach each other
PATIENCE = timedelta(hours=4)  # while process 0 reads a large text; a process that ends is noticed at once
ENDLESS = timedelta(days=3650)  # more than a training takes
GRACE = 5.0  # seconds in which a process ends by itself when another one has, unless it waits for its GPU
CLOSING = 20.0  # seconds more if it has begun to end: a checkpoint gets to the disk; torchrun kills after 30

T = TypeVar("T")


class LostError(TrainingError):
    """Another process has ended."""


class World:
    """A process that trains alone: nothing is exchanged, and nothing waits."""

    rank, size = 0, 1
    alone = True  # whether no number goes through other processes

    @property
    def leads(self) -> bool:
        """Whether this process writes to the folder, the log and the terminal."""
        return self.rank == 0

    def sum(self, *tensors: Tensor | None) -> None:
        """Replace each tensor by its sum over all processes; None is passed over."""

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of process 0."""

    def maximum(self, number: int) -> int:
        """The largest number of all processes."""
        return number

    def shared(self, value: T) -> T:
        """The value of process 0."""
        return value

    def gathered(self, value: T) -> list[T] | None:
        """In process 0, the values of all processes in order of rank; in the others None."""
        return [value]

    def seed(self, *numbers: int) -> None:
        """Where there are several processes, seed the random numbers with these numbers and the rank."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return bool(self.maximum(int(flag)))

    def in_turn(self, work: Callable[[], T], stop: type[Exception]) -> T:
        """Do the work in process 0, then in the others; if one raises `stop`, all raise it."""
        result, stopped = None, False
        for mine in (self.leads, not self.leads):
            if mine and not stopped:
                try:
                    result = work()
                except stop:
                    stopped = True
            stopped = self.any(stopped)
        if stopped:
            raise stop
        return result  # type: ignore[return-value]


class Launched(World):
    """One of several processes, which exchange numbers through gloo, and those of GPUs through NCCL.

    Each is tied to process 0, so that it ends soon after another one even while it waits for its GPU, which
    may wait for that of the other for ever.
    """

    alone = False

    def __init__(self) -> None:
        from torch import distributed

        _check_environment()
        _use_own_gpu(int(os.environ.get(LOCAL, "0")))
        self._distributed = distributed
        try:
            store, self.rank, self.size = next(distributed.rendezvous("env://", timeout=ARRIVAL))
            self._store = distributed.PrefixStore(_name_of_start(store, self.rank, self.size), store)
            distributed.init_process_group(
                "gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=ARRIVAL
            )
            self._hosts = distributed.new_group(backend="gloo", timeout=PATIENCE)
        except RuntimeError as problem:
            failure = "the processes of this training do not find each other"
            raise TrainingError(f"{failure}: {_first_line(problem)}") from problem
        self._gpus: ProcessGroup | None = None
        self._noticed, self._leaving, self._ending = False, False, Lock()
        self._tied = [*range(1, self.size)] if self.leads else [0]
        self._watchers = [Thread(target=self._watch, args=[other], daemon=True) for other in self._tied]
        for watcher in self._watchers:
            watcher.start()

    def sum(self, *tensors: Tensor | None) -> None:
        """Replace each tensor by its sum over all processes; None is passed over."""
        with self._together():
            for tensor in tensors:
                if tensor is not None:
                    self._distributed.all_reduce(tensor, group=self._group(tensor))

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of process 0."""
        with self._together(), torch.no_grad():
            for tensor in tensors:
                self._distributed.broadcast(tensor, 0, group=self._group(tensor))

    def maximum(self, number: int) -> int:
        """The largest number of all processes."""
        with self._together():
            largest = torch.tensor(number)
            self._distributed.all_reduce(largest, self._distributed.ReduceOp.MAX, self._hosts)
        return int(largest)

    def shared(self, value: T) -> T:
        """The value of process 0."""
        values = [value]
        with self._together():
            self._distributed.broadcast_object_list(values, 0, self._hosts)
        return values[0]

    def gathered(self, value: T) -> list[T] | None:
        """In process 0, the values of all processes in order of rank; in the others None."""
        values = [value] * self.size if self.leads else None
        with self._together():
            self._distributed.gather_object(value, values, 0, self._hosts)
        return values

    def seed(self, *numbers: int) -> None:
        """Seed the random numbers with these numbers and the rank."""
        torch.manual_seed(int(np.random.SeedSequence([*numbers, self.rank]).generate_state(1)[0]))

    def close(self) -> None:
        """Leave the group once all processes are done."""
        self.maximum(0)
        self._leaving = True  # all are done: a tie that breaks now, or broke unseen, harms nobody
        with suppress(RuntimeError):
            for other in self._tied:
                self._distributed.send(torch.zeros(1), other)
        for watcher in self._watchers:
            watcher.join(GRACE)
        self._distributed.destroy_process_group()

    def end(self, problem: BaseException) -> None:
        """End this process because of a problem; only the first process to end prints one.

        It ends at once: a normal exit would wait for a GPU that waits for the GPU of a process that is gone.
        """
        self._ending.acquire()  # for good: no other thread ends it as well
        if isinstance(problem, Interrupted):
            with suppress(LostError):
                self.maximum(0)  # torchrun ends all processes after the first; process 0 may still be writing
        if self._first():
            status = explain(problem)
        else:
            with redirect_stderr(StringIO()):
                status = explain(problem)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        with suppress(OSError):
            show_cursor()
        os._exit(status)

    def _first(self) -> bool:
        """Whether this is the first process to end."""
        try:
            return self._store.add("ended", 1) == 1
        except RuntimeError:  # the process with the store is gone
            return True

    def _watch(self, other: int) -> None:
        """Wait for what another process sends when it leaves; if it ends before that, end this one."""
        try:
            leaves = self._distributed.irecv(torch.zeros(1), other)
            assert leaves is not None
            leaves.wait(ENDLESS)
        except RuntimeError as problem:
            time.sleep(GRACE)
            if self._noticed:  # a GPU may keep it from ending, too
                time.sleep(CLOSING)
            if not self._leaving:
                self.end(_loss(problem))

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What all processes do together fails where one of them has ended."""
        try:
            yield
        except RuntimeError as problem:
            self._noticed = True
            raise _loss(problem) from problem

    def _group(self, tensor: Tensor) -> ProcessGroup | None:
        if tensor.device.type == "cpu":
            return self._hosts
        if self._gpus is None:
            # As long as gloo waits: its own ten minutes could end a slow process. Ties notice one that ended.
            self._gpus = self._distributed.new_group(backend="nccl", timeout=PATIENCE)
        return self._gpus


@contextmanager
def launched() -> Iterator[World]:
    """The world of this process; with several processes, a problem inside ends all of them."""
    if (os.environ.get(SIZE) or "1") == "1":
        yield World()
        return
    world = Launched()
    try:
        yield world
        world.close()
    except BaseException as problem:
        if "--traceback" in sys.argv:
            raise
        world.end(problem)


def _loss(problem: RuntimeError) -> LostError:
    # NCCL has other errors too, which its own words tell apart.
    nccl = isinstance(problem, torch.distributed.DistBackendError)
    reason = f" ({_first_line(problem)})" if nccl else ""
    remedy = "the same command goes on from the last checkpoint"
    return LostError(f"another process of this training has ended{reason}; {remedy}")


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0]


def _check_environment() -> None:
    """Refuse variables of torchrun that are missing or wrong."""
    remedy = f"start several processes with torchrun, or one without {SIZE}"
    for name in (SIZE, RANK, ADDRESS, PORT):
        if not (value := os.environ.get(name)):
            raise InputError(f"{SIZE} is {os.environ[SIZE]}, but {name} is not set; {remedy}")
        if name != ADDRESS and not value.isdecimal():
            raise InputError(f"{name} is {value}, not a number; {remedy}")


def _name_of_start(store: Store, rank: int, size: int) -> str:
    """A name that all processes of this start agree on, and that no earlier start had.

    torchrun keeps its store when it starts processes again. Without its own name, a start would read the
    addresses of processes that are gone. So process 0 makes up a name, and the others accept it once the
    store says that process 0 has seen them: a name left by an earlier start does not list them.
    """
    own = uuid4().hex
    if rank == 0:
        store.set("start", own)
        others = [store.get(f"{own}/{other}").decode() for other in range(1, size)]
        store.set(f"{own}/seen", " ".join(others))
        return own
    deadline = time.monotonic() + ARRIVAL.total_seconds()
    while time.monotonic() < deadline:
        name = store.get("start").decode()
        store.set(f"{name}/{rank}", own)
        if store.check([f"{name}/seen"]) and own in store.get(f"{name}/seen").decode():
            return name
        time.sleep(0.02)
    raise RuntimeError("process 0 is missing")


def _use_own_gpu(local: int) -> None:
    """Let this process see only one GPU, by its number on its machine; none if there are too few."""
    if VISIBLE not in os.environ:
        os.environ[VISIBLE] = str(local)
        return
    visible = os.environ[VISIBLE].split(",")
    os.environ[VISIBLE] = visible[local] if local < len(visible) else ""
