"""Experiments whose trainings are forks of the test's own process, and a small recipe."""

from pathlib import Path

import pytest
from cli.program import write_config
from experiments import forks
from experiments.fleets import write_text
from experiments.recipes import RECIPE

from caesura.experiments import sweep
from caesura.experiments.processes import Children
from caesura.experiments.recipe import FILE


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork, but in slow tests, which start what users start."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(Children, "start", forks.start)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A folder with a reproduce.yaml, its configs, and the text in data/."""
    folder = tmp_path / "numbers"
    (folder / "data").mkdir(parents=True)
    write_text(folder / "data")
    for system in ("word", "char", "act"):
        write_config(folder / f"{system}.yaml", system, folder / "data")
    (folder / FILE).write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> dict[str, Path]:
    """Tiny systems whose test set is their dev set."""
    folder = tmp_path_factory.mktemp("systems")
    write_text(folder)
    return {system: write_config(folder / f"{system}.yaml", system) for system in ("act", "act-act", "word")}


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Figures take most of the time that a small sweep takes; the slow test draws them."""
    monkeypatch.setattr(sweep, "figures", lambda _: {})
