"""The grids in recipes/freedom describe runs that can be built, by the commands that stand above them."""

import re
import shlex
from pathlib import Path

import pytest

from caesura.experiments.sweep_grid import Plan, Point, points, read_rows

ROOT = Path(__file__).parents[2]
COMMANDS = [
    (path.name, line)
    for path in sorted((ROOT / "recipes" / "freedom").glob("grid-*.yaml"))
    for line in re.findall(r"^# \$ caesura sweep (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
]


def test_every_grid_has_its_command():
    assert {name for name, _ in COMMANDS} == {p.name for p in (ROOT / "recipes" / "freedom").glob("grid-*")}


@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_every_run_can_be_built(name, line):
    found = planned(name, line)
    assert len(found) >= 4
    assert len({point.folder for point in found}) == len(found)


def test_no_run_is_trained_twice():
    runs = {
        (line, point.name): point.config.model_copy(update={"name": ""}).dump()
        for name, line in COMMANDS
        for point in planned(name, line)
        if not point.beside
    }
    assert len({*runs.values()}) == len(runs)


def test_what_is_compared_has_the_same_dropout():
    for name, line in COMMANDS:
        assert len({point.config.model.decoder.model_extra["dropout"] for point in planned(name, line)}) == 1


def planned(name: str, line: str) -> list[Point]:
    """The runs of a command."""
    config, *words = shlex.split(line)
    options = list(zip(words[::2], words[1::2], strict=True))
    assert {key for key, _ in options} <= {"--list", "--beside", "--budget"}
    assert dict(options)["--list"] == f"recipes/freedom/{name}"
    beside = [ROOT / value for key, value in options if key == "--beside"]
    return points(Plan(ROOT / config, read_rows(ROOT / "recipes" / "freedom" / name), beside=beside))
