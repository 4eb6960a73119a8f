"""`--launcher slurm`: commands run as jobs of a SLURM cluster, submitted by submitit as one array.

A job's name has a hash of the experiment's folder, and its number is written beside its logs. So a later call
finds the jobs that an earlier one has left in the queue. Jobs outlive the call: they go on when the user logs
out or presses Ctrl-C.

submitit gives each job its command in a file that could run code when it is read. Each submission gets a new
folder, so that a job never reads a file that was there before. Caesura itself reads no such file: a job
writes its status as text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from caesura.data.files import read_json, read_tail, refuse_odd, write_whole
from caesura.data.held import check_held, make_folder
from caesura.errors import InputError, missing_extra
from caesura.experiments.processes import Launcher

PARALLEL = 20  # jobs at once, by default
SIGNAL = "TERM@120"  # seconds before the end of its time, when a job is asked to save and to end
LOOKS = 10.0  # seconds between two looks at the queue
ANSWER = 120.0  # seconds that SLURM may take to answer
NEEDED = "sbatch", "srun", "squeue", "scancel"
LATE = 6  # looks: an ended job's status may come so late through a shared file system
CUT_SHORT = "PREEMPTED", "TIMEOUT"  # states after which another job goes on
BY_ITSELF = "COMPLETED", "FAILED", "GONE"
KILLED = "BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED"
ENDED = (*CUT_SHORT, *BY_ITSELF, *KILLED)
# Caesura sets OURS itself and has its own OPTIONS for the others.
OURS = ("array", "error", "job_name", "nodes", "ntasks", "ntasks_per_node", "open_mode", "output")
OPTIONS = ("partition", "gpus_per_task")


@dataclass(frozen=True)
class Cluster:
    """The resources that SLURM is asked for, per job."""

    partition: str | None = None
    gpus_per_task: int | None = None
    parallel: int = PARALLEL
    others: Mapping[str, str | bool] = field(default_factory=dict)  # options of sbatch

    def parameters(self, name: str) -> dict[str, Any]:
        """The parameters of submitit's executor."""
        others = {"ntasks": 1, "requeue": True, "signal": SIGNAL, **self.others}
        cpus = others.get("cpus_per_task")
        return {
            "job_name": name,
            "partition": self.partition,
            "gpus_per_task": self.gpus_per_task,
            "array_parallelism": self.parallel,
            "time": None,  # else submitit's own: five minutes
            "wckey": None,
            "additional_parameters": others,
            "srun_args": [f"--cpus-per-task={cpus}"] if cpus else [],  # which srun does not inherit
        }


def parse_options(texts: Sequence[str]) -> dict[str, str | bool]:
    """Options of sbatch, such as time=4:00:00, or exclusive, which has no value."""
    options: dict[str, str | bool] = {}
    for text in texts:
        match = re.fullmatch(r"(?:--)?([a-z][a-z0-9_-]*)(?:=([ -~]+))?", text)
        if match is None:
            raise InputError(f"--slurm {text}: should be an option of sbatch, such as time=4:00:00")
        key = match[1].replace("-", "_")
        if key in OPTIONS:
            raise InputError(f"--slurm {text}: has an option of its own, --{match[1]}")
        if key in OURS:
            raise InputError(f"--slurm {text}: Caesura sets {match[1]} itself")
        options[key] = match[2] or True
    return options


def check_slurm() -> None:
    """Refuse to go on without submitit or outside a cluster."""
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("--launcher slurm", "slurm") from None
    if missing := [program for program in NEEDED if shutil.which(program) is None]:
        raise InputError(f"--launcher slurm: no {missing[0]} here; run this on a machine of the cluster")


@dataclass
class Job:
    """A job in the queue, or one that is about to be submitted."""

    log: Path
    words: Sequence[str] = ()
    number: str = ""
    end: Path = Path()
    state: str = "PENDING"
    why: str = ""
    returncode: int | None = None
    looks: int = 0  # at the queue since it ended


