"""Servers of small models, one of each kind for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, needed_browser
from explorer.asking import OWN, serving
from explorer.kinds import KINDS, SHORT
from explorer.pages import listening
from helpers import tiny_model

from caesura.explorer.server import Explorer


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder of each kind; not to be written to."""
    home = tmp_path_factory.mktemp("explored")
    for name, (segmenter, decoder, encoder) in KINDS.items():
        model = tiny_model(segmenter, decoder=decoder, encoder=encoder, testing=SHORT)
        model.save_pretrained(home / name)
    return {name: home / name for name in KINDS}


@pytest.fixture(scope="session")
def explorer(folders: dict[str, Path]) -> Iterator[Explorer]:
    """A server of all of them, and of the model that comes with Caesura."""
    with serving(OWN, *folders.values(), limits={"burst": 100_000}) as explorer:
        yield explorer


@pytest.fixture(scope="session")
def address(explorer: Explorer) -> Iterator[str]:
    """Where that server answers, for a browser."""
    with listening(explorer) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file: Playwright's loop must not run while others start theirs."""
    with Browser(needed_browser()) as browser:
        yield browser
