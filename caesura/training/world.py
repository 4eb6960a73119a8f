"""The processes that train one model together: one alone, or as many as torchrun has started.

All of them run the same code and call the same methods in the same order. What they decide follows from
numbers that are the same in all of them. Process 0 leads: the folder, the log and the terminal are its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import timedelta
from io import StringIO
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from caesura.errors import Interrupted, TrainingError, explain

RANK, SIZE, LOCAL, VISIBLE = "RANK", "WORLD_SIZE", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES"
PATIENCE = timedelta(hours=4)  # for others, which may be reading a large text; those that end are noticed

T = TypeVar("T")


class LostError(TrainingError):
    """Another process has ended."""


class World:
    """One process alone, which waits for nobody and asks nobody."""

    rank, size = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this process has the folder, the log and the terminal."""
        return self.rank == 0

    def sum(self, *tensors: Tensor | None) -> None:
        """Put the sums over all processes in place of tensors; None stands for nothing."""

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Put those of process 0 in place of tensors."""

    def most(self, number: int) -> int:
        """The largest number of all processes."""
        return number

    def shared(self, value: T) -> T:
        """The value of process 0."""
        return value

    def gathered(self, value: T) -> list[T] | None:
        """In process 0, the values of all processes in their order; in others None."""
        return [value]

    def seed(self, *numbers: int) -> None:
        """With others, draw from here on what follows from these numbers and the rank."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process."""
        return bool(self.most(int(flag)))

    def in_turn(self, work: Callable[[], T], stop: type[Exception]) -> T:
        """The result of work that process 0 has done before the others do; `stop` in one is `stop` in all."""
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
    """One of several processes: the host's messages go through gloo, those of GPUs through NCCL."""

    def __init__(self) -> None:
        from torch import distributed

        self._distributed = distributed
        _own_gpu(int(os.environ.get(LOCAL, "0")))
        self._store, self.rank, self.size = next(distributed.rendezvous("env://", timeout=PATIENCE))
        with _lost():
            distributed.init_process_group(
                "gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=PATIENCE
            )
        self._gpus: distributed.ProcessGroup | None = None

    def sum(self, *tensors: Tensor | None) -> None:
        """Put the sums over all processes in place of tensors; None stands for nothing."""
        with _lost():
            for tensor in tensors:
                if tensor is not None:
                    self._distributed.all_reduce(tensor, group=self._group(tensor))

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Put those of process 0 in place of tensors."""
        with _lost(), torch.no_grad():
            for tensor in tensors:
                self._distributed.broadcast(tensor, 0, group=self._group(tensor))

    def most(self, number: int) -> int:
        """The largest number of all processes."""
        with _lost():
            self._distributed.all_reduce(most := torch.tensor(number), op=self._distributed.ReduceOp.MAX)
        return int(most)

    def shared(self, value: T) -> T:
        """The value of process 0."""
        values = [value]
        with _lost():
            self._distributed.broadcast_object_list(values, 0)
        return values[0]

    def gathered(self, value: T) -> list[T] | None:
        """In process 0, the values of all processes in their order; in others None."""
        values = [value] * self.size if self.leads else None
        with _lost():
            self._distributed.gather_object(value, values, 0)
        return values

    def seed(self, *numbers: int) -> None:
        """With others, draw from here on what follows from these numbers and the rank."""
        torch.manual_seed(int(np.random.SeedSequence([*numbers, self.rank]).generate_state(1)[0]))

    def close(self) -> None:
        """When all have come so far, let them go."""
        self.most(0)
        self._distributed.destroy_process_group()

    def end(self, problem: BaseException) -> None:
        """End this process because of a problem, which one process alone prints.

        At once: where a GPU waits for the GPU of a process that is gone, Python would never come to its end.
        """
        if isinstance(problem, Interrupted):
            with suppress(LostError):
                self.most(0)  # so that nobody is ended by torchrun while process 0 writes
        if self._first():
            status = explain(problem)
        else:
            with redirect_stderr(StringIO()):
                status = explain(problem)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)

    def _first(self) -> bool:
        """Whether no other process has come here before."""
        try:
            return self._store.add("ended", 1) == 1
        except RuntimeError:  # the machine that keeps count is gone
            return True

    def _group(self, tensor: Tensor) -> torch.distributed.ProcessGroup | None:
        if tensor.device.type == "cpu":
            return None
        if self._gpus is None:
            self._gpus = self._distributed.new_group(backend="nccl")
        return self._gpus


@contextmanager
def launched() -> Iterator[World]:
    """The world of this process; inside, whatever ends one of several processes ends them all."""
    if int(os.environ.get(SIZE, "1")) == 1:
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


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:
        remedy = "the same command goes on from the last checkpoint"
        raise LostError(f"another process of this training has ended; {remedy}") from problem


def _own_gpu(local: int) -> None:
    """Let this process see one GPU, the one of its place on its machine, as if there were no other."""
    if VISIBLE not in os.environ:
        os.environ[VISIBLE] = str(local)
        return
    visible = os.environ[VISIBLE].split(",")
    os.environ[VISIBLE] = visible[local] if local < len(visible) else ""