class Jobs(Launcher):
    """Commands as SLURM jobs. They outlive a `with` that a signal or an error ends.

    At its normal end, which comes at a time limit, waiting jobs are cancelled, and running ones are asked to
    save and to end.
    """

    whole = outlive = True

    def __init__(self, cluster: Cluster, out: Path, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self.running: dict[str, Job] = {}
        self.folder = out / "slurm"
        place = out.resolve()
        mark = hashlib.blake2b(bytes(place), digest_size=4).hexdigest()
        self.name = f"{re.sub('[^a-zA-Z0-9.-]', '_', place.name)}-{mark}"
        self._out, self._cluster = out, cluster
        self._queued: dict[str, Job] = {}  # by log: those of earlier calls
        self._new: list[Job] = []
        self._reasons: dict[str, str] = {}
        self._looked = -LOOKS
        self._silent = self._ending = False

    def __enter__(self) -> Jobs:
        if not (place := str(self.folder.absolute())).isprintable() or {*place} & {*"%\\"}:
            raise InputError(f"{self._out}: SLURM writes no logs to such a name; choose another --out")
        refuse_odd([], [self.folder])
        make_folder(self.folder)
        if (states := self._look()) is None:
            raise InputError("squeue does not answer; is SLURM up?")
        self._find(states)
        return super().__enter__()

    def __exit__(self, kind: object = None, *_: object) -> None:
        if self.running and (not self.outlive or (kind is None and self.signal is None)):
            self._end_all()
        elif left := [job for job in self.running.values() if job.number and job.returncode is None]:
            self._say(
                f"{_jobs(len(left))} in SLURM; the same command looks after them again, and "
                f"`scancel --name={self.name}` ends them with their trainings saved"
            )
        super().__exit__()

    def log(self, folder: Path) -> Path:
        """The file for the output of all jobs that train in this folder, one after the other."""
        return self.folder / f"{folder.name}.log"

    def start(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        """Submit a command, or take over the job that an earlier call has left."""
        check_held(log)
        refuse_odd([log, *([] if output is None else [output])])
        if job := self._queued.pop(self._key(log), None):
            self.running[name] = job
            return
        given = [f"{key}={value}" for key, value in (environment or {}).items()]
        printed = "" if output is None else str(output.absolute())
        words = [str(log.absolute()), printed, *(["env", *given] if given else []), *command]
        self.running[name] = Job(log, words)
        self._new.append(self.running[name])

    def discard(self, log: Path) -> None:
        """End the job, if any, that an earlier call has left with this log."""
        job = self._queued.pop(self._key(log), None)
        if job is not None:
            _run("scancel", job.number)
        while job is not None and self.signal is None:
            states = self._look()
            if states is not None and states.get(job.number, ("GONE", ""))[0] in ENDED:
                return
            time.sleep(min(1.0, LOOKS))

    def ended(self) -> dict[str, int]:
        """The exit statuses of ended jobs; looks at the queue from time to time."""
        self._submit()
        if time.monotonic() - self._looked >= LOOKS:
            self._update()
        ended = {name: job for name, job in self.running.items() if job.returncode is not None}
        for name in ended:
            del self.running[name]
        return {name: job.returncode for name, job in ended.items() if job.returncode is not None}

    def place(self, name: str) -> str:
        """What a job waits for; empty once it runs."""
        job = self.running.get(name)
        if job is None or job.state in ("RUNNING", "COMPLETING", *ENDED):
            return ""
        return f"job {job.number} {job.state.lower()} ({job.why})"

    def reason(self, name: str) -> str:
        """Why SLURM has ended a job."""
        return self._reasons.pop(name, "")

    def _submit(self) -> None:
        """Submit all new jobs as one array."""
        if not self._new:
            return
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError
        from submitit.helpers import CommandFunction

        folder, commands = self._new_folder(), []
        for at, job in enumerate(self._new):
            job.end = folder.absolute() / f"{at}.end"
            job.end.touch()  # a new file may come late through a shared file system
            words = [sys.executable, "-m", "caesura.experiments.job", str(job.end), *job.words]
            commands.append(CommandFunction(words, verbose=False))
        executor = SlurmExecutor(folder)
        executor.update_parameters(**self._cluster.parameters(self.name))
        try:
            with _outside(), redirect_stderr(StringIO()):  # submitit repeats there what sbatch said
                submitted = executor.submit_array(commands)
        except (FailedJobError, FailedSubmissionError) as problem:
            if self.signal is not None:  # Ctrl-C reached sbatch; a later call cancels its jobs
                return
            raise InputError(_sentence(str(problem))) from None
        for job, number in zip(self._new, submitted, strict=True):
            job.number = number.job_id
        self._record(folder)
        array = self._new[0].number.partition("_")[0]
        self._say(f"{_jobs(len(self._new))} in SLURM: {array} (squeue --name={self.name}); logs: {folder}")
        self._new = []

    def _new_folder(self) -> Path:
        """A new, empty folder."""
        check_held(self.folder)
        numbers = [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]
        folder = self.folder / str(max(numbers, default=0) + 1)
        folder.mkdir()
        return folder

    def _record(self, folder: Path) -> None:
        """Write down each job's log, for later calls."""
        jobs = {job.number: [self._key(job.log), job.end.name] for job in self._new}
        write_whole(folder / "jobs.json", json.dumps(jobs))

    def _find(self, states: Mapping[str, tuple[str, str]]) -> None:
        """Find the jobs of earlier calls; cancel jobs that a killed call could not write down."""
        arrays = set()
        for path in self.folder.glob("*/jobs.json"):
            with suppress(OSError, ValueError, TypeError, AttributeError):
                for number, (log, end) in read_json(path).items():
                    arrays.add(number.partition("_")[0])
                    state, why = states.get(number, ("GONE", ""))
                    if state not in ENDED:
                        self._queued[log] = Job(self._out / log, (), number, path.parent / end, state, why)
        active = [number for number, (state, _) in states.items() if state not in ENDED]
        if self._queued:
            self._say(f"{_jobs(len(self._queued))} in SLURM from an earlier call")
        if unknown := [number for number in active if number.partition("_")[0] not in arrays]:
            self._say(f"{_jobs(len(unknown))} that a killed call has left: cancelled")
            _run("scancel", *unknown)

    def _key(self, log: Path) -> str:
        return os.path.relpath(log, self._out)

    def _look(self) -> dict[str, tuple[str, str]] | None:
        """Each job's state and the reason for it, from squeue; None if it does not answer."""
        words = ("--me", "--array", "--states=all", "--noheader", f"--name={self.name}", "--format=%i|%T|%r")
        self._looked = time.monotonic()
        if (answer := _run("squeue", *words)) is None:
            return None
        rows = [line.split("|", 2) for line in answer.splitlines() if line.count("|") >= 2]
        return {number.strip(): (state, why) for number, state, why in rows}

    def _update(self) -> None:
        """Look at the queue, and settle jobs that have ended."""
        states = self._look()
        if (states is None) != self._silent:
            self._silent = states is None
            self._say("squeue does not answer; asking again" if self._silent else "squeue answers again")
        if states is None:
            return
        waiting = {name: job for name, job in self.running.items() if job.number and job.returncode is None}
        for name, job in waiting.items():
            job.state, job.why = states.get(job.number, ("GONE", ""))
            if job.state in ENDED:
                job.returncode = self._status(name, job)

    def _status(self, name: str, job: Job) -> int | None:
        """The exit status of an ended job's command, or of SLURM's signal; None: not known yet."""
        text = ""
        with suppress(OSError):
            text = read_tail(job.end, 20).strip()
        job.looks += 1
        known = re.fullmatch(r"-?\d{1,3}", text) and int(text) != -signal.SIGKILL
        if known and (self._ending or job.state != "CANCELLED"):
            return int(text)
        if self._ending or job.state in CUT_SHORT:
            return 128 + signal.SIGTERM
        if job.state in BY_ITSELF and not text and job.looks < LATE:
            return None
        logs = job.end.parent / f"{job.number}_0_log.err"
        self._reasons[name] = f"SLURM's job {job.number} ended as {job.state}, its log: {logs}"
        return -signal.SIGKILL

    def _end_all(self) -> None:
        """Cancel waiting jobs, and wait until the others have saved and ended."""
        self._ending = True
        asked = [job for job in self.running.values() if job.number]
        numbers = [job.number for job in asked]
        _run("scancel", "--state=PENDING", *numbers)
        _run("scancel", "--signal=TERM", *numbers)
        while self.signal is None and any(job.returncode is None for job in asked):
            self._update()
            time.sleep(min(1.0, LOOKS))


def _run(*words: str) -> str | None:
    """The output of a program of SLURM; None if it fails. Ctrl-C does not reach it."""
    try:
        done = subprocess.run(words, capture_output=True, timeout=ANSWER, start_new_session=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


@contextmanager
def _outside() -> Iterator[None]:
    """Inside, a job's variables are unset: SLURM would take them for options of new jobs."""
    names = [k for k in os.environ if k.startswith(("SLURM_", "SUBMITIT_")) and k != "SLURM_CONF"]
    inside = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(inside)


def _sentence(problem: str) -> str:
    """The error message of sbatch, as one sentence."""
    lines = [re.sub(r"^sbatch: (?:error: )?", "", line.strip()) for line in problem.strip().splitlines()]
    return f"--launcher slurm: sbatch: {'; '.join(lines) or 'failed'}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"
