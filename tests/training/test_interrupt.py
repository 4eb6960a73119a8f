"""Which signals are remembered, and which are too many."""

import os
import signal

import pytest

from caesura.experiments.processes import Children
from caesura.training.interrupt import Interrupt

FIRST = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


pytestmark = pytest.mark.usefixtures("no_ignored_signals")


@pytest.mark.parametrize("first", FIRST)
def test_ctrl_c_after_a_signal_is_an_end_at_once(first: int) -> None:
    before = [signal.getsignal(number) for number in FIRST]
    with Interrupt() as interrupt:
        assert interrupt.reason() is None
        os.kill(os.getpid(), first)
        assert interrupt.signal == first
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in FIRST] == before


@pytest.mark.parametrize("first", FIRST)
def test_other_signals_may_come_again(first: int) -> None:
    with Interrupt() as interrupt:
        os.kill(os.getpid(), first)
        for number in (signal.SIGHUP, signal.SIGTERM) * 3:
            os.kill(os.getpid(), number)
        assert interrupt.reason() == f"signal {signal.Signals(first).name}"


def test_a_lasting_one_goes_on_behind_it() -> None:
    with Interrupt(lasting=True) as interrupt:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupt.signal == signal.SIGTERM


@pytest.mark.parametrize("ignored", FIRST)
@pytest.mark.parametrize("remembers", [Interrupt, Children])
def test_what_is_ignored_still_is(remembers: type[Interrupt | Children], ignored: int) -> None:
    signal.signal(ignored, signal.SIG_IGN)
    with remembers() as interrupt:
        os.kill(os.getpid(), ignored)
        assert interrupt.signal is None
        signal_number = next(number for number in FIRST if number != ignored)
        os.kill(os.getpid(), signal_number)
        assert interrupt.signal == signal_number
    assert signal.getsignal(ignored) is signal.SIG_IGN


@pytest.mark.parametrize("first", FIRST)
def test_what_is_shielded_is_not_cut_short(first: int) -> None:
    done = []

    def work() -> None:
        with interrupt.shielded():
            with interrupt.shielded():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with Interrupt() as interrupt:
        os.kill(os.getpid(), first)
        with pytest.raises(KeyboardInterrupt):
            work()
        with interrupt.shielded():
            done.append("after")
    assert done == ["inner", "outer", "after"]
