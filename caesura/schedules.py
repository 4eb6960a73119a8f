"""Numbers that change during training: from one value to another, in a shape, over so many updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Shape = Literal["constant", "linear", "cosine", "step"]


@dataclass(frozen=True)
class Schedule:
    """`start` until update `after`, then to `end` within `updates` more, where it stays.

    linear: evenly; cosine: slow, fast, slow; step: all at once, when these updates are over; constant: never.
    """

    start: float
    end: float
    updates: int
    shape: Shape = "linear"
    after: int = 0

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise ValueError(f"shape must be one of {', '.join(get_args(Shape))}, not {self.shape}")
        for name, value in (("start", self.start), ("end", self.end)):
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, not {value}")
        for name, count in (("updates", self.updates), ("after", self.after)):
            if count < 0:
                raise ValueError(f"{name} must be at least 0, not {count}")

    def at(self, update: int) -> float:
        """The value for an update; `update` others came before."""
        if self.shape == "constant":
            return self.start
        done = (update - self.after) / self.updates if self.updates else float(update >= self.after)
        done = min(1.0, max(0.0, done))
        if self.shape == "step":
            done = math.floor(done)
        elif self.shape == "cosine":
            done = (1 - math.cos(math.pi * done)) / 2
        return self.start + (self.end - self.start) * done

    def __str__(self) -> str:
        if self.shape == "constant":
            return f"{self.start:g}"
        begun = f" from update {self.after:,}" if self.after else ""
        return f"{self.start:g} to {self.end:g} ({self.shape}, {self.updates:,} updates{begun})"


Setting = float | Schedule  # of a number: one value, or a schedule


def first(setting: Setting) -> float:
    """The value that training starts with."""
    return setting.at(0) if isinstance(setting, Schedule) else setting


def extremes(setting: Setting) -> tuple[float, float]:
    """The least and the greatest value."""
    if not isinstance(setting, Schedule):
        return setting, setting
    ends = (setting.start,) if setting.shape == "constant" else (setting.start, setting.end)
    return min(ends), max(ends)


def shown(setting: Setting | Mapping[str, Any]) -> str:
    """A number or schedule as text; the schedule may be a section of a config."""
    if isinstance(setting, Mapping):
        setting = Schedule(**setting)
    return str(setting) if isinstance(setting, Schedule) else f"{setting:g}"


def is_schedule(value: object) -> bool:
    """Whether this is a schedule's section of a config."""
    return isinstance(value, Mapping) and {"start", "end", "updates"} <= {*value}
