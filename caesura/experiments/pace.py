"""How long trainings still take, as far as others tell: for calls that start none that they cannot end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from caesura.experiments.outcome import STRETCH, Outcome
from caesura.training.journal import read_records


class Pace:
    """Whether trainings can end before a deadline, measures included.

    An update takes as long as the slowest seen, and longer the more processes share the machine.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.around = 0.0  # seconds: the longest that a member took outside its training

    def ended(self, took: float, trained: float) -> None:
        """Learn from a member that `took` so many seconds, of which it was `trained` so many."""
        self.around = max(self.around, took - trained)

    def in_time(self, members: Sequence[Outcome], seen: Sequence[Outcome], now: float) -> bool:
        """Whether these can all end side by side; True as long as nothing tells how long they take."""
        costs = [cost for outcome in seen if (cost := update_alone(outcome)) is not None]
        each = max(costs) * len(members) if costs else None
        return all(now + self.around + seconds_left(outcome, each) <= self.deadline for outcome in members)


def update_alone(outcome: Outcome) -> float | None:
    """Seconds per update, validations included, had it the machine to itself; None where too few were made.

    Those before the first line of the log are left out: they prepare what all others use.
    """
    records = _timed(outcome, "train")
    if not records or (updates := records[-1]["update"] - records[0]["update"]) < STRETCH:
        return None
    return float((records[-1]["seconds"] - records[0]["seconds"]) / updates / outcome.side_by_side)


def seconds_left(outcome: Outcome, each: float | None) -> float:
    """Of training, if an update takes `each` seconds; 0 where neither updates nor a budget tell."""
    if outcome.trained:
        return 0.0
    updates, records = outcome.member.load().training.updates, _timed(outcome, "train", "validation")
    done, spent = (records[-1]["update"], records[-1]["seconds"]) if records else (0, 0.0)
    by_updates = math.inf if updates is None or each is None else (updates - done) * each
    by_budget = math.inf if outcome.budget is None else outcome.budget - spent
    left = min(by_updates, by_budget)
    return max(0.0, left) if math.isfinite(left) else 0.0


def _timed(outcome: Outcome, *kinds: str) -> list[dict[str, Any]]:
    records = read_records(outcome.member.folder)
    return [record for record in records if record["kind"] in kinds and "seconds" in record]
