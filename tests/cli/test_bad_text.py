"""Text that is not as it should be: one sentence and status 2, or the documented handling."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.program import AT_ONCE, caesura, contents, refusal, write_config

from caesura.evaluation.pieces import split_pieces

Write = Callable[[str, bytes | str], Path]


def lines(text: str) -> list[str]:
    return text.split("\n")[:-1]


def test_training_files_of_different_length_are_refused_with_both_counts(
    tmp_path: Path, write: Write
) -> None:
    write("train.de", "eins\nzwei\ndrei\n"), write("train.en", "one\ntwo\n")
    write("dev.de", "eins\n"), write("dev.en", "one\n")
    said = refusal(caesura("train", write_config(tmp_path / "c.yaml"), "--out", tmp_path / "out"))
    assert f"{tmp_path}/train.de has 3 lines, {tmp_path}/train.en has 2 lines" in said


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_scored_files_of_different_length_are_refused_with_both_counts(
    models: dict[str, Path], write: Write, name: str
) -> None:
    src, trg = write("a.de", "eins\nzwei\n"), write("a.en", "one\ntwo\nthree\nfour\n")
    said = refusal(caesura(name, models["word"], "--src", src, "--trg", trg))
    assert f"{src} has 2 lines, {trg} has 4 lines" in said


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
    assert "60 pairs read, 58 kept; dropped: 1 empty source, 1 empty target" in done.out


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_invalid_utf8_is_named_by_file_line_and_byte(
    models: dict[str, Path], write: Write, name: str
) -> None:
    path = write("a.de", b"eins\nzw\xffei\n")
    said = refusal(caesura(name, models["char"], path), answered=1)
    assert said == f"{path}:2: invalid UTF-8 at byte 3 (0xff); --errors replace goes on"
    said = refusal(caesura(name, models["char"], stdin=b"\xe4ins\n"))
    assert said.startswith("standard input:1: invalid UTF-8 at byte 1 (0xe4)")


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
    assert refusal(caesura(*given)).startswith(f"{trg}:2: invalid UTF-8 at byte 2 (0xc3)")
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
    said = refusal(caesura(*given))
    assert said == f"{bad}:1: invalid UTF-8 at byte 1 (0xff); --errors replace goes on"
    assert caesura(*given, "--errors", "replace").status == 0


def test_a_nul_is_named_by_file_line_and_byte(models: dict[str, Path], write: Write) -> None:
    path = write("a.de", b"eins\nzwei\ndr\0i\n")
    said = refusal(caesura("translate", models["char"], path), answered=2)
    assert said == f"{path}:3: NUL at byte 3 (0x00); --errors replace goes on"


@pytest.mark.parametrize("size", [201, 1_000_000, 3_000_000])
def test_a_line_over_the_limit_is_warned_of_and_translated_as_an_empty_one(
    models: dict[str, Path], write: Write, size: int
) -> None:
    path = write("a.de", "eins\n" + "x" * size + "\nneun\n")
    done = caesura("translate", models["word"], path)
    assert done.status == 0
    assert [bool(line) for line in done.lines] == [True, False, True]
    warning = "longer than 200 characters (testing.max_input); an empty line is printed for it"
    assert done.err == f"caesura: {path}:2: {warning}\n"


def test_a_line_at_the_limit_is_translated(models: dict[str, Path]) -> None:
    done = caesura("translate", models["word"], "--json", stdin="ä".encode() * 200)
    assert done.status == 0
    assert "longer than" not in done.err
    assert json.loads(done.out)["pieces"] == ["ä" * 200]


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_a_line_over_the_limit_is_scored_as_an_empty_translation(
    models: dict[str, Path], write: Write, name: str
) -> None:
    src, trg = write("a.de", "x" * 1_000_000 + "\neins\n"), write("a.en", "\none\n")
    done = caesura(name, models["word"], "--src", src, "--trg", trg, "--json")
    assert done.status == 0
    assert done.err.startswith(f"caesura: {src}:1: longer than 200 characters")
    assert "printed" not in done.err, "nothing is, for a line"
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
    assert "dev lines over 200 characters (testing.max_input) count as empty: [2]" in done.out


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            "{src: DEV.de, trg: gone.en}",
            "data.test: no file HERE/gone.en; evaluate will need --src and --trg",
        ),
        ("{src: a, trg: b}", "data.test: no file HERE/a nor HERE/b; evaluate will need --src and --trg"),
        ("gone.tsv", "data.test: no file HERE/gone.tsv; evaluate will need --src"),
        ("{src: DEV.de, trg: DEV.en}", ""),
        ("null", ""),
    ],
)
def test_a_test_set_that_is_not_there_is_said_before_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    bound = ("--set", f"data.test={test.replace('DEV', f'{corpus}/dev')}", "--set", "training.updates=1")
    done = caesura("train", config, "--out", tmp_path / "out", *bound)
    assert done.status == 0
    lines = [line for line in done.out.splitlines() if "data.test" in line]
    assert lines == [said.replace("HERE", str(tmp_path))] * bool(said)


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


def _told(symbols: int, lines: int, examples: str) -> str:
    where = "1 line" if lines == 1 else f"{lines} lines"
    counted = f"symbols not in the model's vocabulary: {symbols}, in {where}"
    return f"caesura: {counted}; read as <unk>, such as {examples}\n"


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_unknown_symbols_are_counted_once_at_the_end(
    models: dict[str, Path], write: Write, name: str
) -> None:
    lines = ["eins €€\x07", "", "zwei", "漢字☃😀", *["neun"] * 40, "€"]  # more than a chunk has
    text = write("a.de", "\n".join(lines) + "\n")
    assert caesura(name, models["act"], text).err == _told(8, 3, r"'€' '\x07' '漢' '字' '☃'")
    assert caesura(name, models["act"], text, "--json").err == _told(8, 3, r"'€' '\x07' '漢' '字' '☃'")
    words = caesura(name, models["word"], stdin=f"eins unbekannt {'x' * 31}\n".encode())
    assert words.err == _told(2, 1, f"'unbekannt' '{'x' * 30}...'")
    assert caesura(name, models["act"], stdin=b"eins\n").err == ""


def test_unknown_symbols_of_given_translations_are_counted(models: dict[str, Path], write: Write) -> None:
    src, trg = write("a.de", "eins\nzwei\n"), write("a.en", "one €\ntwo\n")
    assert caesura("segment", models["act-act"], src, "--target", trg).err == _told(1, 1, "'€'")


def test_evaluate_says_nothing_of_unknown_symbols(models: dict[str, Path], write: Write) -> None:
    given = ("--src", write("a.tsv", "€\tone\n"), "--json")
    assert "vocabulary" not in caesura("evaluate", models["act"], *given).err


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_an_empty_file_gives_an_empty_output(models: dict[str, Path], write: Write, name: str) -> None:
    done = caesura(name, models["act"], write("empty", ""))
    assert (done.status, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("name", ["evaluate", "compare"])
def test_empty_files_cannot_be_scored(models: dict[str, Path], write: Write, name: str) -> None:
    src, trg = write("a.de", ""), write("a.en", "")
    said = refusal(caesura(name, models["act"], "--src", src, "--trg", trg))
    assert said == f"{src}: no sentences to score"


@pytest.mark.parametrize("text", ["", "\n \n\n"])
@pytest.mark.parametrize("system", ["char", "bpe"])
def test_empty_files_cannot_be_trained_on(
    corpus: Path, tmp_path: Path, write: Write, text: str, system: str
) -> None:
    src, trg = write("train.de", text), write("train.en", text)
    config = write_config(tmp_path / "c.yaml", system, corpus)
    empty = f"data.train={{src: {src}, trg: {trg}}}"
    said = refusal(caesura("train", config, "--out", tmp_path / "out", "--set", empty))
    assert said == f"{src}: nothing to train on; is the file empty?"


def test_an_empty_dev_set_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, write: Write
) -> None:
    src, trg = write("dev.de", ""), write("dev.en", "")
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    before = contents(tmp_path)
    given = ("--out", tmp_path / "out", "--set", f"data.dev={{src: {src}, trg: {trg}}}")
    said = refusal(caesura("train", config, *given))
    assert said == f"{src}: the dev set is empty; a validation needs sentences"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_a_missing_file_is_named(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    missing = tmp_path / "none.de"
    assert refusal(caesura(name, models["act"], missing)) == f"{missing}: No such file or directory"
    assert refusal(caesura(name, models["act"], tmp_path)).startswith(f"{tmp_path}: is a directory; ")


def test_a_missing_reference_or_training_file_is_named(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "none.en"
    given = ("--src", corpus / "dev.de", "--trg", missing)
    assert refusal(caesura("evaluate", models["act"], *given)) == f"{missing}: No such file or directory"
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    given = ("--set", f"data.train.trg={missing}", "--out", tmp_path / "out")
    said = refusal(caesura("train", config, *given))
    assert f": no file {missing}; put the text there, or --set data." in said


def test_a_source_without_references_is_refused(models: dict[str, Path], corpus: Path) -> None:
    for name in ("evaluate", "compare"):
        said = refusal(caesura(name, models["act"], "--src", source := corpus / "dev.de"))
        assert said.startswith(f"{source}: --trg is missing: its translations, line by line; only a .tsv ")


def test_a_cut_off_compressed_file_is_named(models: dict[str, Path], write: Write) -> None:
    path = write("a.gz", gzip.compress(b"eins\n" * 20)[:-12])
    done = caesura("segment", models["act"], path)
    said = refusal(done, answered=len(done.lines))
    assert said == f"{path}: damaged or cut off after line {len(done.lines)}" + said[said.rindex(": ") :]


def test_bad_input_changes_nothing_in_the_model_folder(models: dict[str, Path], write: Write) -> None:
    before = contents(models["char"])
    for name in ("translate", "segment"):
        refusal(caesura(name, models["char"], write("a.de", b"eins\n\xff\n")), answered=1)
    assert contents(models["char"]) == before
