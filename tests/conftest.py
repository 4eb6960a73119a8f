"""What all tests share: one thread, so that runs on a busy machine do not fight, and an end to every test."""

import atexit
import gc
import os
import signal
from collections.abc import Iterator

import pytest
from sketches import sketch

pytest_plugins = ["wording"]

TIMEOUTS = {"slow": 900, "soak": 3600}  # seconds; of other tests: pyproject.toml


def pytest_configure(config: pytest.Config) -> None:
    """Settings of libraries; a process that only hands out tests (-n 2) need not import them."""
    if config.getoption("numprocesses", None):
        return
    gc.disable()  # until the tests begin: most imports stay
    import torch
    from hypothesis import settings

    torch.set_num_threads(1)
    if not torch.cuda.is_available():  # PyTorch would format the stack for each kind of device that it lacks
        torch.manual_seed = torch.default_generator.manual_seed
    settings.register_profile("caesura", deadline=None, max_examples=40)
    settings.load_profile("caesura")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give long tests longer; one that says its own time keeps it."""
    for item in items:
        for name, seconds in TIMEOUTS.items():
            if item.get_closest_marker(name) and not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(seconds))


def pytest_collection_finish() -> None:
    """Tests that collect garbage need not look through all imports each time.

    At the very end, imports count again, or Triton's library complains of leaks.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """No waiting for the disk: it would show only where the machine itself goes down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _timed_once() -> Iterator[None]:
    """Speeds are of one run instead of a median of several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("caesura.analysis.speed.REPEATS", 1)
        yield


@pytest.fixture
def no_ignored_signals() -> Iterator[None]:
    """As at a terminal; where tests run under nohup or in the background, some signals are ignored."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but their files are empty pictures."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", sketch)


@pytest.fixture
def drawn() -> None:
    """Named by tests that want real pictures where others get sketches."""
