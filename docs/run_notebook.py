"""Run a notebook without Jupyter and keep what its cells show; `make tutorial` and the tests call this."""

import argparse
import ast
import base64
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

KEY = "outputs_of"  # under which the metadata hold the digest of the code that the outputs are of
SIZES = "parameters"  # the tag of the cell whose values --set replaces


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: dict[str, Any]) -> str:
    """Of the code alone: words may change without a new run."""
    return hashlib.sha256("\0".join(map(source, code_cells(notebook))).encode()).hexdigest()


def run_cell(cell: dict[str, Any], names: dict[str, Any], number: int) -> None:
    """Run one cell; its outputs are what it prints, and the value of an expression at its end."""
    tree, file = ast.parse(source(cell)), f"cell {number}"
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, file, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_png_"):
            data = {"image/png": base64.b64encode(value._repr_png_()).decode(), "text/plain": ["<Figure>"]}
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    cell |= {"execution_count": number, "outputs": outputs}


def run(notebook: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Run every cell in order, in the current folder; `sizes` replace values of the cell tagged so."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), 1):
        run_cell(cell, names, number)
        if SIZES in cell["metadata"].get("tags", ()):
            if unknown := sizes.keys() - names.keys():
                raise SystemExit(f"no such name in cell {number}: {', '.join(sorted(unknown))}")
            names |= sizes
    notebook["metadata"][KEY] = digest(notebook)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a notebook in an empty folder, and write it with its outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, help="where to write it; by default in its place")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    options = parser.parse_args(arguments)
    path, out = options.notebook.resolve(), (options.out or options.notebook).resolve()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    sizes = {name: int(value) for name, _, value in (one.partition("=") for one in options.set)}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            run(notebook, sizes)
        finally:
            os.chdir(before)
    out.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
