"""Which signals are remembered, and which are too many."""

import os
import signal

import pytest

from caesura.training.interrupt import Interrupt

FIRST = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def hang_up():
    """Nobody ignores SIGHUP, whoever runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_request_is_an_end_at_once(first: int, second: int) -> None:
    before = [signal.getsignal(number) for number in FIRST]
    with Interrupt() as interrupt:
        assert interrupt.reason() is None
        os.kill(os.getpid(), first)
        assert interrupt.signal == first
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), second)
    assert [signal.getsignal(number) for number in FIRST] == before


@pytest.mark.parametrize("first", FIRST)
def test_a_second_hang_up_is_the_first(first: int) -> None:
    with Interrupt() as interrupt:
        os.kill(os.getpid(), first)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupt.reason() == f"signal {signal.Signals(first).name}"


def test_what_is_ignored_under_nohup_still_is() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGHUP)
        assert interrupt.reason() is None
