"""What all tests share: one thread, so that runs on a busy machine do not fight, and no deadlines."""

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("caesura", deadline=None)
settings.load_profile("caesura")


@pytest.fixture
def no_ignored_signals() -> Iterator[None]:
    """As at a terminal; where tests run under nohup or in the background, some signals are ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
