"""A program that trains in processes which are killed (SIGKILL), until as many have been as were asked for.

Every run of it is in a folder of its own below the given one; run `whole` is never disturbed. What it prints
is for `test_kills.py` and `test_kills_cuda.py`: how many were killed, and in the middle of what.
"""

import json
import math
import mmap
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from poison import poison
from torch import Tensor

from caesura.config import load_config
from caesura.data.corpus import PLACE
from caesura.evaluation.scores import score
from caesura.inference import Translator
from caesura.training import loop, run, start
from caesura.training.guard import Guard
from caesura.training.step import Step

STAGES = ("reading", "update", "validation", "best model", "checkpoint")
SLOWER = 0.02  # seconds that syncing takes, so that there is time to be killed in the middle of writing
OFTEN = 15  # kills
TAKES = {"update": 0.02, "validation": 0.05}  # seconds longer: those of a few short lines are over at once


class Silent:
    """A reporter that tells nobody."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def wrapped(owner: Any, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Have something done before and after every call of a function."""
    function = getattr(owner, name)

    def within(*given: Any, **named: Any) -> Any:
        before()
        try:
            return function(*given, **named)
        finally:
            after()

    setattr(owner, name, within)


def watched(stage: mmap.mmap) -> None:
    """Have this process say in shared memory what it is doing."""

    def enter(number: int) -> None:
        stage[number] = 1
        time.sleep(TAKES.get(STAGES[number], 0.0))

    def leave(number: int) -> None:
        stage[number] = 0

    places = [(start, "prepare"), (Step, "__call__"), (loop, "_validate"), (Translator, "save_pretrained")]
    for number, (owner, name) in enumerate([*places, (run, "save_checkpoint")]):
        wrapped(owner, name, partial(enter, number), partial(leave, number))


def killed_at_call(last: int) -> None:
    """Have this process killed before or after a call that makes a change last: two moments a call."""
    numbers = count(1)

    def act() -> None:
        if next(numbers) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("fsync", "replace", "ftruncate", "unlink"):
        wrapped(os, name, act, act)


@contextmanager
def training(config: Path, settings: list[str], folder: Path, prepared: Callable[[], None]) -> Iterator[int]:
    """A process that trains; killed where it still does at the end."""
    child = os.fork()
    if child == 0:
        status = 1
        os.environ[PLACE] = f"{folder.parent}-numbers/{folder.name}"  # so that each makes its own
        try:
            prepared()
            loop.train(load_config(config, settings), folder, Silent())  # type: ignore[arg-type]
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def ended(child: int, within: float | None = None) -> int | None:
    """The exit status (or the negative signal) of a child, or None where it goes on for longer."""
    deadline = None if within is None else time.monotonic() + within
    while deadline is None or time.monotonic() < deadline:
        pid, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def killed_by_the_clock(
    config: Path, settings: list[str], folder: Path, kills: int, seed: int
) -> Counter[str]:
    """Kill at random moments, run upon run; where it is done often, until all that takes long was hit."""

    def enough() -> bool:
        hit = kills < OFTEN or {"update", "validation", "checkpoint"} <= {*stages}
        assert sum(stages.values()) < 10 * kills, stages
        return sum(stages.values()) >= kills and hit

    rng, stages = random.Random(seed), Counter[str]()
    stage = mmap.mmap(-1, len(STAGES))  # a byte each, for checkpoints are written while other things go on
    started = time.monotonic()
    with training(config, settings, folder / "whole", partial(watched, stage)) as child:
        assert ended(child) == 0
    takes = time.monotonic() - started
    for number in count():
        status: int | None = None
        while status != 0:
            stage[:] = bytes(len(STAGES))
            with training(config, settings, folder / str(number), partial(watched, stage)) as child:
                status = ended(child, None if enough() else rng.uniform(0, takes))
                if status is None:
                    os.kill(child, signal.SIGKILL)
                    status = ended(child)
                    reached = [name for name, entered in zip(STAGES, stage[:], strict=True) if entered]
                    stages[["elsewhere", *reached][-1]] += status != 0
            assert status in (0, -signal.SIGKILL), status
        if enough():
            return stages
    raise AssertionError


def killed_at_calls(config: Path, settings: list[str], folder: Path, every: int, first: int) -> Counter[str]:
    """Kill before and after system calls: each of a run's, or every so many; a run each."""
    with training(config, settings, folder / "whole", lambda: None) as child:
        assert ended(child) == 0
    killed: Counter[str] = Counter()

    for last in count(first, every):
        with training(config, settings, folder / str(last), partial(killed_at_call, last)) as child:
            status = ended(child)
        if status == 0:  # it does not have so many
            return killed
        assert status == -signal.SIGKILL, status
        killed["system calls"] += 1
        with training(config, settings, folder / str(last), lambda: None) as child:
            assert ended(child) == 0
    raise AssertionError


def traced(path: Path, last: float = math.inf, more: float = 0) -> None:
    """Have this process write down what each update reads: its number, epoch and batch, the sentences.

    From update `last` on it has `more` seconds to live, in which it does not come to its end.
    """
    note, clock = Guard.note, threading.Timer(more, os.kill, (os.getpid(), signal.SIGKILL))

    def noted(self: Guard, rows: NDArray[np.int64], wrong: Tensor) -> None:
        at = self.progress
        with path.open("a") as file:
            file.write(json.dumps([at.update, at.epoch, at.batch, rows.tolist()]) + "\n")
        note(self, rows, wrong)
        if at.update >= last:
            if clock.ident is None:
                clock.start()
            time.sleep(TAKES["update"])

    Guard.note = noted  # type: ignore[method-assign]


def killed_along_the_way(
    config: Path, settings: list[str], folder: Path, kills: int, seed: int
) -> Counter[str]:
    """Kill one run again and again, each time when it has come further; all that it reads is traced."""
    rng, whole, trace = random.Random(seed), folder / "whole.trace", folder / "killed.trace"
    folder.mkdir()
    with training(config, settings, folder / "whole", partial(traced, whole)) as child:
        assert ended(child) == 0
    updates = len(whole.read_text().splitlines())
    for last in sorted(rng.sample(range(updates * 9 // 10), kills)):
        dies = partial(traced, trace, last, rng.uniform(0, 0.05))
        with training(config, settings, folder / "killed", dies) as child:
            assert ended(child) == -signal.SIGKILL
    with training(config, settings, folder / "killed", partial(traced, trace)) as child:
        assert ended(child) == 0
    return Counter(updates=kills)


def warm_up(config: Path, settings: list[str]) -> None:
    """Import here what training imports as it goes; no gradients: torch forbids them in forks afterwards."""
    with TemporaryDirectory() as folder:
        loop.train(load_config(config, settings), Path(folder) / "run", Silent(), 0)  # type: ignore[arg-type]
    score(["a b c d e"], ["a b c d e"])


def main() -> None:
    torch.set_num_threads(1)
    loop.LOG_EVERY = 4
    how, config, folder, first, second, *settings = sys.argv[1:]
    if how != "updates":  # which may be on a GPU, and that is for processes whose parents have not touched it
        warm_up(Path(config), settings)
    if how == "clock":
        sync = os.fsync
        os.fsync = lambda file: (time.sleep(SLOWER), sync(file))[1]
    if updates := os.environ.get("POISONED_UPDATES"):
        poison(*map(int, updates.split(","))).start()
    functions = {"clock": killed_by_the_clock, "calls": killed_at_calls, "updates": killed_along_the_way}
    print(json.dumps(functions[how](Path(config), settings, Path(folder), int(first), int(second))))


if __name__ == "__main__":
    main()
