"""What the documents say is run: code, commands, links, recipes."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import typer.main
from helpers import tiny_model
from PIL import Image
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from caesura import config as schema
from caesura.cli.commands import app
from caesura.components import resolve
from caesura.config import load_config
from caesura.experiments import recipe
from caesura.segmenters.parts import CUTTERS, POOLINGS, READERS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# Beside them are lists of rows (reproduce.yaml) and of settings (grid-*.yaml), which are no configs.
RECIPES = sorted(
    path for path in (ROOT / "recipes").rglob("*.yaml") if not re.match("reproduce|grid-", path.name)
)


def blocks(language: str) -> list[str]:
    """The fenced blocks of the README, the guide and the page on scale in one language."""
    pages = ("README.md", "docs/guide.md", "docs/scale.md")
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    return [
        line.removeprefix("$ ").partition("#")[0].strip()
        for block in blocks("console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 110] == []


def test_the_readme_shows_code_and_commands() -> None:
    assert len(blocks("python")) >= 2
    assert {"make demo", "make test"} <= set(commands())


def test_no_index_is_asked_for_the_extras() -> None:
    """They are those of a clone: a package of this name on an index would be a stranger's."""
    files = [*PAGES, *(ROOT / "caesura").rglob("*.py")]
    assert [path for path in files if "caesura[" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.split("\n")[-2][:40])
def test_the_readmes_python_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "import" not in code:
        code = next(block for block in blocks("python") if "ActSegmenter" in block) + code
    for folder in re.findall(r'from_pretrained\("(runs/[^"]+)"\)', code):
        tiny_model().float().save_pretrained(tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert code.count("print(") == 0 or capsys.readouterr().out


@pytest.mark.parametrize("line", commands())
def test_the_readmes_commands_and_options_exist(line: str) -> None:
    program, *words = shlex.split(line.partition("<")[0].partition("&&")[0])
    if program == "torchrun":
        program, *words = words[words.index("-m") + 1 :]
    if program == "python":
        assert words[0] == "-m"
        done = subprocess.run([sys.executable, "-m", words[1], "--help"], capture_output=True, text=True)
        assert {word for word in words[2:] if word.startswith("--")} <= set(done.stdout.split())
        return
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words) <= set(targets)
        return
    if program in ("cp", "cut", "echo"):
        return
    assert program == "caesura"
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options
    for word in words:
        if word.startswith("recipes/"):
            assert (ROOT / word).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_nothing_is_left_to_fill_in(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target
    assert not re.search(r"@[A-Z]+@|TODO|FIXME|XXX", text)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_recipe_describes_a_model_that_can_be_built(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    assert resolve(config).model.encoder.options["num_layers"] in range(1, 7)
    assert config.name == "-".join(path.relative_to(ROOT / "recipes").with_suffix("").parts)
    (tmp_path / "config.yaml").write_text(config.dump(), encoding="utf-8")
    assert load_config(tmp_path / "config.yaml") == config


def test_the_recipe_for_your_text_names_the_test_set_that_the_readme_evaluates_on() -> None:
    test = load_config(ROOT / "recipes" / "your-text.yaml").data.test
    assert isinstance(test, schema.Files)
    assert "caesura evaluate runs/mine" in commands()
    compared = next(line for line in commands() if line.startswith("caesura compare"))
    assert f"--src {test.src.name} --trg {test.trg.name}" in compared


def test_the_recipes_cover_the_papers_systems() -> None:
    names = {path.stem for path in RECIPES if path.parent.name == "iwslt14"}
    assert {"word", "bpe", "char", "act", "word-4layer", "char-5layer", "act-3layer"} <= names


def possible(field: FieldInfo) -> str:
    """The default as YAML has it, and where only a few values are allowed the others."""
    if field.is_required():
        return "required"
    others = [v for v in get_args(field.annotation) if get_origin(field.annotation) is Literal]
    shown = "null" if field.default is None else str(field.default) or '""'
    shown = shown.lower() if isinstance(field.default, bool) else shown
    return "; or ".join(filter(None, [shown, ", ".join(v for v in others if v != field.default)]))


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("data.", schema.Data),
        ("data.src.", schema.Side),
        ("training.", schema.Training),
        ("testing.", schema.Testing),
        ("", recipe.Recipe),
        ("claims.", recipe.Claim),
        ("paper_text.", recipe.Splits),
        ("tables.T.", recipe.RecipeTable),
        ("tables.T.rows.R.", recipe.RecipeRow),
        ("tables.T.rows.R.paper.", recipe.Paper),
    ],
)
def test_the_list_of_keys_is_that_of_the_program(section: str, model: type[BaseModel]) -> None:
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    listed = re.findall(rf"^\| `{re.escape(section)}(\w+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert listed == [
        (name, possible(field), field.description) for name, field in model.model_fields.items()
    ]


def test_the_reproduce_yaml_of_the_list_of_keys_can_be_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    _, block = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shutil.copytree(ROOT / "recipes" / "multi30k", tmp_path, dirs_exist_ok=True)
    (tmp_path / recipe.FILE).write_text(block, encoding="utf-8")
    chosen = recipe.Chosen(tmp_path / "out")
    char, deep = recipe.systems(recipe.load_recipe(tmp_path / recipe.FILE), chosen)
    assert [*char.members] == [*deep.members] == [1, 2, 3]
    encoders = [resolve(system.members[1].load()).model.encoder for system in (char, deep)]
    assert deep.title == "char, 3 layers"
    assert [encoder.options["num_layers"] for encoder in encoders] == [1, 3]


def test_the_segmenter_of_the_list_of_keys_can_be_built(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    base = ROOT / "recipes" / "iwslt14" / "char.yaml"
    (tmp_path / "parts.yaml").write_text(f"base: {base}\nname: parts\n{block}", encoding="utf-8")
    segmenter = resolve(load_config(tmp_path / "parts.yaml")).model.segmenter
    assert segmenter.options["rate"]["target"] == 4.0


@pytest.mark.parametrize(
    ("part_name", "registry"), [("reader", READERS), ("cutter", CUTTERS), ("pooling", POOLINGS)]
)
def test_the_list_of_keys_has_every_part_and_its_options(part_name: str, registry: dict[str, str]) -> None:
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    table = text.partition("| part | type | options | |")[2].partition("\n\n")[0]
    rows: dict[str, dict[str, str]] = {kind: {} for kind in ("reader", "cutter", "pooling")}
    part = ""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        part = (cells[0].strip("`") or part) if cells else ""
        if part in rows:
            rows[part][cells[1].strip("`")] = cells[2]
    documented = rows[part_name]
    assert {*documented} == {name for name, place in registry.items() if isinstance(place, str)}
    for name, place in registry.items():
        if isinstance(place, str):  # what tests register are classes
            module, _, cls = place.partition(":")
            expected = inspect.signature(getattr(import_module(module), cls)).parameters
            options = {*expected} - {"vocab_size", "input_dim", "args", "kwargs"}
            assert {*re.findall(r"`(\w+)`", documented[name])} == options, name


def test_the_picture_of_the_report_is_of_the_report_as_it_is() -> None:
    spec = spec_from_file_location("report_picture", ROOT / "docs" / "report_picture.py")
    assert spec
    assert spec.loader
    maker = module_from_spec(spec)
    spec.loader.exec_module(maker)
    with Image.open(maker.PICTURE) as picture:
        assert picture.info[maker.KEY] == maker.digest(), "docs/report.png is out of date: `make picture`"
