"""`caesura analyze`, and the same report from `caesura compare`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from cli.program import caesura, contents, refusal, with_config
from wording import wording

from caesura.experiments import comparison

Write = Callable[[str, bytes | str], Path]
Words = list[str | Path]


@pytest.fixture
def dev(corpus: Path) -> Words:
    return ["--src", corpus / "dev.de", "--trg", corpus / "dev.en"]


def test_a_report_of_a_model(models: dict[str, Path], corpus: Path, dev: Words, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report"
    done = caesura("analyze", models["act"], *dev, "--out", out, "--beam", 1)
    assert (done.status, done.err) == (0, "")
    assert done.lines[0] == "12 sentences of dev.de, greedy search, float32"
    assert done.lines[-1] == f"the report: {out}/report.html"
    numbers = json.loads((out / "analysis.json").read_text(encoding="utf-8"))
    [act] = numbers["models"]
    assert act["name"] == "act"
    assert act["text"]["sentences"] == 12
    assert act["errors"]["unknown_source"] == {
        "count": 0,
        "total": sum(b.count(" ") + 1 for b in (corpus / "dev.de").read_text().splitlines()),
    }
    assert act["history"]["segment_length"]
    html = (out / "report.html").read_text(encoding="utf-8")
    assert "neither loss nor penalty moves the cuts then, except through the weights" in html
    assert "no longer learns" not in html, "some do, later"
    assert act["segments"]["top"]["1"][0]["training"] > 0
    evaluated = caesura("evaluate", models["act"], *dev, "--beam", 1, "--json")
    assert act["scores"] == json.loads(evaluated.out)["scores"]


@pytest.mark.parametrize("system", ["char", "word", "bpe"])
def test_any_system_can_be_looked_at(
    models: dict[str, Path], dev: Words, tmp_path: Path, system: str
) -> None:
    call = ("analyze", models[system], *dev[:2], "--out", tmp_path, "--translate", 5)
    done = caesura(*call, "--beam", 1)
    assert (done.status, done.err) == (0, "")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"{system} scores no symbols" in html


def test_lines_can_be_chosen(models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    call = ["analyze", models["act"], "--src", corpus / "dev.de", "--out", tmp_path, "--translate", 0]
    assert caesura(*call, "--lines", "7,3,5").status == 0
    [act] = json.loads((tmp_path / "analysis.json").read_text(encoding="utf-8"))["models"]
    assert [r["number"] for r in act["readings"]] == [d["number"] for d in act["drawn"]] == [7, 3, 5]
    message = wording(refusal(caesura(*call, "--lines", "99")))
    assert message.startswith("dev.de: ")
    assert "99" in message
    assert "--lines 3-4" in wording(refusal(caesura(*call, "--lines", "3-4")))


def test_gold_and_training_text_can_be_given(
    models: dict[str, Path], corpus: Path, tmp_path: Path, write: Write
) -> None:
    gold = write("gold.tsv", "sieben\tsie ben\nneun\tneun\n")
    folder = tmp_path / "old"
    shutil.copytree(models["char"], folder)
    (folder / "train.words.json").unlink()
    text = write("moved.de", (corpus / "train.de").read_bytes())
    done = caesura(
        "analyze", folder, "--src", corpus / "dev.de", "--gold", gold, "--train", text,
        "--out", tmp_path / "out", "--translate", 0,
    )  # fmt: skip
    assert (done.status, done.err) == (0, "")
    [old] = json.loads((tmp_path / "out" / "analysis.json").read_text(encoding="utf-8"))["models"]
    assert {"gold.tsv", "gold.tsv, alone"} <= {table["reference"] for table in old["agreements"]}
    assert "moved.de" in old["text"]["training"]
    e = old["segments"]["top"]["1"][0]
    assert e["training"] == (corpus / "train.de").read_text().count(e["text"])


def test_a_folder_of_an_older_version_still_works(
    models: dict[str, Path], corpus: Path, dev: Words, tmp_path: Path
) -> None:
    folder = tmp_path / "old"
    with_config(models["act"], folder, str(corpus / "train"), str(tmp_path / "gone"))
    (folder / "train.words.json").unlink()
    (folder / "metrics.jsonl").unlink()
    done = caesura("analyze", folder, *dev, "--out", tmp_path / "out", "--translate", 0)
    assert (done.status, done.err) == (0, "")
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "--train F reads the text" in html
    assert "no log of its training" in html


def test_what_cannot_be_analysed_is_refused(
    models: dict[str, Path], corpus: Path, tmp_path: Path, write: Write
) -> None:
    call = ["analyze", models["char"], "--out", tmp_path / "out", "--src"]
    assert wording(refusal(caesura(*call, write("empty", "")))).startswith("empty: ")
    assert "no/file" in wording(refusal(caesura(*call, "no/file")))
    message = wording(refusal(caesura(*call, corpus / "dev.de", "--gold", tmp_path / "empty")))
    assert message.startswith(f"{tmp_path}/empty: ")
    for command in ("analyze", "compare"):
        gold = ("--src", corpus / "dev.de", "--out", tmp_path / "out", "--gold", "words")
        assert wording(refusal(caesura(command, models["char"], *gold))).startswith("--gold words: ")
    assert "--train " in wording(refusal(caesura(*call, corpus / "dev.de", "--train", "no/file")))
    in_the_way = write("file", "")
    message = refusal(caesura("analyze", models["char"], "--src", corpus / "dev.de", "--out", in_the_way))
    assert wording(message).startswith(f"{in_the_way}: ")


def test_compare_refuses_before_it_translates_what_its_report_would_fail_at(
    models: dict[str, Path], dev: Words, tmp_path: Path, write: Write
) -> None:
    call = ["compare", models["char"], models["act"], *dev]
    with mock.patch.object(comparison, "evaluate", side_effect=AssertionError("translated")):
        for out in (write("file", ""), "/proc/x"):
            assert wording(refusal(caesura(*call, "--out", out))).startswith(f"{out}: ")
        message = refusal(caesura(*call, "--out", tmp_path / "out", "--gold", write("gold", "")))
    assert wording(message).startswith(f"{tmp_path}/gold: ")
    assert not (tmp_path / "out").exists()


def test_a_long_line_is_told_and_taken_as_empty(
    models: dict[str, Path], tmp_path: Path, write: Write
) -> None:
    src = write("long.de", "eins zwei\n" + "x" * 201 + "\n")
    done = caesura("analyze", models["char"], "--src", src, "--out", tmp_path / "out", "--translate", 0)
    assert done.status == 0
    assert (
        done.err
        == f"caesura: {src}: 1 lines longer than 200 characters (testing.max_input) were taken as empty\n"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_compare_writes_the_same_report(models: dict[str, Path], dev: Words, tmp_path: Path) -> None:
    call = ["compare", models["char"], models["act"], *dev, "--beam", 1]
    done = caesura(*call, "--out", tmp_path, "--lines", "2,4,6", "--sample", 3, "--seed", 2, "--bpe", 40)
    assert (done.status, done.err) == (0, "")
    assert done.lines[-1] == f"the report: {tmp_path}/report.html"
    numbers = json.loads((tmp_path / "analysis.json").read_text(encoding="utf-8"))
    assert [m["name"] for m in numbers["models"]] == ["char", "act"]
    for m in numbers["models"]:
        assert [d["number"] for d in m["drawn"]] == [2, 4, 6]
        assert (m["text"]["sample"], m["text"]["seed"]) == (3, 2)
        drawn = {f"figures/{kind}-{m['name']}-{n}.svg" for kind in ("gates", "attention") for n in (2, 4, 6)}
        assert drawn <= set(numbers["files"])
    assert numbers["bootstrap"]["char"]["bleu"]["p_value"] is None
    assert 0 < numbers["bootstrap"]["act"]["bleu"]["p_value"] <= 1
    as_json = caesura(*call, "--out", tmp_path, "--json")
    assert as_json.err == f"the report: {tmp_path}/report.html\n"
    rows = json.loads(as_json.out)
    assert [row["scores"] for row in rows] == [m["scores"] for m in numbers["models"]]


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_a_report_of_something_else_is_not_overwritten(
    models: dict[str, Path], corpus: Path, tmp_path: Path, write: Write
) -> None:
    src, other = corpus / "dev.de", write("other.de", "eins zwei\nneun\n")
    call = ["--out", tmp_path / "out", "--beam", 1, "--src"]
    assert caesura("analyze", models["char"], *call, src, "--seed", 1).status == 0
    assert caesura("analyze", models["char"], *call, src, "--seed", 2).status == 0, "its own may be replaced"
    before = contents(tmp_path / "out")
    complaint = wording(refusal(caesura("analyze", models["word"], *call, src)))
    assert complaint.startswith(f"{tmp_path}/out: ")
    assert "char" in complaint
    assert "dev.de" in complaint
    assert refusal(caesura("analyze", models["char"], *call, other)) == complaint
    done = caesura("compare", models["char"], models["word"], *call, src, "--trg", corpus / "dev.en")
    assert (refusal(done), done.out) == (complaint, "")
    assert contents(tmp_path / "out") == before
    (tmp_path / "out" / "analysis.json").write_text('{"models": [{}]}')
    assert caesura("analyze", models["word"], *call, src).status == 0, "not a report's"


def test_compare_calls_models_as_it_is_told(models: dict[str, Path], dev: Words, tmp_path: Path) -> None:
    call = ("compare", models["char"], models["act"], *dev)
    done = caesura(*call, "--beam", 1, "--out", tmp_path, "--name", "Zeichen, 1", "--name", "ACT")
    assert (done.status, done.err) == (0, "")
    assert "│ Zeichen, 1 │" in done.out
    numbers = json.loads((tmp_path / "analysis.json").read_text(encoding="utf-8"))
    assert [m["name"] for m in numbers["models"]] == [*numbers["bootstrap"]] == ["Zeichen, 1", "ACT"]
    assert {"figures/profiles-Zeichen-1.svg", "figures/profiles-ACT.svg"} <= set(numbers["files"])
    for names in (["ACT"], ["ACT", "ACT"], ["a", "b", "c"]):
        message = refusal(caesura(*call, *(word for name in names for word in ("--name", name))))
        assert wording(message).startswith("--name: ")


def test_compare_refuses_to_read_standard_input_twice(models: dict[str, Path], tmp_path: Path) -> None:
    message = refusal(caesura("compare", models["char"], "--src", "-", "--out", tmp_path / "out"))
    assert wording(message).startswith("--src -: ")
    assert not (tmp_path / "out").exists()


def test_compare_reads_gold_once_as_from_a_pipe(models: dict[str, Path], dev: Words, tmp_path: Path) -> None:
    call = ("compare", models["char"], *dev, "--beam", 1)
    done = caesura(*call, "--out", tmp_path, "--gold", "-", stdin=b"sieben\tsie ben\nneun\tneun\n")
    assert (done.status, done.err) == (0, "")
    [char] = json.loads((tmp_path / "analysis.json").read_text(encoding="utf-8"))["models"]
    assert "-, alone" in {table["reference"] for table in char["agreements"]}


def test_gold_of_another_text_is_told(
    models: dict[str, Path], corpus: Path, tmp_path: Path, write: Write
) -> None:
    gold = write("other.words", "ab c\nde f\n")
    call = [
        "analyze",
        models["char"],
        "--src",
        corpus / "dev.de",
        "--out",
        tmp_path / "out",
        "--translate",
        0,
    ]
    done = caesura(*call, "--gold", gold)
    assert wording(done.err).startswith(f"caesura: {gold}: ")
    assert str(corpus / "dev.de") in done.err
