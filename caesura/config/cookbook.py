"""Where recipes and models are, and how a name leads to one: here, in recipes/ here, or with the program."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

HERE = Path("recipes")
SUFFIX = ".yaml"
FILE = "reproduce.yaml"  # of a folder whose recipes are trained together
PACKAGE = Path(__file__).parents[1]
MODELS = PACKAGE / "models"  # one folder per model that comes with the program


def home() -> Path:
    """The folder of the recipes that come with the program: in the package, or in the clone."""
    return installed() or PACKAGE.parent / "recipes"


def installed() -> Path | None:
    """The folder of recipes inside the package, which a wheel has and a clone does not."""
    folder = PACKAGE / "recipes"
    return folder if folder.is_dir() else None


def homes() -> list[Path]:
    """Where recipes are looked for."""
    return [HERE, home()]


def find(name: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The file of this name, else the recipe, with or without .yaml; says which if that is not obvious.

    A name that leads nowhere is returned as it is.
    """
    given = Path(name)
    here = next((path for path in _spellings(given) if path.is_file()), given)
    recipe = next((path for path in _candidates(given) if path.is_file()), None)
    if recipe is None or (here.exists() and here.samefile(recipe)):
        return here
    if here.is_file():
        say(f"{here}: using the file in this folder, not the recipe of that name")
        return here
    origin = f"the recipe {name_of(recipe)} that comes with Caesura" if home() in recipe.parents else recipe
    say(f"{name}: no such file in this folder; using {origin}")
    return recipe


def find_own(name: str) -> Path | None:
    """A recipe that comes with the program."""
    return next((path for path in _candidates(Path(name)) if home() in path.parents and path.is_file()), None)


def find_model(name: str | os.PathLike[str]) -> Path:
    """The model folder of this name, else the model of that name that comes with the program."""
    given = Path(name)
    return MODELS / given if given.name == str(given) in own_models() and not given.exists() else given


def own_models() -> list[str]:
    """The names of the models that come with the program."""
    return sorted(path.name for path in MODELS.glob("*") if path.is_dir())


def shown(path: str | os.PathLike[str]) -> str:
    """The name of a file in messages, and the folder where its paths start.

    Nobody keeps text in an installed package: its recipes are read as if recipes/ were in the current folder,
    and the configs of its models as if they were.
    """
    folder, whole = installed(), Path(os.path.abspath(path))
    if MODELS in whole.parents:
        return whole.name
    if folder is None or folder not in whole.parents:
        return str(path)
    return str(HERE / whole.relative_to(folder))


def own_name(file: str) -> str | None:
    """The name of a recipe that comes with the program, from its name in messages; None for others."""
    path = Path(file) if os.path.exists(file) else home().parent / file
    whole = Path(os.path.abspath(path))
    return name_of(whole) if home() in whole.parents and whole.is_file() else None


def name_of(path: Path) -> str:
    """The name of a recipe that comes with the program."""
    return (path.parent if path.name == FILE else path).relative_to(home()).with_suffix("").as_posix()


def _candidates(given: Path) -> list[Path]:
    """Where a recipe of this name could be."""
    parts = given.parts[1:] if given.parts[:1] == HERE.parts else given.parts
    if given.is_absolute() or ".." in parts or not parts:
        return []
    paths = [path for folder in homes() for path in _spellings(folder.joinpath(*parts))]
    return [path for path in paths if path.suffix == SUFFIX]


def _spellings(path: Path) -> tuple[Path, Path]:
    """A file, and the one that is meant where .yaml was left out."""
    return path, Path(f"{path}{SUFFIX}")
