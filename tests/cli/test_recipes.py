"""Recipes by their names: found, listed, copied; and a wheel that needs no clone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from cli.program import AT_ONCE, caesura, contents, refusal, write_corpus
from wording import wording

from caesura.config import Config, Files, cookbook, load_config
from caesura.experiments.recipe import load_recipe
from caesura.experiments.recipe_copies import copy_recipe, listed

ROOT = Path(__file__).parents[2]
SMALL = (
    "training.updates=2",
    "training.warmup=0",
    "training.batch_size=4",
    "training.device=cpu",
    "training.threads=1",
)
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipes of a package as a wheel installs it."""
    place = tmp_path / "site-packages" / "caesura"
    shutil.copytree(ROOT / "recipes", place / "recipes")
    monkeypatch.setattr(cookbook, "PACKAGE", place)
    return place / "recipes"


def texts(config: Config) -> list[Path]:
    """All text files of a config."""
    parts = [config.data.train, config.data.dev, *([config.data.test] if config.data.test else [])]
    return [file for part in parts for file in ((part.src, part.trg) if isinstance(part, Files) else (part,))]


def test_every_recipe_is_listed_with_a_line_about_it(folder: Path) -> None:
    done = caesura("recipes")
    assert (done.status, done.err) == (0, "")
    lines = done.lines[: done.lines.index("")]
    names = [line.split()[0] for line in lines]
    files = {path.relative_to(ROOT / "recipes").as_posix() for path in (ROOT / "recipes").rglob("*.yaml")}
    assert {f"{name}.yaml" for name in names} | {f"{name}/reproduce.yaml" for name in names} >= files
    assert len(names) == len(files)
    assert names[0] == "your-text"
    assert all(re.fullmatch(r"[\w/-]+ {2,}\S.{5,99}", line) for line in lines)


def configs(file: Path) -> list[Config]:
    """A recipe's own config, or those of its rows; a list of settings has none."""
    if file.name == cookbook.FILE:
        rows = [row for table in load_recipe(file).tables.values() for row in table.rows.values()]
        return [load_config(file.parent / row.config) for row in rows]
    return [] if file.name.startswith("grid-") else [load_config(file)]


@pytest.mark.parametrize("name", listed())
def test_a_copy_is_the_recipe_with_its_text_in_the_new_folder(tmp_path: Path, name: str) -> None:
    new, root = tmp_path / "new", ROOT / "recipes"
    copies = copy_recipe(name, new)
    original = root / copies.recipe.relative_to(new)
    assert not copies.kept
    assert {*copies.written} == {path for path in new.rglob("*") if path.is_file()}
    assert copies.recipe.read_bytes() == original.read_bytes() or copies.edits
    for one, other in zip(configs(original), configs(copies.recipe), strict=True):
        for file, moved in zip(texts(one), texts(other), strict=True):
            assert moved == new / file.relative_to(root if root in file.parents else ROOT)
        assert one.model_copy(update={"data": other.data}) == other
        assert copies.edits


def test_a_copy_says_which_lines_to_change_and_replaces_nothing(folder: Path) -> None:
    done = caesura("recipes", "copy", "multi30k/act", ".")
    assert done.lines[:2] == ["multi30k/act.yaml", "multi30k/char.yaml"]
    assert "multi30k/char.yaml, lines 8 to 10" in done.lines[2]
    assert done.lines[-1] == "then: caesura train multi30k/act.yaml"
    base = folder / "multi30k" / "char.yaml"
    base.write_text(base.read_text().replace("multi30k-de-en", "mine"))
    before = contents(folder)
    message = wording(refusal(caesura("recipes", "copy", "multi30k/act.yaml")))
    assert message.startswith("multi30k/act.yaml: ")
    assert contents(folder) == before
    done = caesura("recipes", "copy", "recipes/multi30k/bpe")
    assert "multi30k/char.yaml exists already and is kept" in done.lines
    assert contents(folder).items() >= before.items()
    assert texts(load_config("multi30k/bpe.yaml"))[0] == folder / "data" / "mine" / "train.de.xz"


def test_what_cannot_be_copied_is_one_sentence(folder: Path) -> None:
    assert " your-text?" in wording(refusal(caesura("recipes", "copy", "your-txt", ".")))
    for name in ("../recipes/your-text", str(ROOT / "recipes" / "your-text.yaml"), "", ".", "small/char"):
        assert wording(refusal(caesura("recipes", "copy", name, ".")), ROOT).startswith(f"{name}: ")
    (folder / "file").write_text("")
    (folder / "your-text.yaml").symlink_to("nowhere")
    assert wording(refusal(caesura("recipes", "copy", "your-text", "file"))).startswith("file: ")
    assert wording(refusal(caesura("recipes", "copy", "your-text", "."))).startswith("your-text.yaml: ")
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize("name", ["your-text.yaml", "your-text", "recipes/your-text.yaml"])
def test_a_packaged_recipe_without_its_text_says_how_to_get_a_copy(
    folder: Path, package: Path, name: str
) -> None:
    message = wording(refusal(caesura("train", name), answered=1))
    assert message.startswith("recipes/your-text.yaml:5: data.train.src: ")
    assert f" {folder}/recipes/train.de;" in message
    assert "`caesura recipes copy your-text .`" in message
    message = wording(refusal(caesura("sweep", name, "--seeds", "1,2"), answered=1))
    assert "`caesura recipes copy your-text .`" in message
    message = wording(refusal(caesura("reproduce", "multi30k"), answered=1))
    assert message.startswith("recipes/multi30k/char.yaml:8: data.train.src: ")
    assert f"{folder}/data/multi30k-de-en/train.de.xz" in message
    assert "--data FOLDER" in message
    assert contents(folder) == {}


