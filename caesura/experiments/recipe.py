"""The experiments of a recipe folder: which systems make which tables, beside which of the paper's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from caesura.config import Section, cookbook, load_config, yamlfile
from caesura.config.cookbook import FILE
from caesura.config.phrasing import problems
from caesura.config.text import wrong
from caesura.config.yamlfile import Key, Place, place_of
from caesura.errors import InputError
from caesura.experiments.outcome import DETAILED, INSIDE, ROBUST, TEST, Measure, Member, cuts_of_dev
from caesura.training.prepare import text_settings

Name = Annotated[str, Field(pattern=r"^\w[\w .+-]*$")]


class Paper(Section):
    """A row as the paper prints it."""

    system: str | None = Field(default=None, description="the paper's system, if it is not quite the same")
    bleu: float | None = Field(default=None, description="BLEU on the test set")
    chrf: float | None = Field(default=None, ge=0, le=1, description="chrF, between 0 and 1")
    parameters: int | None = Field(default=None, ge=1, description="such as 13_400_000")
    segment_length: float | None = Field(default=None, description="mean characters per segment, on dev")
    longest_segment: int | None = Field(
        default=None, ge=1, description="characters of the longest segment, on dev"
    )
    training_time: str | None = Field(default=None, description="such as 1d22h")


class RecipeRow(Section):
    """A system of a table."""

    config: str = Field(min_length=1, description="its config, a path relative to this file")
    title: str | None = Field(default=None, description="its name in the table; null: R")
    seeds: list[int] | None = Field(default=None, min_length=1, description="null: the seeds of the table")
    settings: list[str] = Field(default=[], description="such as model.encoder.num_layers=3, over the config")
    series: str | None = Field(default=None, description="its line in the figure of BLEU and segment length")
    paper: Paper | None = Field(default=None, description="the paper's row for it")


class RecipeTable(Section):
    """A table."""

    title: str = Field(min_length=1, description="the heading of the table")
    seeds: list[int] = Field(
        default=[1], min_length=1, description="every system is trained with each of them"
    )
    settings: list[str] = Field(
        default=[], description="such as training.precision=bfloat16, over all configs"
    )
    text: Name | None = Field(
        default=None,
        description="the folder of its text inside the folder of --data; null: the folder of --data itself",
    )
    rows: dict[Name, RecipeRow] = Field(min_length=1, description="its systems, by their names")


class Claim(Section):
    """A claim, and which of our rows decide it: their BLEU, or the length of segments."""

    claim: str = Field(min_length=1, description="the paper's finding, or what we expect")
    paper: str = Field(default="", description="the paper's numbers; empty: the claim is ours")
    above: list[str] = Field(
        default=[],
        description="rows as TABLE-ROW; their BLEU is added up; dev chooses one of rows with a bar between",
    )
    below: list[str] = Field(default=[], description="rows that should have less")
    length_of: str | None = Field(default=None, description="instead: a row whose segment length decides")
    at_least: float = Field(default=1.0, ge=1, description="fewest characters per segment on dev")
    at_most: float | None = Field(default=None, ge=1, description="null: any")

    @property
    def rows(self) -> list[str]:
        """All rows that it names."""
        named = [*self.above, *self.below, *([self.length_of] if self.length_of else [])]
        return [row for names in named for row in choices(names)]

    @model_validator(mode="after")
    def _one_kind(self) -> Claim:
        if bool(self.above and self.below) == bool(self.length_of) or bool(self.above) != bool(self.below):
            raise wrong("above", "needs below beside it, or length_of in the place of both")
        return self


def choices(names: str) -> list[str]:
    """The rows of `a | b`, of which dev chooses one."""
    return [name.strip() for name in names.split("|")]


class Splits(Section):
    """Sentences of the paper's text."""

    name: str | None = Field(
        default=None, description="its name, if our text is another one and not a part of it"
    )
    train: int = Field(ge=1, description="sentences")
    dev: int = Field(ge=1, description="sentences")
    test: int = Field(ge=1, description="sentences")


class Recipe(Section):
    """A recipe for `caesura reproduce`."""

    title: str = Field(min_length=1, description="the text and the direction")
    note: str = Field(default="", description="a note under every table")
    paper_text: Splits | None = Field(default=None, description="the text of the paper")
    measures: list[Literal["cuts", "details", "inside", "robust"]] = Field(
        default=[], description="what is measured besides test scores; see below"
    )
    claims: list[Claim] = Field(default=[], description="claims, each with a verdict in claims.md")
    tables: dict[Name, RecipeTable] = Field(min_length=1, description="by their names")
    _places: dict[Key, Place] = PrivateAttr(default_factory=dict)
    _folder: Path = PrivateAttr(default=Path())

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self._folder.resolve().name

    @property
    def texts(self) -> list[str]:
        """The texts of its tables, each once; "" is the folder --data itself."""
        return [*dict.fromkeys(table.text or "" for table in self.tables.values())]

    def wanted(self, gold: str | None = None) -> tuple[Measure, ...]:
        """The measures of every model: the test, and the recipe's others; `gold` is for cuts."""
        if gold is not None and "cuts" not in self.measures:
            raise InputError(f"--gold {gold}: recipe {self.name} does not measure cuts; leave it out")
        test = DETAILED if "details" in self.measures else TEST
        others = {"cuts": cuts_of_dev(gold), "robust": ROBUST, "inside": INSIDE}
        return test, *(measure for name, measure in others.items() if name in self.measures)

    def error(self, key: Key, message: str) -> InputError:
        """An InputError about a key, with the line that it stands on."""
        return InputError(place_of(self._places, key).says(key, message))


