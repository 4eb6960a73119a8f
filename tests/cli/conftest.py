"""Tiny models, trained once a session through the command line itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.program import SYSTEMS, caesura, write_config, write_corpus


@pytest.fixture(autouse=True)
def _sketched(request: pytest.FixtureRequest) -> None:
    """Reports without real pictures, but in slow tests and where a test names `drawn`."""
    if request.node.get_closest_marker("slow") is None and "drawn" not in request.fixturenames:
        request.getfixturevalue("sketched")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and dev: German digits in words, and English ones."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, digits=5)
    return folder


@pytest.fixture(scope="session")
def models(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained model folder for each system; not to be written to."""
    folders = {}
    for system in SYSTEMS:
        folders[system] = tmp_path_factory.mktemp("models") / system
        config = write_config(corpus / f"{system}.yaml", system)
        updates = 60 if system == "word" else 10  # the word model learns the digits, the others need not
        done = caesura("train", config, "--out", folders[system], "--set", f"training.updates={updates}")
        assert done.status == 0, done.err
    return folders


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    """Writes a file of the test's own folder."""

    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
