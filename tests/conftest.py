"""What all tests share: one thread, so that runs on a busy machine do not fight, and an end to every test."""

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

pytest_plugins = ["wording"]

torch.set_num_threads(1)
settings.register_profile("caesura", deadline=None)
settings.load_profile("caesura")

TIMEOUTS = {"slow": 900, "soak": 3600}  # seconds; of other tests: pyproject.toml


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give long tests longer; one that says its own time keeps it."""
    for item in items:
        for name, seconds in TIMEOUTS.items():
            if item.get_closest_marker(name) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))


@pytest.fixture
def no_ignored_signals() -> Iterator[None]:
    """As at a terminal; where tests run under nohup or in the background, some signals are ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