@dataclass(frozen=True)
class Chosen:
    """The part of a recipe to train, and where."""

    out: Path
    data: Path | None = None
    only: tuple[str, ...] = ()  # names of tables, of rows, or TABLE-ROW; none: all
    seeds: tuple[int, ...] = ()  # none: the recipe's
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecipeSystem:
    """A row of a table, and its trainings, one per seed."""

    table: str
    row: str
    title: str
    paper: Paper | None
    members: dict[int, Member]  # by seed
    series: str | None = None  # its line in the figure of BLEU and segment length
    text: str = ""  # the folder of its text inside --data

    @property
    def name(self) -> str:
        """The name of its folders, without the seed."""
        return f"{self.table}-{self.row}"


def find_recipe(name: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The reproduce.yaml of a recipe, by its name or folder; prints which one if that is not obvious."""
    folder = Path(name)
    path = cookbook.find(str(folder if folder.name == FILE else folder / FILE), say)
    if path.is_file():
        return path
    recipes = sorted({path.parent.name for home in cookbook.homes() for path in home.glob(f"*/{FILE}")})
    listed = f"known: {', '.join(recipes)}" if recipes else "none is here"
    raise InputError(f"{name}: no such recipe ({listed}), and no folder with a {FILE}")


def load_recipe(path: Path) -> Recipe:
    """Read and check a reproduce.yaml."""
    source = yamlfile.read_file(path)
    yamlfile.refuse(source.problems)
    try:
        recipe = Recipe.model_validate(source.tree)
    except ValidationError as invalid:
        yamlfile.refuse(problems(invalid, Recipe, source.places))
        raise
    recipe._places, recipe._folder = source.places, path.parent
    _check_claims(recipe)
    return recipe


def _check_claims(recipe: Recipe) -> None:
    """Claims name rows that there are, of one text."""
    texts = {f"{name}-{row}": table.text for name, table in recipe.tables.items() for row in table.rows}
    for number, claim in enumerate(recipe.claims):
        if unknown := [row for row in claim.rows if row not in texts]:
            raise recipe.error(("claims", str(number)), f"no row {unknown[0]}; rows are named TABLE-ROW")
        if len({texts[row] for row in claim.rows}) > 1:
            raise recipe.error(
                ("claims", str(number)), "its rows are of several texts, whose scores say nothing"
            )


def systems(recipe: Recipe, chosen: Chosen) -> list[RecipeSystem]:
    """The chosen systems, in the order of the recipe, with every config checked."""
    unmatched = {*chosen.only}
    result: list[RecipeSystem] = []
    folders: dict[Path, RecipeSystem] = {}
    for table, rows in recipe.tables.items():
        for name, row in rows.rows.items():
            names = {table, name, f"{table}-{name}"}
            if chosen.only and not names & {*chosen.only}:
                continue
            unmatched -= names
            system = _system(recipe, chosen, (table, name), rows, row)
            for member in system.members.values():
                other = folders.setdefault(member.folder, system)
                if other is not system:
                    key = ("tables", table, "rows", name)
                    raise recipe.error(key, f"its folder would be that of {other.table}.{other.row} as well")
            result.append(system)
    if unmatched:
        available = [f"{table}-{row}" for table, rows in recipe.tables.items() for row in rows.rows]
        raise InputError(
            f"--only {','.join(sorted(unmatched))}: not in the recipe, which has {', '.join(available)}"
        )
    return result


def _system(
    recipe: Recipe, chosen: Chosen, where: tuple[str, str], rows: RecipeTable, row: RecipeRow
) -> RecipeSystem:
    table, name = where
    key = ("tables", table, "rows", name)
    path = recipe._folder / row.config
    if not path.is_file():
        raise recipe.error((*key, "config"), f"no file {row.config} in {recipe._folder}")
    settings = (*rows.settings, *row.settings)
    try:
        config = load_config(path, settings)
    except InputError as problem:
        message = str(problem).replace("\n", "; ")
        raise recipe.error(key, f"cannot be trained: {message}") from problem
    data = chosen.data and chosen.data / (rows.text or "")
    text = () if data is None else tuple(text_settings(data, config))
    members = {}
    for seed in chosen.seeds or row.seeds or rows.seeds:
        over = (*settings, *text, *chosen.settings, f"training.seed={seed}")
        member = f"{table}-{name}-{seed}"
        members[seed] = Member(member, path, over, chosen.out / member.replace(" ", "_"))
        members[seed].load()
    return RecipeSystem(table, name, row.title or name, row.paper, members, row.series, rows.text or "")


def unique_titles(chosen: Sequence[RecipeSystem]) -> list[str]:
    """Titles, with the names of their tables, or of tables and rows, where others have the same."""
    titles = [system.title for system in chosen]
    for attribute in ("table", "name"):
        titles = [
            f"{system.title} ({getattr(system, attribute)})" if titles.count(title) > 1 else title
            for system, title in zip(chosen, titles, strict=True)
        ]
    return titles
