"""How long trainings still take, as far as others tell: for calls that start none that they cannot end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from caesura.experiments.outcome import STRETCH, Outcome
from caesura.training.journal import read_records


@dataclass(frozen=True)
class Rest:
    """What is left of a training, from its log and its config."""

    ended: bool
    made: int  # updates
    most: int | None  # updates; None: a stopping rule ends it earlier or later
    budget: float  # seconds that are left of it; infinite without a budget
    each: float | None  # seconds per update, had it the machine to itself; None: too few were made

    @classmethod
    def of(cls, outcome: Outcome) -> Rest:
        """What is left of a member's training.

        Updates before the first line of the log are not timed: they prepare what all others use.
        """
        log = [record for record in read_records(outcome.member.folder) if "seconds" in record]
        trained = [record for record in log if record["kind"] == "train"]
        reached = [record for record in log if record["kind"] in ("train", "validation")]
        made, spent = (reached[-1]["update"], reached[-1]["seconds"]) if reached else (0, 0.0)
        each = None
        if trained and (updates := trained[-1]["update"] - trained[0]["update"]) >= STRETCH:
            seconds = float(trained[-1]["seconds"] - trained[0]["seconds"])
            each = seconds / updates / outcome.side_by_side
        budget = math.inf if outcome.budget is None else outcome.budget - spent
        return cls(outcome.trained, made, outcome.member.load().training.updates, budget, each)


class Pace:
    """Whether trainings can end before a deadline, measures included.

    An update takes as long as it took so far or, before that is known, as long as the slowest of the others;
    and longer the more processes share the machine. A training without a number of updates makes as many as
    the longest such training that has ended.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.around = 0.0  # seconds: the longest that a member took outside its training
        self.rests: dict[str, Rest] = {}  # by the names of members

    def look(self, outcome: Outcome) -> Rest:
        """Learn from the log of a member."""
        self.rests[outcome.member.name] = Rest.of(outcome)
        return self.rests[outcome.member.name]

    def ended(self, took: float, trained: float) -> None:
        """Learn from a member that `took` so many seconds, of which it was `trained` so many."""
        self.around = max(self.around, took - trained)

    def in_time(self, names: Sequence[str], now: float) -> bool:
        """Whether these can all end side by side; True as long as nothing tells how long they take."""
        return all(now + self.around + self._left(self.rests[n], len(names)) <= self.deadline for n in names)

    def _left(self, rest: Rest, together: int) -> float:
        """Seconds of training; 0 if nothing tells."""
        if rest.ended:
            return 0.0
        known = self.rests.values()
        slowest = max((r.each for r in known if r.each is not None), default=None)
        longest = max((r.made for r in known if r.ended and r.most is None), default=None)
        each = slowest if rest.each is None else rest.each
        most = longest if rest.most is None else rest.most
        by_updates = math.inf if each is None or most is None else (most - rest.made) * each * together
        left = min(by_updates, rest.budget)
        return max(0.0, left) if math.isfinite(left) else 0.0
