"""Models of bytes, and of characters that fall back to bytes, through all commands."""

import json
from pathlib import Path

import pytest
from cli.program import caesura, write_config
from explorer.asking import answer, serving

from caesura.inference import Translator

WORDS = ["一", "二", "три", "četyři", "fünf", "六", "sedm", "восемь", "九𠮷"]
NUMBERS = dict(zip("123456789", WORDS, strict=True))
READER = "reader: {type: gru, embedding_dim: 8, size: 6}"
CUTTER = f"{{{READER}, cutter: {{type: act, halting_bias: -0.5}}, pooling: weighted}}"
NEW = "ein neues Wort: ☃ и Ω"


def write_bytes_corpus(folder: Path) -> None:
    """Numbers in words of several scripts, and as digits."""
    for part, count in (("train", 30), ("dev", 6)):
        numbers = [str(7**i)[:3].replace("0", "1") for i in range(1, count + 1)]
        (folder / f"{part}.de").write_text("".join(" ".join(NUMBERS[d] for d in n) + "\n" for n in numbers))
        (folder / f"{part}.en").write_text("".join("–".join(n) + "\n" for n in numbers))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    write_bytes_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    """A model of bytes whose segments begin and end anywhere, on both sides."""
    config, out = write_config(folder / "act-act.yaml", "act-act"), folder / "model"
    levels = "data.src.level=byte", "data.trg.level=byte", "testing.beam_size=2"
    settings = *levels, f"model.segmenter={CUTTER}", "training.updates=4", "model.decoder.halting_bias=-0.5"
    done = caesura("train", config, "--out", out, *(part for s in settings for part in ("--set", s)))
    assert done.status == 0, done.err
    return out


def test_cuts_within_characters_do_not_break_the_text(folder: Path, model: Path, tmp_path: Path) -> None:
    texts = [*(folder / "dev.de").read_text().splitlines(), NEW]
    (tmp_path / "text.de").write_text("\n".join(texts) + "\n")
    loaded = Translator.from_pretrained(model)
    cuts = [output.segmentation for output in loaded.process(texts, None)]
    assert any(len(cut.pieces) > len(cut.shown) for cut in cuts)  # there are cuts within characters
    assert loaded.segment(texts) == [cut.shown for cut in cuts]
    done = caesura("segment", model, tmp_path / "text.de")
    assert [line.replace("|", "").replace("␣", " ") for line in done.lines] == texts
    assert "unknown" not in done.err
    done = caesura("segment", model, tmp_path / "text.de", "--json")
    assert [json.loads(line)["bounds"] for line in done.lines] == [cut.bounds for cut in cuts]
    done = caesura("translate", model, tmp_path / "text.de", "--segments")
    shown = [line.partition("\t")[0] for line in done.lines]
    assert shown == caesura("segment", model, tmp_path / "text.de").lines
    (tmp_path / "cut.de").write_text("\n".join(shown) + "\n")
    again = caesura("translate", model, tmp_path / "cut.de", "--with-cuts", "--segments")
    assert [line.partition("\t")[0] for line in again.lines] == shown
    done = caesura("translate", model, tmp_path / "text.de", "--n-best", "2", "--json")
    for line, text in zip(done.lines, texts, strict=True):
        record = json.loads(line)
        assert "".join(record["pieces"]) == text
        for hypothesis in record["hypotheses"]:
            assert all(hypothesis["pieces"])
            assert "".join(hypothesis["pieces"]) == hypothesis["text"]


def test_measures_and_reports_of_bytes(folder: Path, model: Path, tmp_path: Path) -> None:
    text = "--src", folder / "dev.de", "--trg", folder / "dev.en", "--set", "testing.beam_size=1"
    measured = json.loads(caesura("evaluate", model, *text, "--json").out)
    loaded = Translator.from_pretrained(model)
    cuts = [out.segmentation for out in loaded.process((folder / "dev.de").read_text().splitlines(), None)]
    characters, pieces = sum(sum(cut.covered) for cut in cuts), sum(len(cut.shown) for cut in cuts)
    assert measured["segments"]["mean"] == pytest.approx(characters / pieces)
    for extra in (
        ("--only", "cuts", "--json", "--moved", "2"),
        ("--out", tmp_path / "report", "--moved", "2"),
    ):
        done = caesura("analyze", model, *text, *extra)
        assert done.status == 0, done.err
    assert (tmp_path / "report" / "report.html").is_file()


def test_the_explorer_shows_bytes(model: Path) -> None:
    with serving(model) as explorer:
        body = {"model": "model", "text": "九𠮷 и ü"}
        reply = answer(explorer, "/segment", **body)
        assert [gap["offset"] for gap in reply["gaps"]] == [*range(1, 6)]
        assert "".join(reply["pieces"]) == body["text"]
        assert reply["unknown"] == []
        words = answer(explorer, "/segment", **body, rule={"name": "words"}, cuts={"1": 1})
        assert [gap["cut"] for gap in words["gaps"]] == [True, False, True, False, True]
        assert words["pieces"] == ["九", "𠮷 ", "и ", "ü"]
        explained = answer(explorer, "/explain", **body, beam=2)
        pieces = len(explained["segmentation"]["pieces"])
        assert {len(row) for row in explained["attention"]} <= {pieces, pieces + 1}  # maybe </s> alone
        assert [sum(row) for row in explained["attention"]] == pytest.approx(
            [1] * len(explained["attention"])
        )
        assert len(explained["halting"]) == len(explained["segmentation"]["symbols"]) == 6
        assert explained["segmentation"]["symbols"] == [*body["text"]]
        assert "".join(explained["output"]["pieces"]) == explained["translation"]
        assert (
            len(explained["attention"])
            == len(explained["output"]["symbols"]) + explained["output"]["finished"]
        )
        flipped = answer(explorer, "/flips", **body)
        assert flipped["offsets"] == [*range(1, 6)]


def test_letters_that_training_lacked_become_their_bytes(folder: Path) -> None:
    config, out = write_config(folder / "char.yaml", "char"), folder / "spelled"
    settings = "data.src.byte_fallback=true", "data.trg.byte_fallback=true", "training.updates=2"
    done = caesura("train", config, "--out", out, *(part for s in settings for part in ("--set", s)))
    assert done.status == 0, done.err
    loaded = Translator.from_pretrained(out)
    assert loaded.src_vocabulary.decode(loaded.src_vocabulary.encode(NEW)) == NEW
    done = caesura("translate", out, "-", stdin=f"{NEW}\n".encode())
    assert done.status == 0
    assert len(done.lines) == 1
    assert "not in the vocabulary" not in done.err
