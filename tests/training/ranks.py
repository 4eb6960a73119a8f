"""A program that trains in several processes, which it forks: importing takes longer than training.

Each line that it reads is a start, as JSON; the line that it then writes says how its processes ended. There
is one store for all starts, as torchrun has it. `Ranks` is the other end of the program.
"""

import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed
from training.outcomes import ask_to_end, in_batch
from training.poison import poison

from caesura.config import load_config
from caesura.errors import Interrupted
from caesura.inference import Translator
from caesura.training import lock, loop
from caesura.training import world as worlds
from caesura.training.checkpoint import Progress
from caesura.training.run import Silent
from caesura.training.step import Step
from caesura.training.validation import translated

WITHIN = 120  # seconds for a start: a defect may make processes wait for each other


@dataclass(frozen=True)
class Ended:
    """How the processes of a start ended."""

    statuses: list[int]  # by rank; of a killed one, minus the signal
    printed: str  # by all of them
    seconds: float  # that the start took
    apart: float  # seconds between the first end and the last


class Ranks:
    """Starts processes that train together, as many as one asks for."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def start(self, size: int, *jobs: dict[str, Any], **request: Any) -> Ended:
        """Train one job after the other; `kill`: a rank and how many seconds after all have met it is killed.

        Before that, only torchrun would end the others.
        """
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        print(json.dumps({"size": size, "jobs": jobs, **request}), file=self._program.stdin, flush=True)
        return Ended(**json.loads(self._program.stdout.readline()))

    def train(self, size: int, *jobs: dict[str, Any], **request: Any) -> str:
        """Train to the end of all jobs; what the processes printed."""
        ended = self.start(size, *jobs, **request)
        assert ended.statuses == [0] * size, ended
        return ended.printed


@contextmanager
def ranks() -> Iterator[Ranks]:
    """The program; neither it nor a process of it is left at the end."""
    folders = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": folders},
        start_new_session=True,
    ) as program:
        try:
            yield Ranks(program)
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def main() -> None:
    """Answer starts, which find each other through a store.

    The store is in another process than the one that forks: its threads are in the C library at times, and a
    fork would find the locks there taken for ever.
    """
    reading, writing = os.pipe()
    if answering := os.fork():
        store = distributed.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=WITHIN), False)
        os.write(writing, f"{store.port}\n".encode())
        os.waitpid(answering, 0)
    else:
        with os.fdopen(reading) as lines:
            serve(lines.readline().strip())


def serve(port: str) -> None:
    """Answer starts until there are no more."""
    torch.set_num_threads(1)
    loop.LOG_EVERY, worlds.GRACE, worlds.CLOSING = 4, 0.5, 0.5
    os.fsync = lambda file: None
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for line in sys.stdin:
        print(json.dumps(vars(_started(json.loads(line)))), flush=True)


def _started(request: dict[str, Any]) -> Ended:
    with tempfile.TemporaryFile("w+") as output:
        began, met = time.monotonic(), math.inf
        ranks = range(request["size"])
        arrived = mmap.mmap(-1, len(ranks))
        running = {_forked(rank, request, arrived, output.fileno()): rank for rank in ranks}
        kill, statuses, ends = request.get("kill"), [0 for _ in ranks], []
        while running:
            now = time.monotonic()
            met = min(met, now if all(arrived[:]) else math.inf)
            for pid, rank in [*running.items()]:
                if now - began > WITHIN or (kill and kill[0] == rank and now - met >= kill[1]):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    statuses[running.pop(pid)] = os.waitstatus_to_exitcode(status)
                    ends.append(time.monotonic())
            time.sleep(0.002)
        output.seek(0)
        return Ended(statuses, output.read(), ends[-1] - began, ends[-1] - ends[0])


def _forked(rank: int, request: dict[str, Any], arrived: mmap.mmap, output: int) -> int:
    """A process with this rank, which prints into the output."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(request["size"])}
        _work(request, lambda: arrived.__setitem__(rank, 1))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _work(request: dict[str, Any], arrive: Callable[[], None]) -> None:
    torch.set_default_dtype(getattr(torch, request.get("dtype", "float64")))
    if request.get("exchanging"):  # as several processes do, even if it is only one
        world = worlds.Launched()
        for job in request["jobs"]:
            _train(job, world)
        world.close()
        return
    with worlds.launched() as some:
        arrive()
        for job in request["jobs"]:
            _translate(job, some) if "lines" in job else _train(job, some)


def _train(job: dict[str, Any], world: Any) -> None:
    """Train as a job says. What happens in some ranks only stands under the rank's number."""
    rank = str(world.rank)
    here = {name: ranks[rank] for name, ranks in job.items() if isinstance(ranks, dict) and rank in ranks}
    number = signal.SIGKILL if "killed" in here else signal.SIGTERM
    with ExitStack() as opened:
        if "poisoned" in here:
            opened.enter_context(poison(here["poisoned"]))
        if "validating" in here:  # asked to end in the first batch of its next validation
            opened.enter_context(in_batch(1, ask_to_end))
        if "hanging" in here:  # as a GPU may keep a process from ending
            opened.callback(time.sleep, 2 * WITHIN)
        if "unheard" in here:  # its farewell gets lost
            world._tied = []
        if "full" in here:
            opened.enter_context(mock.patch.object(Step, "_part", _without_memory(here["full"])))
        opened.enter_context(mock.patch.object(lock, "APPEARS_WITHIN", 0.2))
        config = load_config(Path(job["config"]), job["settings"])
        reporter = Signalling(number, here.get("stopped", here.get("killed")), here.get("stuck"))
        folder = Path(here.get("elsewhere", job["folder"]))
        limits = here.get("time_limit"), here.get("budget")
        with suppress(Interrupted):
            loop.train(config, folder, reporter, *limits, world)


class Signalling(Silent):
    """A reporter that sends its own process a signal after an update, or waits for ever."""

    def __init__(self, number: int, update: int | None, stuck: int | None) -> None:
        self.number, self.at, self.stuck = number, update, stuck

    def update(self, progress: Progress, loss: float | None) -> None:
        if progress.update == self.at:
            os.kill(os.getpid(), self.number)
        if progress.update == self.stuck:
            time.sleep(2 * WITHIN)


def _without_memory(at: int) -> Any:
    """A `Step._part` without memory for more than one sentence at one update."""
    compute = Step._part

    def computed(self: Step, batch: Any, update: int, risk: bool) -> Any:
        if update == at and len(batch) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return compute(self, batch, update, risk)

    return computed


def _translate(job: dict[str, Any], world: Any) -> None:
    """Translate lines with the model of a folder, all processes together; process 0 prints all of it."""
    model = Translator.from_pretrained(job["folder"], settings=["testing.batch_size=4"])
    outputs = translated(model, job["lines"], lambda _: None, world)
    assert outputs is not None
    for output in outputs:
        print(repr(output))


if __name__ == "__main__":
    main()
