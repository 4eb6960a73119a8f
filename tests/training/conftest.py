"""What short runs share: a corpus to read, and a log that has something in it."""

from pathlib import Path

import pytest
from cli.program import write_corpus

from caesura.training import loop


@pytest.fixture
def frequent_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the log every 4 updates."""
    monkeypatch.setattr(loop, "LOG_EVERY", 4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, train=45, dev=5)
    return folder
