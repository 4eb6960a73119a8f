"""Lengths beside those that were asked for, and the one rule of when a model is off its rate."""

import pytest

from caesura.evaluation.rates import TOLERANCE, aim, off_rate


@pytest.mark.parametrize(
    ("length", "target", "off"),
    [(4.0, 4.0, False), (4.19, 4.0, False), (3.81, 4.0, False), (4.21, 4.0, True), (3.79, 4.0, True)],
)
def test_a_length_is_off_its_rate_beyond_the_tolerance(length: float, target: float, off: bool) -> None:
    assert TOLERANCE == 0.05
    assert (off_rate(length, target) is not None) == off


def test_nothing_is_off_where_no_rate_is_asked_or_there_is_no_segment() -> None:
    assert off_rate(4.0, None) is off_rate(0.0, 4.0) is None


def test_both_lengths_are_in_the_sentence() -> None:
    message = off_rate(4.4, 4.0)
    assert message is not None
    assert all(number in message for number in ("4.40", " 4 ", "+10%"))
    assert [aim(None), aim(4.0), aim(2.5)] == ["", ", asked 4", ", asked 2.5"]
