"""`caesura recipes`: the recipes that come with the program, and copies of them to change."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from caesura.config import cookbook, yamlfile
from caesura.config.cookbook import FILE
from caesura.config.phrasing import nearest
from caesura.data.files import refuse_unwritable
from caesura.errors import InputError
from caesura.experiments.recipe import load_recipe

LONGEST = 100  # characters of a sentence about a recipe
PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class Copies:
    """The files of a copied recipe."""

    recipe: Path  # the copy of the named file
    written: list[Path]  # it, and the files that it needs
    kept: list[Path]  # files that it needs and that existed already
    edits: list[str]  # places with the names of text files

    @property
    def command(self) -> str:
        """The command that trains with it."""
        if self.recipe.name == FILE:
            return f"caesura reproduce {self.recipe.parent}"
        if self.recipe.name.startswith("grid-"):
            return f"caesura sweep CONFIG --list {self.recipe}"
        return f"caesura train {self.recipe}"


def listed() -> dict[str, str]:
    """All recipes by name, with a sentence about each; the one for the user's own text first."""
    home = cookbook.home()
    files = {cookbook.name_of(file): file for file in home.rglob(f"*{cookbook.SUFFIX}")}
    names = sorted(files, key=lambda name: (name != "your-text", name))
    return {name: _sentence(files[name]) for name in names}


def copy_recipe(name: str, folder: Path) -> Copies:
    """Copy a recipe and the files that it is based on into a folder; nothing there is replaced."""
    recipe = cookbook.find_own(name) or cookbook.find_own(f"{name}/{FILE}")
    if recipe is None:
        close = nearest(name, listed())
        meant = f"did you mean {close}? " if close else ""
        raise InputError(f"{name}: no such recipe; {meant}`caesura recipes` lists them")
    copies = {file: folder / file.relative_to(cookbook.home()) for file in _needed(recipe)}
    if os.path.lexists(copies[recipe]):
        raise InputError(f"{copies[recipe]}: exists already; move it away or name another folder")
    kept = [copy for copy in copies.values() if os.path.lexists(copy)]
    edits = []
    with refuse_unwritable(folder, "folder"):
        for file, copy in copies.items():
            if copy not in kept:
                copy.parent.mkdir(parents=True, exist_ok=True)
                with copy.open("x", encoding="utf-8") as new:
                    new.write(_moved(file))
            if lines := sorted({line for _, line in _texts(file)}):
                edits.append(f"{copy}, lines {lines[0]} to {lines[-1]}")
    return Copies(copies[recipe], [copy for copy in copies.values() if copy not in kept], kept, edits)


def _sentence(file: Path) -> str:
    """The first sentence of the comment that a recipe begins with."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comments = takewhile(lambda line: line.startswith("# "), lines)
    comment = " ".join(line.removeprefix("# ") for line in comments)
    return textwrap.shorten(re.split(r"(?<=\.) ", comment)[0], LONGEST, placeholder=" ...")


def _needed(file: Path) -> list[Path]:
    """A recipe and all files that it leads to."""
    needed, todo = [], [file]
    while todo:
        path = Path(os.path.normpath(todo.pop(0)))
        needed.append(path)
        todo += [path.parent / name for name in _leads(path)]
    return [*dict.fromkeys(needed)]


def _leads(file: Path) -> list[str]:
    if file.name == FILE:
        return [row.config for rows in load_recipe(file).tables.values() for row in rows.rows.values()]
    is_list = file.name.startswith("grid-")  # of settings, not a config
    base = None if is_list else yamlfile.read_file(file).tree.get("base")
    return [base] if base else []


def _texts(file: Path) -> Iterator[tuple[str, int]]:
    """The names of text files in a recipe, each with its line."""
    if file.name == FILE or file.name.startswith("grid-"):
        return
    source = yamlfile.read_file(file)
    for part in PARTS:
        files = source.tree.get("data", {}).get(part)
        line = yamlfile.place_of(source.places, ("data", part)).line
        for name in files.values() if isinstance(files, dict) else [files] if files else []:
            yield name, line


def _moved(file: Path) -> str:
    """A recipe's content for a copy: text that was beside recipes/, in data/, is in the copy's folder now."""
    text = file.read_text(encoding="utf-8")
    place = file.parent.relative_to(cookbook.home())
    for name, _ in _texts(file):
        seen = os.path.normpath(cookbook.HERE / place / name)
        if not seen.startswith(f"{cookbook.HERE}{os.sep}"):
            text = text.replace(name, os.path.relpath(seen, place))
    return text
