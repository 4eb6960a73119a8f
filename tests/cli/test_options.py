"""What options are written like."""

import pytest
from cli.program import caesura
from hypothesis import given
from hypothesis import strategies as st

from caesura.cli.options import parse_duration, parse_seeds
from caesura.errors import InputError
from caesura.terminal import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("9m", 540), ("1m30s", 90), ("1.5h", 5400), ("20", 20), ("2h 5m", 7500)],
)
def test_a_duration_may_have_hours_minutes_and_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "0h0m0s", "0.0m"])
def test_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(text, "--budget")
    assert str(caught.value) == f"--budget {text}: should be more than 0, such as 90s, 9m, 1m30s or 2h"


@given(st.integers(1, 23 * 3600))
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
    assert len(listed) == 13
    for line in listed:
        assert line.endswith(".")
        assert not line.endswith("..."), line
        assert len(line) < 80


def test_the_program_alone_prints_its_help_in_lines() -> None:
    result = caesura()
    assert result.status == 2
    assert "\\n" not in result.err
    commands = result.err.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands][:2] == ["demo", "train"]
