"""Trainings side by side, each with its budget; the next call resumes those that stopped or failed."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from caesura.components import resolve
from caesura.data.files import read_tail, refuse_odd, write_whole
from caesura.data.held import check_held, make_folder
from caesura.errors import InputError, Interrupted
from caesura.experiments.outcome import TEST, Measure, Member, Outcome, read_outcome, weights_checksum
from caesura.experiments.pace import Pace
from caesura.experiments.plan import write_plan
from caesura.experiments.processes import Children, Launcher, kill_notice
from caesura.experiments.provenance import note_provenance
from caesura.experiments.telling import last_words, progress_line, reason, summary
from caesura.kernels.cores import own_cores
from caesura.model_folder import WEIGHTS
from caesura.training.changes import refuse_changes
from caesura.training.checkpoint import Progress, list_checkpoints
from caesura.training.interrupt import ON_TOP, SHORT
from caesura.training.journal import read_records
from caesura.training.lock import is_held
from caesura.training.prepare import check_files

POLL = 0.2  # seconds
LOOK = 5.0  # seconds between two looks at how long trainings take
PATIENCE = 60.0  # seconds to wait for a training that the last call left behind
_STOPPED = (128 + signal.SIGTERM, -signal.SIGTERM, -signal.SIGKILL)  # how one that was asked to end ends


@dataclass(frozen=True)
class Limits:
    """Time and number of trainings."""

    budget: float | None = None  # seconds of training per member, validations included; None: as it was given
    parallel: int = 1
    time_limit: float | None = None  # seconds of a call
    launcher: Callable[[Callable[[str], None]], Launcher] | None = None  # None: children of this process
    whole: bool = False  # whether to start no training that the time limit would end


class Watcher(Protocol):
    """Receives the progress of members."""

    def say(self, text: str) -> None:
        """A sentence about something that happened."""

    def validation(self, name: str, record: dict[str, Any]) -> None:
        """A member was validated."""

    def running(self, lines: dict[str, str]) -> None:
        """The current activity of each running member."""


def run_fleet(
    members: Sequence[Member],
    limits: Limits,
    watcher: Watcher,
    measures: Sequence[Measure] = (TEST,),
    settled: Callable[[], None] = lambda: None,
) -> bool:
    """Train all members and measure them; False where the time limit came before the end.

    A failure is kept beside the member's folder and does not stop the others. `Interrupted` is raised after a
    signal, when all are saved. `read_outcome` reads the outcome of each; `settled` is called whenever a
    member has finished or failed.
    """
    check_members(members)
    if limits.budget is not None and limits.budget < SHORT:
        watcher.say(f"{limits.budget:g}s of training each: {ON_TOP}")
    deadline = None if limits.time_limit is None else time.monotonic() + limits.time_limit
    with (limits.launcher or Children)(watcher.say) as launcher:
        fleet = _Fleet(members, limits, watcher, measures, launcher, settled)
        while fleet.step():
            if launcher.signal is not None or (deadline is not None and time.monotonic() >= deadline):
                fleet.stopping = True
                break
            time.sleep(POLL)
        interrupted = dict(launcher.running)
    for name, command in interrupted.items():
        if command.returncode is not None:
            fleet.settle(name, command.returncode)
    watcher.running({})
    if launcher.signal is not None:
        raise Interrupted(launcher.signal)
    if fleet.stopping:
        watcher.say("stopped by the time limit; the same command goes on from here")
    return not fleet.stopping


def check_members(members: Sequence[Member]) -> None:
    """Refuse, before anything starts, members whose config, files or folder cannot be used."""
    folders = [member.folder.resolve() for member in members]
    for member, folder in zip(members, folders, strict=True):
        if folders.count(folder) > 1:
            raise InputError(f"{member.folder}: two members would be trained there")
        config = resolve(member.load())
        check_files(config, ("train", "dev", "test"))
        if list_checkpoints(member.folder / "checkpoints"):
            refuse_changes(config, member.folder)


class _Fleet:
    """The members that wait, and those that run with their activities; `step` moves all of them on."""

    def __init__(
        self,
        members: Sequence[Member],
        limits: Limits,
        watcher: Watcher,
        measures: Sequence[Measure],
        launcher: Launcher,
        settled: Callable[[], None],
    ) -> None:
        self.limits, self.watcher, self.measures, self.launcher = limits, watcher, measures, launcher
        self.settled = settled
        self.members = {member.name: member for member in members}
        self.waiting = sorted(members, key=self._stage)  # those nearest to their end first
        self.stopping = False
        self._began = time.monotonic()
        timed = limits.whole and limits.time_limit is not None
        self.pace = Pace(self._began + (limits.time_limit or 0.0)) if timed else None
        if self.pace is not None:
            for member in members:
                if not is_held(member.folder):  # else it is looked at when it may start
                    self.pace.look(self._outcome(member))
        self._looked = -math.inf
        self._late: set[str] = set()  # members that could not end in time, at the last look
        self._since: dict[str, tuple[float, float]] = {}  # when a member began, and its training before that
        self._doing: dict[str, Measure | None] = {}  # None: training
        self._weights: dict[str, str] = {}  # their checksum when a measure began
        self._seen: dict[str, int] = {}  # validations that were reported
        self._sizes: dict[str, int] = {}
        self._lines: dict[str, str] = {}
        self._together: dict[str, int] = {}
        self._ran: set[str] = set()
        self._budgets: dict[str, float | None] = {}
        self._reached: dict[str, tuple[Progress, list[str]]] = {}  # by the last job
        self._parallel = len(members) if launcher.whole else limits.parallel
        self._environment = {} if launcher.whole else self._threads()

    def step(self) -> bool:
        """Settle ended processes, start waiting members, report progress; False when all are done."""
        for name in self._doing:
            check_held(self.members[name].folder)
        for name, status in self.launcher.ended().items():
            self.settle(name, status)
        self._look()
        for member in list(self.waiting):
            if len(self.launcher.running) >= self._parallel:
                break
            left = not self.launcher.whole and is_held(member.folder)
            if left and time.monotonic() - self._began < PATIENCE:
                continue  # by a process that a killed call left behind, and that is ending
            if not self._in_time(member):
                continue
            self.waiting.remove(member)
            member.failure.unlink(missing_ok=True)
            self._start(member)
        self._note_company()
        for name, measure in self._doing.items():
            if measure is None:
                self._tell_validations(self.members[name])
        self.watcher.running({name: self.launcher.place(name) or at for name, at in self._lines.items()})
        if not self.launcher.running and self.waiting and {m.name for m in self.waiting} <= self._late:
            names = ", ".join(member.name for member in self.waiting)
            self.watcher.say(f"{names}: not started, as the time limit would come before the end")
            self.stopping = True
        return bool(self.launcher.running or (self.waiting and not self.stopping))

    def _look(self) -> None:
        """See, from time to time, how fast those that run are, so that those judged late are judged anew."""
        if self.pace is not None and time.monotonic() >= self._looked + LOOK:
            for name in self.launcher.running:
                self.pace.look(self._outcome(self.members[name]))
            self._late.clear()
            self._looked = time.monotonic()

    def _in_time(self, member: Member) -> bool:
        """Whether it can end before the time limit, and what runs beside it too."""
        if self.pace is None or member.name in self._late:
            return self.pace is None
        rest = self.pace.rests.get(member.name) or self.pace.look(self._outcome(member))
        if self.pace.in_time([*self.launcher.running, member.name], time.monotonic()):
            return True
        if rest.ended:
            measured = self._outcome(member).measured
            if all(m.name in measured or m.command(member) is None for m in self.measures):
                return True  # nothing is left to do
        self._late.add(member.name)
        return False

    def _outcome(self, member: Member) -> Outcome:
        return read_outcome(member, self.limits.budget, self.measures)

    def _stage(self, member: Member) -> int:
        """0 trained and perhaps not measured yet, 1 begun, 2 not begun."""
        outcome = self._outcome(member)
        return 0 if outcome.trained else 1 if outcome.progress.update else 2

    def settle(self, name: str, status: int) -> None:
        """Record how a process has ended, and start the next one for its member."""
        member, measure = self.members[name], self._doing.pop(name)
        self._tell_validations(member)
        self._lines.pop(name, None)
        self._looked = -math.inf
        stopping = self.stopping or self.launcher.signal is not None
        if stopping and status in _STOPPED:
            if status == -signal.SIGKILL:  # by Ctrl-C for the third time
                anew = f"{name}: killed; {measure.doing} begins anew" if measure else ""
                self.watcher.say(anew or kill_notice(name, member.folder))
            return
        try:
            if self.launcher.whole:
                self._check_job(member, status)
            elif status != 0:
                raise InputError(reason(member, status))
            elif measure is not None:
                self._keep(member, measure)
            elif not read_outcome(member, self.limits.budget).trained:
                raise InputError("its training ended before its budget did")
        except InputError as problem:
            self._fail(member, str(problem))
            return
        if not stopping:
            self._start(member)

    def _check_job(self, member: Member, status: int) -> None:
        """Refuse a job that failed, was killed, or made no progress after the job before it.

        A job that was preempted, or whose time was over, has saved: another job goes on from there.
        """
        if reason := self.launcher.reason(member.name):
            raise InputError(reason)
        if status not in (0, *_STOPPED):
            raise InputError(last_words(self.launcher.log(member.folder)) or f"it printed nothing ({status})")
        outcome = self._outcome(member)
        reached = outcome.progress, [*outcome.measured]
        if self._reached.get(member.name) == reached:
            raise InputError(f"two jobs came no further than {outcome.progress.update:,} updates")
        self._reached[member.name] = reached

    def _start(self, member: Member) -> None:
        """Start the next process of a member, if there is one."""
        outcome = self._outcome(member)
        if self.pace is not None:
            self.pace.look(outcome)
        began, before = self._since.setdefault(member.name, (time.monotonic(), outcome.progress.seconds))
        self._budgets[member.name] = outcome.budget
        make_folder(member.folder.parent)
        if outcome.budget is not None:
            write_whole(member.allowance, f"{outcome.budget:g}")
        self._seen.setdefault(member.name, len(outcome.validations))
        if not outcome.trained:
            budget = () if outcome.budget is None else ("--budget", f"{outcome.budget:f}")
            settings = [word for setting in member.settings for word in ("--set", setting)]
            command = ["caesura.cli", "train", str(member.config), *settings, "--out", str(member.folder)]
            self._run(member, [*command, *budget], None)
            return
        for measure in self.measures if (member.folder / WEIGHTS).exists() else ():
            if measure.name not in outcome.measured and (words := measure.command(member)) is not None:
                self._run(member, [*words], measure)
                return
        self.watcher.say(f"{member.name}: {summary(outcome)}")
        if member.name in self._ran:
            if self.pace is not None:
                self.pace.ended(time.monotonic() - began, outcome.progress.seconds - before)
            self.settled()

    def _run(self, member: Member, command: list[str], measure: Measure | None) -> None:
        """Start a command, or a job that runs it and all later ones of the member."""
        self._ran.add(member.name)
        self._lines[member.name] = "starting" if measure is None else measure.doing
        self._doing[member.name] = None if self.launcher.whole else measure
        if self.launcher.whole:
            plan = write_plan(member, self._budgets[member.name], self.measures)
            words = [sys.executable, "-m", "caesura.experiments.alone", plan]
            self.launcher.start(member.name, words, self.launcher.log(member.folder))
            return
        if measure is None:
            note_provenance(member)
        else:
            self._weights[member.name] = weights_checksum(member.folder)
            self.watcher.say(f"{member.name}: {measure.doing}")  # it can take longer than the budget
        check_held(member.folder)
        refuse_odd([member.log])
        command = [sys.executable, "-m", *command]
        with member.log.open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"$ {shlex.join(command)}\n")
        output = None if measure is None else _output(member, measure)
        self.launcher.start(member.name, command, member.log, self._environment, output)

    def _keep(self, member: Member, measure: Measure) -> None:
        """Put the result of a measure beside the weights that were measured."""
        printed = _output(member, measure)
        try:
            result = json.loads(printed.read_bytes().splitlines()[-1])
            result.pop("model", None)  # where it is; it may move
            content = json.dumps({"weights": self._weights[member.name], **result}, ensure_ascii=False)
        except (OSError, ValueError, IndexError, TypeError, AttributeError) as problem:
            raise InputError(f"{measure.name} printed no line of JSON ({problem})") from problem
        write_whole(measure.path(member), content.encode() + b"\n")
        printed.unlink()

    def _fail(self, member: Member, reason: str) -> None:
        write_whole(member.failure, reason.encode(errors="replace"))
        log = member.log if member.log.exists() else self.launcher.log(member.folder)
        self.watcher.say(f"{member.name}: failed: {reason}; all it said: {log}")
        self.settled()

    def _note_company(self) -> None:
        """Note how many trainings run side by side, which slows them down; jobs do not share machines."""
        if self.launcher.whole:
            return
        together = len(self.launcher.running)
        for name, measure in self._doing.items():
            if measure is None and together > self._together.get(name, 1):
                self._together[name] = together
                path = self.members[name].company
                before = int(read_tail(path, 100)) if path.exists() else 1
                write_whole(path, str(max(before, together)))

    def _tell_validations(self, member: Member) -> None:
        """Report the validations that a member's log has gained since the last look."""
        size = sum(path.stat().st_size for path in member.folder.glob("metrics.jsonl"))
        if size == self._sizes.get(member.name, 0):
            return
        self._sizes[member.name] = size
        records = read_records(member.folder)
        validations = [record for record in records if record["kind"] == "validation"]
        for record in validations[self._seen.get(member.name, 0) :]:
            self.watcher.validation(member.name, record)
        self._seen[member.name] = len(validations)
        self._lines[member.name] = progress_line(records, self._budgets.get(member.name))

    def _threads(self) -> dict[str, str]:
        """Share out the cores of a CPU among members, unless the number of threads is given."""
        together = min(self.limits.parallel, len(self.members))
        if together < 2 or "OMP_NUM_THREADS" in os.environ:
            return {}
        import torch

        settings = [member.load().training for member in self.members.values()]
        here = [s for s in settings if s.device == "cpu" or not torch.cuda.is_available()]
        if not any(s.threads is None for s in here):
            return {}
        threads = max(1, own_cores() // together)
        self.watcher.say(f"{together} side by side: {threads} CPU threads each")
        return {"OMP_NUM_THREADS": str(threads)}


def _output(member: Member, measure: Measure) -> Path:
    """Where a measure prints while it runs."""
    return Path(f"{member.folder}.{measure.name}.out")
