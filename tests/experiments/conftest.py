"""Experiments whose trainings are forks of the test's own process."""

import pytest
from experiments import forks

from caesura.experiments.processes import Children


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork, but in slow tests, which start what users start."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(Children, "start", forks.start)
