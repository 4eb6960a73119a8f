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
def hang_up() -> Iterator[None]:
    """SIGHUP is not ignored, as it would be where tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
