"""--set testing.KEY=VALUE: a model folder is used in another way, and not edited."""

import shutil
from pathlib import Path

import pytest
from cli.program import caesura, contents, refusal
from wording import wording

from caesura import Translator

TEXT = "eins zwei\nneun\n\nsieben acht fünf\n"


def test_a_setting_is_that_of_the_call(models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    model, before = models["act"], contents(models["act"])
    for beam in (1, 3):
        changed = caesura("translate", model, "--set", f"testing.beam_size={beam}", stdin=TEXT.encode())
        assert changed == caesura("translate", model, "--beam", beam, stdin=TEXT.encode())
        assert changed.status == 0
    short = ("--set", "testing.max_input=4", "--set", "testing.batch_size=1")
    done = caesura("segment", model, *short, stdin=TEXT.encode())
    assert [bool(line) for line in done.lines] == [False, True, False, False]
    assert "testing.max_input" in wording(done.err)
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--set", "testing.lowercase=true")
    for command in ("evaluate", "compare"):
        assert "case:lc" in caesura(command, model, *text, "--json").out, command
        assert "case:lc" not in caesura(command, model, *text[:4], "--json").out, command
    folder = tmp_path / "report"
    call = ("analyze", model, *text[:2], "--out", folder, "--translate", 0)
    done = caesura(*call, "--set", "testing.beam_size=2")
    assert done.status == 0, done.err
    assert contents(model) == before


def test_the_same_from_python(models: dict[str, Path]) -> None:
    model = Translator.from_pretrained(models["word"], settings=["testing.alpha=0.5"])
    plain = Translator.from_pretrained(models["word"])
    assert (model.config.testing.alpha, plain.config.testing.alpha) == (0.5, 1.0)
    assert model.config.model == plain.config.model


@pytest.mark.parametrize(
    "setting",
    [
        "model.encoder.hidden_size=8",
        "data.test=x.tsv",
        "testing",
        "testing.beam=3",
        "testing.beam_size=0",
        "testing.beam_size",
    ],
)
def test_what_cannot_be_set_is_refused(models: dict[str, Path], setting: str) -> None:
    message = wording(refusal(caesura("translate", models["word"], "--set", setting, stdin=b"eins\n")))
    assert message.startswith(f"--set {setting}: ")


def test_who_has_edited_the_config_is_told_of_it(models: dict[str, Path], tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(models["word"], model)
    text = (model / "config.yaml").read_text()
    (model / "config.yaml").write_text(text.replace("beam_size: 5", "beam_size: 10"))
    message = refusal(caesura("translate", model, "--set", "testing.beam_size=10", stdin=b"eins\n"))
    assert wording(message).startswith(f"{model}/config.yaml: ")
    assert "--set testing.KEY=VALUE" in message
