"""Models that come with the program: found by name, small, and as good in half the bytes."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from cli.program import caesura, refusal

from caesura import Translator
from caesura.config import Files, cookbook
from caesura.data.tensors import read_header
from caesura.training.release import release

GOLDEN = Path(__file__).parent / "golden"
NAME = "tatoeba-de-en"


@pytest.mark.parametrize("name", cookbook.own_models())
def test_a_model_is_small_and_has_a_card_and_no_path_of_the_machine_that_trained_it(name: str) -> None:
    folder = cookbook.MODELS / name
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4 << 20
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "CC BY" in card
    assert f'from_pretrained("{name}")' in card
    data = Translator.from_pretrained(name).config.data
    for files in (data.train, data.dev, data.test):
        assert isinstance(files, Files)
        assert files.src.parent == Path("data", name).absolute()  # of the folder that one works in


def test_it_translates_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Translator.from_pretrained(NAME)
    assert next(model.parameters()).dtype == torch.float32
    assert model.translate(["Die Kinder spielen im Garten."]) == ["The children are playing in the garden."]
    done = caesura("translate", NAME, "--segments", stdin=b"Die Kinder spielen im Garten.\n")
    cut, written = done.lines[0].split("\t")
    assert (done.status, cut.replace("|", "").replace("␣", " ")) == (0, "Die Kinder spielen im Garten.")
    assert written == "The children are playing in the garden."
    assert cut.count("|") > 3


def test_the_readme_begins_with_what_it_says() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = r'\$ echo "(.+)" \| caesura translate tatoeba-de-en --segments\n(.+)\n'
    [(source, printed)] = re.findall(shown, readme)
    assert caesura("translate", NAME, "--segments", stdin=f"{source}\n".encode()).lines == [printed]


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(GOLDEN / "format7", tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    assert Translator.from_pretrained(NAME).config.name != NAME


@pytest.mark.parametrize("name", ["tatoeba-de", f"./{NAME}/", f"x/{NAME}", "", "..", "/", "__pycache__"])
def test_only_a_bare_name_leads_to_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = cookbook.find_model(name)
    assert folder == (cookbook.MODELS / NAME if name == f"./{NAME}/" else Path(name))


def test_an_unknown_name_is_told_which_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert NAME in refusal(caesura("translate", "tatoeba-fr-en"))


def test_a_release_takes_half_the_bytes_and_holds_the_rounded_weights(tmp_path: Path) -> None:
    run = Path(shutil.copytree(GOLDEN / "format7", tmp_path / "run"))
    (run / "README.md").write_text("To repeat it: `caesura train run/config.yaml --out NEW_FOLDER`.\n")
    release(run, "## The text\n", tmp_path / "small")
    sizes = [read_header(folder / "model.safetensors").size for folder in (run, tmp_path / "small")]
    assert sizes[1] < 0.6 * sizes[0]
    before, after = (Translator.from_pretrained(folder) for folder in (run, tmp_path / "small"))
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        assert torch.equal(old.bfloat16().float(), new), name
    card = (tmp_path / "small" / "README.md").read_text()
    assert "`make small`" in card
    assert card.endswith("## The text\n")