def test_a_recipe_is_found_by_its_name_and_a_file_of_that_name_wins(folder: Path, package: Path) -> None:
    problems: list[str] = []
    assert cookbook.find("your-text.yaml", problems.append) == package / "your-text.yaml"
    assert problems.pop() == (
        "your-text.yaml: no such file in this folder; using the recipe your-text that comes with Caesura"
    )
    (folder / "recipes").mkdir()
    (folder / "recipes" / "your-text.yaml").write_text("")
    assert cookbook.find("your-text", problems.append) == Path("recipes/your-text.yaml")
    assert problems.pop().endswith("using recipes/your-text.yaml")
    assert cookbook.find("recipes/your-text.yaml", problems.append) == Path("recipes/your-text.yaml")
    assert problems == []
    (folder / "your-text.yaml").write_text("")
    assert cookbook.find("your-text", problems.append) == Path("your-text.yaml")
    assert problems.pop().startswith("your-text.yaml: using the file in this folder")
    for name in ("nowhere.yaml", "multi30k", str(folder / "your-text.yaml"), "../here/your-text.yaml"):
        assert cookbook.find(name, problems.append) == Path(name)
    assert problems == []


def test_text_of_a_packaged_recipe_is_in_the_current_folder(folder: Path, package: Path) -> None:
    for name in ("train", "dev", "test"):
        path = folder / "data" / "numerals-de-en" / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("eins\tone\nzwei\ttwo\n" * 4)
    done = caesura("train", "numerals/act-enc-dec.yaml", "--time-limit", AT_ONCE, *SETTINGS)
    assert (done.status, done.err) == (0, "")
    assert "the recipe numerals/act-enc-dec that comes with Caesura" in done.lines[0]
    assert (folder / "runs" / "numerals-act-enc-dec" / "checkpoints").is_dir()


def test_a_missing_config_points_to_the_list(folder: Path) -> None:
    assert "`caesura recipes`" in refusal(caesura("train", "nowhere.yaml"))


def test_a_recipe_of_a_clone_is_read_where_it_is(folder: Path) -> None:
    message = refusal(caesura("train", "multi30k/act"), answered=1)
    assert message.startswith(f"{ROOT}/recipes/multi30k/char.yaml:8: data.train.src: ")
    assert "`caesura recipes copy multi30k/act .`" in message


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what a clone has."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("caesura", "recipes"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=tree, check=True, timeout=120)
    [wheel] = tree.glob("dist/caesura-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program is, in an environment that has the wheel and sees the libraries of this one."""
    place = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=120)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True, timeout=120)
    [site] = place.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


def run(program: Path, folder: Path, *words: object) -> str:
    """What an installed program prints in a folder; it never speaks of where it is installed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "site-packages" not in output
    return output


@pytest.mark.slow
def test_the_wheel_has_every_recipe_and_works_without_the_clone(installed: Path, tmp_path: Path) -> None:
    where = "import caesura, os; print(os.path.dirname(caesura.__file__))"
    place = subprocess.run(
        [installed / "python", "-c", where], cwd=tmp_path, capture_output=True, text=True, env={}, timeout=60
    )
    package = Path(place.stdout.strip())
    assert installed.parent in package.parents
    assert contents(package / "recipes") == contents(ROOT / "recipes")
    assert contents(package / "models") == contents(ROOT / "caesura" / "models")
    (tmp_path / "text").write_text("Sie möchte Ärztin werden.\n")
    assert "She wants" in run(installed / "caesura", tmp_path, "translate", "tatoeba-de-en", "text")
    (tmp_path / "text").unlink()
    program = installed / "caesura"
    assert run(program, tmp_path, "recipes").startswith("your-text ")
    assert contents(tmp_path) == {}
    assert "your-text.yaml, lines 5 to 7" in run(program, tmp_path, "recipes", "copy", "your-text", ".")
    write_corpus(tmp_path)
    output = run(program, tmp_path, "train", "your-text.yaml", *SETTINGS)
    assert "your-text.yaml: using the file in this folder" in output
    assert (tmp_path / "runs" / "your-text" / "model.safetensors").is_file()


@pytest.mark.slow
def test_the_wheel_sweeps_and_reproduces_without_the_clone(installed: Path, tmp_path: Path) -> None:
    few = [word for name in ("size", "dev", "test", "long", "typo") for word in (f"--{name}", "20")]
    run(installed / "python", tmp_path, "-m", "caesura.data.numerals", "--out", "data/numerals-de-en", *few)
    grid = ("--seeds", "1,2", "--no-test", "--out", "sweep", *SETTINGS)
    output = run(installed / "caesura", tmp_path, "sweep", "numerals/act-enc-dec.yaml", *grid)
    assert "the recipe numerals/act-enc-dec that comes with Caesura" in output
    assert (tmp_path / "sweep" / "sweep.json").is_file()
    text = tmp_path / "data" / "small"
    text.mkdir()
    write_corpus(text)
    for language in ("de", "en"):
        shutil.copy(text / f"dev.{language}", text / f"test.{language}")
    chosen = ("--data", text, "--only", "word", "--no-report", "--out", "tables")
    full = ("--set", "training.precision=float32")
    output = run(installed / "caesura", tmp_path, "reproduce", "multi30k", *chosen, *SETTINGS, *full)
    assert "the recipe multi30k that comes with Caesura" in output
    assert (tmp_path / "tables" / "table.md").is_file()
