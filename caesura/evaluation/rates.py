"""Segment lengths beside those that were asked for, in characters per segment."""

from __future__ import annotations

TOLERANCE = 0.05  # of the target: a length that is further from it is off its rate


def rate_error(length: float, target: float) -> float:
    """How far a length is from its target, as a share of the target; 0 where there are no segments."""
    return length / target - 1 if length else 0.0


def off_rate(length: float, target: float | None) -> str | None:
    """A sentence about segments whose length is off the target; None where it is not, or none is asked."""
    if target is None or abs(error := rate_error(length, target)) <= TOLERANCE:
        return None
    return f"segments have {length:.2f} characters where {target:g} were asked for ({error:+.0%})"


def asked(target: float | None) -> str:
    """What follows a length: the one that was asked for, as in `4.02, asked 4`; empty where no rate is."""
    return "" if target is None else f", asked {target:.4g}"
