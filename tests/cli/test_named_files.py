"""Files that configs and commands name: packed ones in place of plain ones, and directories."""

import gzip
import lzma
import shutil
from pathlib import Path

import pytest
from cli.program import caesura, contents, refusal, write_config
from wording import wording


@pytest.fixture
def packed(corpus: Path, tmp_path: Path) -> Path:
    """The corpus, all of it packed, and a config that names it plain."""
    folder = tmp_path / "packed"
    shutil.copytree(corpus, folder)
    for path in [*folder.glob("*.de"), *folder.glob("*.en")]:
        suffix, pack = (".xz", lzma.compress) if path.suffix == ".de" else (".gz", gzip.compress)
        Path(f"{path}{suffix}").write_bytes(pack(path.read_bytes()))
        path.unlink()
    return write_config(folder / "word.yaml", "word")


def test_packed_text_trains_the_same_model_and_is_named(
    packed: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    done = caesura("train", packed, "--out", tmp_path / "run")
    assert done.status == 0, done.err
    for key, name in (("data.train.src", "train.de.xz"), ("data.dev.trg", "dev.en.gz")):
        assert [line for line in done.lines if line.startswith(f"{key}: ") and name in line]
    weights = "model.safetensors"
    ours, theirs = (contents(folder)[weights] for folder in (tmp_path / "run", models["word"]))
    assert ours[-1000:] == theirs[-1000:], "the last weights; the header names other files"
    again = caesura("train", packed, "--out", tmp_path / "run")
    assert again.status == 0, again.err


def test_commands_read_packed_text_by_its_plain_name(
    packed: Path, corpus: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    folder = packed.parent
    for command in (("translate",), ("segment",)):
        done = caesura(*command, models["act"], folder / "dev.de")
        assert done.status == 0, done.err
        assert done.out == caesura(*command, models["act"], corpus / "dev.de").out
        assert "dev.de.xz" in done.err
    done = caesura("evaluate", models["act"], "--src", folder / "dev.de", "--trg", folder / "dev.en")
    assert done.status == 0, done.err
    assert "dev.de.xz" in done.err
    assert "dev.en.gz" in done.err


def test_two_packed_files_of_a_name_are_both_named(
    packed: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    folder = packed.parent
    shutil.copy(folder / "dev.en.gz", folder / "dev.de.gz")
    commands = (
        ("train", packed, "--out", tmp_path / "run"),
        ("translate", models["act"], folder / "dev.de"),
        ("evaluate", models["act"], "--src", folder / "dev.de", "--trg", folder / "dev.en"),
        ("analyze", models["act"], "--only", "cuts", "--gold", folder / "dev.de"),
    )
    for command in commands:
        message = wording(refusal(caesura(*command)))
        assert message.startswith(f"{folder / 'dev.de'}: ")
        assert str(folder / "dev.de.gz") in message
        assert str(folder / "dev.de.xz") in message
    assert not (tmp_path / "run").exists()


def test_a_directory_in_place_of_a_text_file_is_called_one(packed: Path, tmp_path: Path) -> None:
    place = f"--set data.train.src={tmp_path}"
    message = wording(refusal(caesura("train", packed, *place.split(), "--out", tmp_path / "run")))
    assert message.startswith(f"{place}: {tmp_path} ")
    assert refusal(caesura("train", packed.parent)).startswith(f"{packed.parent}: ")
