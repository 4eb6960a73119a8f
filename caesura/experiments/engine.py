"""The engine of `reproduce`, `sweep` and `demo`: which trainings start, resume, or are kept as they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from caesura.data.files import write_whole
from caesura.errors import InputError
from caesura.experiments.fleet import Limits, Watcher, check_members, run_fleet
from caesura.experiments.outcome import TEST, Measure, Member, Outcome, read_outcome
from caesura.experiments.provenance import changes, described, is_mark_of
from caesura.training.checkpoint import list_checkpoints


class Experiment:
    """Trainings in one folder, each with a model folder or with results that earlier calls have kept.

    Each kind of experiment says where it keeps results and what it writes.
    """

    def __init__(self, out: Path, measures: Sequence[Measure] = (), budget: float | None = None) -> None:
        self.out, self.measures = out, measures
        self.budget = budget  # of all members; None: each keeps its own
        self._replaced: set[str] = set()  # names of members whose kept results come from other configs

    def kept(self, member: Member) -> Outcome | None:
        """The outcome of a member that earlier calls have kept, perhaps on another machine."""

    def write(self, drawn: bool = False) -> None:
        """Write results and tables; `drawn`: figures too, which take a while."""

    def settled(self) -> None:
        """Called when a member has finished or failed."""
        self.write()

    def more(self) -> Sequence[Member]:
        """All members, if the results so far lead to another round of trainings."""
        return ()

    def check(self, members: Sequence[Member]) -> None:
        """Refuse members that cannot be trained, or would replace the results of another config."""
        check_members(members)
        for member in members:
            if self._through(read_outcome(member, self.budget, self.measures)):
                continue
            kept, tree = self.kept(member), described(member.load())
            if kept is None or is_mark_of(kept.made["digest"], tree):
                continue
            if kept.status == "failed" or not kept.progress.sentences:  # there is nothing to lose
                self._replaced.add(member.name)
                continue
            name = "" if Path(kept.kept).stem == member.folder.name else f"{member.name} "
            raise InputError(
                f"{self.out / kept.kept}: {name}was trained with another config "
                f"({'; '.join(changes(kept.made, member))}); undo that or choose another --out"
            )

    def run(self, members: Sequence[Member], limits: Limits, watcher: Watcher) -> bool:
        """Train and measure the members that need it; False where the time limit came before the end.

        However it ends, the results so far are written, and the same call goes on from there.
        """
        began = time.monotonic()
        try:
            members = members or self.more()
            while members:
                waiting = [member for member in members if not self._stands(member, limits, watcher.say)]
                rest = limits.time_limit and max(0.0, limits.time_limit - (time.monotonic() - began))
                now = replace(limits, time_limit=rest)
                if not run_fleet(waiting, now, watcher, self.measures, self.settled):
                    return False
                members = self.more()
            return True
        finally:
            self.write(drawn=True)

    def outcome(self, member: Member) -> Outcome:
        """From the model folder or, if the folder is gone or behind, from the kept results."""
        measures = [*dict.fromkeys((TEST, *self.measures))]  # where tests are not wanted, those before stay
        current = read_outcome(member, self.budget, measures)
        kept = None if self._through(current) else self._kept(member)
        return kept if kept and further(kept, current, self.measures) else current

    def _kept(self, member: Member) -> Outcome | None:
        return None if member.name in self._replaced else self.kept(member)

    def _through(self, current: Outcome) -> bool:
        return current.trained and all(measure.name in current.measured for measure in self.measures)

    def _stands(self, member: Member, limits: Limits, say: Callable[[str], None]) -> bool:
        """Whether kept results are enough for a training whose checkpoints are gone; prints a notice.

        If they are not, it is trained again, by default within its earlier budget.
        """
        if list_checkpoints(member.folder / "checkpoints"):
            return False
        kept = self._kept(member)
        if kept is None or not (kept.trained or kept.progress.update):
            return False
        unknown = [measure for measure in self.measures if kept.best and measure.name not in kept.measured]
        lacking = [f"its {m.name.partition('-')[0]}" for m in unknown if m.command(member) is not None]
        if not kept.trained:
            lacking = ["its end"]
        elif kept.status == "budget" and (limits.budget or 0.0) > (kept.budget or 0.0):
            lacking = ["the larger budget"]
        what = f" without {' and '.join(lacking)}: trained" if lacking else ": not trained"
        say(f"{member.name}: its checkpoints are gone, {kept.kept} has it{what} again")
        if not lacking:
            member.failure.unlink(missing_ok=True)  # of a try that came to nothing
        elif kept.budget is not None:
            member.folder.parent.mkdir(exist_ok=True)
            write_whole(member.allowance, f"{kept.budget:g}")
        return not lacking


def further(kept: Outcome, current: Outcome, measures: Sequence[Measure]) -> bool:
    """Whether the kept outcome is ahead of the folder: in updates, or in measures after as many updates.

    A finished folder is not behind, even if it saw less on a slower machine. A failure before the first
    update no longer counts once the training is tried again.
    """
    if kept.status == "failed" and not kept.progress.update:
        return False
    missing = [m.name for m in measures if m.name in kept.measured and m.name not in current.measured]
    if current.trained and not missing:
        return False
    return current.status == "not run" or (kept.progress.update, len(missing)) > (current.progress.update, 0)
