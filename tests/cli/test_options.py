"""What options are written like."""

import pytest
from cli.program import caesura
from hypothesis import given
from hypothesis import strategies as st

from caesura.options import parse_duration, parse_seeds
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


def test_a_seed_that_is_given_twice_counts_once() -> None:
    assert parse_seeds("2,1,2,1") == (2, 1)


def test_an_80_column_terminal_shows_the_first_sentence_about_each_command_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = caesura("--help").out.partition("Commands:\n")[2].splitlines()
    assert len(listed) == 9
    for line in listed:
        assert line.endswith(".")
        assert not line.endswith("..."), line
        assert len(line) < 80
