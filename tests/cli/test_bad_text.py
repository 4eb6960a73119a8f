"""Text that is not as it should be: one sentence and status 2, or the documented handling."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.program import AT_ONCE, caesura, contents, refusal, write_config
from wording import wording

from caesura.evaluation.pieces import split_pieces

Write = Callable[[str, bytes | str], Path]


def lines(text: str) -> list[str]:
    return text.split("\n")[:-1]


def test_training_files_of_different_length_are_refused_with_both_counts(
    tmp_path: Path, write: Write
) -> None:
    write("train.de", "eins\nzwei\ndrei\n"), write("train.en", "one\ntwo\n")
    write("dev.de", "eins\n"), write("dev.en", "one\n")
    message = wording(refusal(caesura("train", write_config(tmp_path / "c.yaml"), "--out", tmp_path / "out")))
    assert f"{tmp_path}/train.de has 3 " in message
    assert f"{tmp_path}/train.en has 2 " in message


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_scored_files_of_different_length_are_refused_with_both_counts(
    models: dict[str, Path], write: Write, name: str
) -> None:
    src, trg = write("a.de", "eins\nzwei\n"), write("a.en", "one\ntwo\nthree\nfour\n")
    message = wording(refusal(caesura(name, models["word"], "--src", src, "--trg", trg)))
    assert f"{src} has 2 " in message
    assert f"{trg} has 4 " in message


@pytest.mark.parametrize("system", ["char", "act", "word", "bpe"])
@pytest.mark.parametrize("options", [[], ["--beam", "1"], ["--sample"], ["--segments"]])
def test_an_empty_line_stays_empty_and_in_its_place(
    models: dict[str, Path], system: str, options: list[str]
) -> None:
    done = caesura("translate", models[system], *options, stdin=b"\neins zwei\n\n\nneun\n")
    assert (done.status, len(done.lines)) == (0, 5)
    assert {done.lines[i] for i in (0, 2, 3)} == {"\t" if "--segments" in options else ""}
    if system == "word":
        assert all(done.lines[i] for i in (1, 4))


def test_an_empty_line_has_one_empty_row_among_the_n_best(models: dict[str, Path]) -> None:
    done = caesura("translate", models["act"], "--n-best", 2, stdin=b"eins\n\nneun\n")
    assert [line.split("\t")[0] for line in done.lines] == ["1", "1", "2", "3", "3"]
    assert done.lines[2] == "2\t0.0000\t"


def test_empty_lines_are_scored_in_their_places(models: dict[str, Path], write: Write) -> None:
    src, trg = write("a.de", "eins\n\n\n"), write("a.en", "one\n\n\n")
    done = caesura("evaluate", models["word"], "--src", src, "--trg", trg, "--json")
    assert done.status == 0
    assert '"exact": 1.0' in done.out, "two empty lines are right, and so is the digit"
    assert '"sentences": 3' in done.out


def test_empty_training_lines_are_dropped_and_counted(corpus: Path, tmp_path: Path, write: Write) -> None:
    for language, lost in (("de", 0), ("en", 1)):
        text = lines((corpus / f"train.{language}").read_text())
        text[lost] = ""
        write(f"train.{language}", "\n".join(text) + "\n")
        write(f"dev.{language}", (corpus / f"dev.{language}").read_bytes())
    config = write_config(tmp_path / "c.yaml")
    done = caesura("train", config, "--out", tmp_path / "out", "--time-limit", AT_ONCE)
    assert done.status == 0
    [counts] = [line for line in done.lines if "60 pairs" in line]
    assert "58 " in wording(counts)


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_invalid_utf8_is_named_by_file_line_and_byte(
    models: dict[str, Path], write: Write, name: str
) -> None:
    path = write("a.de", b"eins\nzw\xffei\n")
    message = wording(refusal(caesura(name, models["char"], path), answered=1))
    assert message.startswith(f"{path}:2: ")
    assert "byte 3 (0xff)" in message
    message = wording(refusal(caesura(name, models["char"], stdin=b"\xe4ins\n")))
    assert message.startswith("standard input:1: ")
    assert "byte 1 (0xe4)" in message


def test_errors_replace_goes_on_after_invalid_utf8(models: dict[str, Path], write: Write) -> None:
    path = write("a.de", b"eins\nzw\xffei\n\0\n")
    done = caesura("segment", models["char"], path, "--errors", "replace")
    assert done.status == 0
    assert ["".join(split_pieces(line)) for line in done.lines] == ["eins", "zw�ei", "�"]


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_a_bad_byte_in_scored_text_is_named_and_can_be_replaced(
    models: dict[str, Path], write: Write, name: str
) -> None:
    src, trg = write("a.de", "eins\nzwei\n"), write("a.en", b"one\nt\xc3\n")
    given = (name, models["word"], "--src", src, "--trg", trg)
    assert wording(refusal(caesura(*given))).startswith(f"{trg}:2: ")
    assert caesura(*given, "--errors", "replace").status == 0


def test_a_bad_byte_in_training_text_is_named_and_can_be_replaced(
    corpus: Path, tmp_path: Path, write: Write
) -> None:
    bad = write("bad.de", b"\xff" + (corpus / "train.de").read_bytes())
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    given = (
        "train",
        config,
        "--out",
        tmp_path / "out",
        "--set",
        f"data.train.src={bad}",
        "--time-limit",
        AT_ONCE,
    )
    assert wording(refusal(caesura(*given))).startswith(f"{bad}:1: ")
    assert caesura(*given, "--errors", "replace").status == 0


def test_a_nul_is_named_by_file_line_and_byte(models: dict[str, Path], write: Write) -> None:
    path = write("a.de", b"eins\nzwei\ndr\0i\n")
    message = wording(refusal(caesura("translate", models["char"], path), answered=2))
    assert message.startswith(f"{path}:3: ")
    assert "byte 3 (0x00)" in message


@pytest.mark.parametrize("size", [201, 1_000_000, 3_000_000])
def test_a_line_over_the_limit_is_warned_of_and_translated_as_an_empty_one(
    models: dict[str, Path], write: Write, size: int
) -> None:
    path = write("a.de", "eins\n" + "x" * size + "\nneun\n")
    done = caesura("translate", models["word"], path)
    assert done.status == 0
    assert [bool(line) for line in done.lines] == [True, False, True]
    assert wording(done.err).startswith(f"caesura: {path}:2: ")
    assert "testing.max_input" in done.err


def test_a_line_at_the_limit_is_translated(models: dict[str, Path]) -> None:
    done = caesura("translate", models["word"], "--json", stdin="ä".encode() * 200)
    assert done.status == 0
    assert "testing.max_input" not in done.err
    assert json.loads(done.out)["pieces"] == ["ä" * 200]


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_a_line_over_the_limit_is_scored_as_an_empty_translation(
    models: dict[str, Path], write: Write, name: str
) -> None:
    src, trg = write("a.de", "x" * 1_000_000 + "\neins\n"), write("a.en", "\none\n")
    done = caesura(name, models["word"], "--src", src, "--trg", trg, "--json")
    assert done.status == 0
    assert wording(done.err).startswith(f"caesura: {src}:1: ")
    assert '"exact": 1.0' in done.out


def test_a_dev_line_over_the_limit_does_not_hold_up_a_validation(
    corpus: Path, tmp_path: Path, write: Write
) -> None:
    write("dev.de", "eins\n" + "x" * 1_000_000 + "\n"), write("dev.en", "one\ntwo\n")
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    dev = f"data.dev={{src: {tmp_path}/dev.de, trg: {tmp_path}/dev.en}}"
    bound = ("--set", dev, "--set", "training.updates=2")
    done = caesura("train", config, "--out", tmp_path / "out", *bound)
    assert done.status == 0
    [line] = [line for line in done.lines if "testing.max_input" in line]
    assert "[2]" in wording(line)


@pytest.mark.parametrize(
    ("test", "missing"),
    [
        ("{src: DEV.de, trg: gone.en}", ["gone.en"]),
        ("{src: a, trg: b}", ["a", "b"]),
        ("gone.tsv", ["gone.tsv"]),
        ("{src: DEV.de, trg: DEV.en}", []),
        ("null", []),
    ],
)
def test_a_test_set_that_is_not_there_is_said_before_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, missing: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    bound = ("--set", f"data.test={test.replace('DEV', f'{corpus}/dev')}", "--set", "training.updates=1")
    done = caesura("train", config, "--out", tmp_path / "out", *bound)
    assert done.status == 0
    lines = [line for line in done.out.splitlines() if "data.test" in line]
    assert len(lines) == bool(missing)
    for line in map(wording, lines):
        assert line.startswith("data.test: ")
        assert all(f"{tmp_path}/{name}" in line for name in missing)


@pytest.mark.parametrize("system", ["char", "act", "word", "bpe"])
def test_unknown_characters_are_read_as_such_and_given_back_by_segment(
    models: dict[str, Path], system: str
) -> None:
    text = "☃ 漢字|\\ x́ eins\u2028\x07 \U0001f600"
    done = caesura("segment", models[system], stdin=text.encode())
    assert done.status == 0
    assert "".join(split_pieces(done.lines[0])) == text
    done = caesura("translate", models[system], stdin=text.encode())
    assert (done.status, len(done.lines)) == (0, 1)


def counted(err: str, symbols: int, lines: int, examples: str) -> bool:
    numbers = re.findall(r"\d+", wording(err).partition(";")[0])
    return numbers == [str(symbols), str(lines)] and err.endswith(f" {examples}\n")


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_unknown_symbols_are_counted_once_at_the_end(
    models: dict[str, Path], write: Write, name: str
) -> None:
    lines = ["eins €€\x07", "", "zwei", "漢字☃😀", *["neun"] * 40, "€"]  # more than a chunk has
    text = write("a.de", "\n".join(lines) + "\n")
    for options in ([], ["--json"]):
        assert counted(caesura(name, models["act"], text, *options).err, 8, 3, r"'€' '\x07' '漢' '字' '☃'")
    words = caesura(name, models["word"], stdin=f"eins unbekannt {'x' * 31}\n".encode())
    assert counted(words.err, 2, 1, f"'unbekannt' '{'x' * 30}...'")
    assert caesura(name, models["act"], stdin=b"eins\n").err == ""


def test_unknown_symbols_of_given_translations_are_counted(models: dict[str, Path], write: Write) -> None:
    src, trg = write("a.de", "eins\nzwei\n"), write("a.en", "one €\ntwo\n")
    assert counted(caesura("segment", models["act-act"], src, "--target", trg).err, 1, 1, "'€'")


def test_evaluate_says_nothing_of_unknown_symbols(models: dict[str, Path], write: Write) -> None:
    given = ("--src", write("a.tsv", "€\tone\n"), "--json")
    assert "<unk>" not in caesura("evaluate", models["act"], *given).err


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_an_empty_file_gives_an_empty_output(models: dict[str, Path], write: Write, name: str) -> None:
    done = caesura(name, models["act"], write("empty", ""))
    assert (done.status, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_empty_files_cannot_be_scored(models: dict[str, Path], write: Write, name: str) -> None:
    src, trg = write("a.de", ""), write("a.en", "")
    message = wording(refusal(caesura(name, models["act"], "--src", src, "--trg", trg)))
    assert message.startswith(f"{src}: ")


@pytest.mark.parametrize("text", ["", "\n \n\n"])
@pytest.mark.parametrize("system", ["char", "bpe"])
def test_empty_files_cannot_be_trained_on(
    corpus: Path, tmp_path: Path, write: Write, text: str, system: str
) -> None:
    src, trg = write("train.de", text), write("train.en", text)
    config = write_config(tmp_path / "c.yaml", system, corpus)
    empty = f"data.train={{src: {src}, trg: {trg}}}"
    message = wording(refusal(caesura("train", config, "--out", tmp_path / "out", "--set", empty)))
    assert message.startswith(f"{src}: ")


def test_an_empty_dev_set_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, write: Write
) -> None:
    src, trg = write("dev.de", ""), write("dev.en", "")
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    before = contents(tmp_path)
    given = ("--out", tmp_path / "out", "--set", f"data.dev={{src: {src}, trg: {trg}}}")
    assert wording(refusal(caesura("train", config, *given))).startswith(f"{src}: ")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_a_missing_file_is_named(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    missing = tmp_path / "none.de"
    for path in (missing, tmp_path):
        assert wording(refusal(caesura(name, models["act"], path))).startswith(f"{path}: ")


def test_a_missing_reference_or_training_file_is_named(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "none.en"
    given = ("--src", corpus / "dev.de", "--trg", missing)
    assert wording(refusal(caesura("evaluate", models["act"], *given))).startswith(f"{missing}: ")
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    given = ("--set", f"data.train.trg={missing}", "--out", tmp_path / "out")
    assert f" {missing}; " in wording(refusal(caesura("train", config, *given)))


def test_a_source_without_references_is_refused(models: dict[str, Path], corpus: Path) -> None:
    for name in ("evaluate", "compare"):
        message = refusal(caesura(name, models["act"], "--src", source := corpus / "dev.de"))
        assert wording(message).startswith(f"{source}: --trg ")


def test_a_cut_off_compressed_file_is_named(models: dict[str, Path], write: Write) -> None:
    path = write("a.gz", gzip.compress(b"eins\n" * 20)[:-12])
    done = caesura("segment", models["act"], path)
    message = refusal(done, answered=len(done.lines))
    # How many came through, and a sentence of the library.
    wording(message, message[message.index(" line ") :])
    assert message.startswith(f"{path}: ")
    assert f"line {len(done.lines)}: " in message


def test_bad_input_changes_nothing_in_the_model_folder(models: dict[str, Path], write: Write) -> None:
    before = contents(models["char"])
    for name in ("translate", "segment"):
        refusal(caesura(name, models["char"], write("a.de", b"eins\n\xff\n")), answered=1)
    assert contents(models["char"]) == before
