"""What a stranger wrote reaches a terminal escaped, by every way that leads there; files get it as it is."""

import json
import re
from pathlib import Path

import pytest
from cli.program import at_terminal, caesura, write_config
from folders.test_strangers import forge_vocabulary, sign
from helpers import ACT, tiny_model

from caesura.data.vocabulary import SPECIALS
from caesura.errors import show_traceback
from caesura.inference import Translator
from caesura.visible import LINE

OWNED = "\x1b]0;owned\x07\x9b2J\u202e"
ESCAPED = r"\x1b]0;owned\x07\x9b2J\u202e"
OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and moves of rich, none of which sets a title


def check(shown: str) -> None:
    """Nothing reached the terminal that cannot be seen, but for what the program itself draws with."""
    left = OURS.sub("", shown).replace("\n", "").replace("\t", "").replace("\r", "")
    assert left.isprintable(), left


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model folder, to be changed."""
    tiny_model(ACT).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_key_and_a_text_of_a_config_are_shown_escaped(model: Path) -> None:
    config = model / "config.yaml"
    text = config.read_text().replace("lang: xx", f"lang: xx\n    {json.dumps(OWNED)}: 1", 1)
    config.write_text(text.replace("name: test", f"name: {json.dumps(OWNED)}"))
    sign(model)
    for done in (at_terminal("translate", model), caesura("translate", model)):
        assert done.status == 2
        shown = done.out + done.err
        check(shown)
        assert shown.count(ESCAPED) == 2
        assert shown.count("\n") == 2


def test_a_traceback_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    problem = ValueError(f"one\n{OWNED}")
    show_traceback(ValueError, problem, None)
    shown = capsys.readouterr().err
    check(shown)
    assert shown == f"ValueError: one\n{ESCAPED}\n"


@pytest.mark.parametrize("name", [OWNED, "two\nlines", "[bold]x[/bold]{task}", ":heart:"])
def test_a_folder_is_shown_by_its_escaped_name(
    models: dict[str, Path], corpus: Path, tmp_path: Path, name: str
) -> None:
    config, folder = write_config(tmp_path / "c.yaml", "word", corpus), tmp_path / name
    shown = str(folder).replace(OWNED, ESCAPED).replace("\n", r"\n")
    done = at_terminal("translate", folder)
    check(done.out)
    assert done.status == 2
    assert done.out.startswith(f"caesura: {shown}: ")
    assert done.out.count("\n") == 1
    done = at_terminal("train", config, "--out", folder, "--set", "training.updates=1")
    check(done.out)
    assert done.status == 0
    assert f"the best model is in {shown}\n" in done.out
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    done = at_terminal("compare", models["word"], folder, *text, "--beam", 1)
    check(done.out)
    assert done.status == 0


def test_references_among_the_examples_are_shown_escaped_and_uninterpreted(
    corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "dev.de").write_text("eins\nzwei\ndrei\n")
    (tmp_path / "dev.en").write_text(f"one {OWNED}\n[bold]two[/bold] :heart:\n{'x' * 5000}\n")
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    dev = f"data.dev={{src: {tmp_path}/dev.de, trg: {tmp_path}/dev.en}}"
    given = ("train", config, "--set", dev, "--set", "training.updates=1", "--out")
    for number, run in enumerate((at_terminal, caesura)):
        done = run(*given, tmp_path / f"out{number}")
        assert done.status == 0
        check(done.out)
        assert f"(should be: one {ESCAPED})" in done.out
        assert "(should be: [bold]two[/bold] :heart:)" in done.out
        assert "x" * (LINE + 1) not in done.out


def test_a_vocabularys_tokens_are_shown_escaped_at_a_terminal_and_as_they_are_in_a_pipe(model: Path) -> None:
    trg = model / "trg.vocab.json"
    tokens = [*SPECIALS, *"\x07\x9d\u202e\x1b]"]
    trg.write_text(json.dumps(json.loads(trg.read_text()) | {"tokens": tokens}))
    sign(model)
    lines = ["abc", "hgfedcba", "aaaa", "bad"]
    expected, text = Translator.from_pretrained(model).translate(lines), "\n".join(lines).encode()
    assert "\x1b" in "".join(expected)
    assert caesura("translate", model, stdin=text).lines == expected
    done = at_terminal("translate", model, stdin=text)
    check(done.out)
    assert len(done.lines) == len(lines)
    assert r"\x1b" in done.out
    for options in (["--n-best", 2], ["--segments"], ["--json"]):
        done = at_terminal("translate", model, *options, stdin=text)
        assert done.status == 0
        check(done.out)
    assert [json.loads(line)["hypotheses"][0]["text"] for line in done.lines] == expected


@pytest.mark.parametrize("length", [1, 5_000_000])
def test_a_token_is_quoted_escaped_and_in_part(model: Path, length: int) -> None:
    token = OWNED * length
    forge_vocabulary(model, kind="word", tokens=[*SPECIALS, *"abcdef", token[:length], token[:length]])
    sign(model)
    done = at_terminal("translate", model)
    check(done.out)
    assert done.status == 2
    assert len(done.lines) == 1
    assert len(done.out) < 300 + len(str(model))


def test_a_wrong_option_is_quoted_escaped(model: Path) -> None:
    for words in ([f"--{OWNED}"], ["--device", OWNED], ["--set", f"testing.{OWNED}=1"]):
        done = at_terminal("translate", model, *words)
        assert done.status == 2
        check(done.out)
        assert "owned" in done.out
