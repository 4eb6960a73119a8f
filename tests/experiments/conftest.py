"""Experiments whose trainings are forks of the test's own process, and a small recipe."""

from pathlib import Path

import pytest
from cli.program import caesura, write_config, write_corpus
from experiments import forks
from experiments.fleets import write_text
from experiments.recipes import RECIPE

from caesura.experiments import fleet, sweep
from caesura.experiments.processes import Children
from caesura.experiments.recipe import FILE


@pytest.fixture(scope="session", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the first training of a process loads, forks find loaded; each would take a second for it."""
    folder = tmp_path_factory.mktemp("warm")
    write_corpus(folder, train=10, dev=2)
    config = write_config(folder / "c.yaml", "act")
    assert caesura("train", config, "--out", folder / "out", "--set", "training.updates=1").status == 0


@pytest.fixture(autouse=True)
def _quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks and sketches, but slow tests start what users start, and a test that names `drawn` draws."""
    if request.node.get_closest_marker("slow") is None or "forked" in request.fixturenames:
        monkeypatch.setattr(Children, "start", forks.start)
        monkeypatch.setattr(fleet, "POLL", 0.02)
        if "drawn" not in request.fixturenames:
            request.getfixturevalue("sketched")


@pytest.fixture
def forked() -> None:
    """Named by slow tests that do as the quick ones."""


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
