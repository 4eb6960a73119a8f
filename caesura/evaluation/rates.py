"""Segment lengths beside their targets, in characters per segment."""

from __future__ import annotations

TOLERANCE = 0.05  # of the target: a length that is further from it is off its rate


def rate_error(length: float, target: float) -> float:
    """How far a length is from its target, as a share of the target; 0 where there are no segments."""
    return length / target - 1 if length else 0.0


def off_rate(length: float, target: float | None) -> str | None:
    """A sentence about segments whose length is off the target; None if it is not, or there is no target."""
    if target is None or abs(error := rate_error(length, target)) <= TOLERANCE:
        return None
    return f"segments have {length:.2f} characters where {target:g} were asked for ({error:+.0%})"


def aim(target: float | None) -> str:
    """The target to print after a length, as in `4.02, asked 4`; empty without a target."""
    return "" if target is None else f", asked {target:.4g}"
