"""What options are written like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.options import parse_duration
from caesura.terminal import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("9m", 540), ("1m30s", 90), ("1.5h", 5400), ("20", 20), ("2h 5m", 7500)],
)
def test_a_duration_may_have_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(0, 23 * 3600))
def test_a_duration_is_read_as_the_program_prints_it(seconds: int) -> None:
    printed = duration(seconds)
    assert abs(parse_duration(printed) - seconds) < (60 if "h" in printed else 1)
