"""docs/tutorial.ipynb: a whole notebook whose outputs are of its code, and which runs from top to bottom."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
NOTEBOOK, RUNNER = ROOT / "docs" / "tutorial.ipynb", ROOT / "docs" / "run_notebook.py"
PICTURES = {"history", "scores", "lengths", "flips"}  # cells whose value is a figure
TINY = {"UPDATES": 3, "PAIRS": 100, "HELD_OUT": 12}


def load() -> ModuleType:
    spec = spec_from_file_location("run_notebook", RUNNER)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = load()


def committed() -> dict[str, Any]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def printed(notebook: dict[str, Any]) -> dict[str, str]:
    """What each cell printed, by its id."""
    return {
        cell["id"]: "".join(
            line for output in cell["outputs"] if output["output_type"] == "stream" for line in output["text"]
        )
        for cell in runner.code_cells(notebook)
    }


def pictures(notebook: dict[str, Any]) -> dict[str, bytes]:
    """The PNG files, by the id of their cell."""
    return {
        cell["id"]: base64.b64decode(output["data"]["image/png"])
        for cell in runner.code_cells(notebook)
        for output in cell["outputs"]
        if "image/png" in output.get("data", {})
    }


def check_outputs(notebook: dict[str, Any]) -> None:
    """Every cell was run, in order, and showed something that a reader can use."""
    cells = runner.code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert notebook["metadata"][runner.KEY] == runner.digest(notebook), "run `make tutorial`"
    for cell in cells:
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                assert output.keys() == {"output_type", "name", "text"}
                assert output["name"] == "stdout"
            else:
                assert output.keys() == {"output_type", "execution_count", "metadata", "data"}
                assert output["output_type"] == "execute_result"
                assert output["execution_count"] == cell["execution_count"]
    assert pictures(notebook).keys() == PICTURES
    for png in pictures(notebook).values():
        with Image.open(io.BytesIO(png)) as picture:
            assert picture.width >= 600
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10  # something is drawn


def test_it_is_a_notebook_of_format_4() -> None:
    notebook = committed()
    assert notebook.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"] == {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len({*ids}) == len(ids)
    for cell in notebook["cells"]:
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", cell["id"])
        only_code = {"outputs", "execution_count"} if cell["cell_type"] == "code" else set()
        assert cell["cell_type"] in ("code", "markdown")
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | only_code
        assert isinstance(cell["source"], list)
        assert all(line.endswith("\n") for line in cell["source"][:-1])


def test_its_outputs_are_of_its_code() -> None:
    check_outputs(committed())


def test_it_is_small_and_names_no_place_of_the_machine_that_ran_it() -> None:
    assert NOTEBOOK.stat().st_size < 400_000
    texts = [*map(runner.source, committed()["cells"]), *printed(committed()).values()]
    assert [
        t for t in texts if re.search(r"(?<![\w.<])/\w+|[A-Z]:\\|0x[0-9a-f]{6}|Warning|Traceback", t)
    ] == []


def test_its_links_lead_somewhere() -> None:
    words = "\n".join(runner.source(cell) for cell in committed()["cells"] if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", words)
    assert links
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []


def test_the_model_that_it_shows_has_learned() -> None:
    right = re.match(r"([\d.]+)% of 1000 numbers right", printed(committed())["evaluate"])
    assert right
    assert float(right[1]) >= 99


def test_a_cell_shows_what_it_prints_and_the_value_at_its_end() -> None:
    def cell(text: str) -> dict[str, Any]:
        return {"cell_type": "code", "metadata": {}, "source": text.splitlines(keepends=True)}

    sizes = cell("N = 5") | {"metadata": {"tags": [runner.SIZES]}}
    cells = [sizes, cell("print(N)\nprint('b')\nN + 1"), cell("# nothing"), cell("M = N\nNone")]
    notebook = {"cells": [{"cell_type": "markdown", "source": ["words"]}, *cells], "metadata": {}}
    runner.run(notebook, {"N": 2})
    first, second, *rest = (cell["outputs"] for cell in cells)
    assert first == []
    assert rest == [[], []]
    assert [output.get("text") or output["data"] for output in second] == [
        ["2\n", "b\n"],
        {"text/plain": ["3"]},
    ]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, 4]
    with pytest.raises(SystemExit):
        runner.run(notebook, {"UNKNOWN": 2})
    before = runner.digest(notebook)
    cells[1]["source"] = ["print(N)"]
    assert runner.digest(notebook) != before


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    sizes = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER), str(NOTEBOOK), "--out", str(out), *sizes],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [*tmp_path.iterdir()] == [out]  # it trains in a folder of its own
    notebook = json.loads(out.read_text(encoding="utf-8"))
    check_outputs(notebook)
    shown, before = printed(notebook), printed(committed())
    for same in ("act", "segmenter", "given"):  # these do not depend on the sizes
        assert shown[same] == before[same]
    assert "update   3:" in shown["train"]
    assert "of 12 numbers right" in shown["evaluate"]
    assert len(shown["moving"].splitlines()) == len(before["moving"].splitlines()) == 4
    assert len({*map(str.strip, shown["moving"].splitlines())}) == 4
