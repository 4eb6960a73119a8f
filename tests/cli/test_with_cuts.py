"""Models with given cuts through the program: trained, gone on with, and text with cuts translated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.program import caesura, refusal, write_config, write_corpus
from numbered import corpus_of
from wording import wording

from caesura.evaluation.pieces import join_pieces, split_pieces
from caesura.inference import Translator
from caesura.model_folder import CUTS_GRU, CUTS_NGRAMS, CUTS_VOCABULARY

PARTS = (
    "model.segmenter={type: parts, reader: {type: bigru, embedding_dim: 6, size: 5}, "
    "cutter: %s, pooling: mean, output_dim: 8}"
)
SHORT = ["--set", "training.updates=4", "--set", "training.batch_size=30"]
Write = Callable[[str, bytes | str], Path]


def train(folder: Path, out: Path, *settings: str, cutter: str = "given") -> list[object]:
    """The command that trains a tiny model of parts on the corpus of a folder."""
    config = write_config(folder / "c.yaml")
    given = [word for setting in (PARTS % cutter, *settings) for word in ("--set", setting)]
    return ["train", config, "--out", out, *SHORT, *given]


@pytest.fixture(scope="module")
def parts(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of parts that cuts after every second character."""
    out = tmp_path_factory.mktemp("parts") / "model"
    done = caesura(*train(corpus, out, cutter="{type: fixed, k: 2}"))
    assert done.status == 0, done.err
    return out


@pytest.mark.parametrize("system", ["act", "parts"])
def test_the_output_of_segment_translates_as_the_text_does(
    system: str, models: dict[str, Path], parts: Path, corpus: Path, write: Write
) -> None:
    model = parts if system == "parts" else models[system]
    cut = caesura("segment", model, corpus / "dev.de")
    assert cut.status == 0
    assert any("|" in line for line in cut.lines)
    shown = write("cut.txt", cut.out)
    options = ["--json", "--beam", "2", "--n-best", "2"]  # with scores to the last digit
    plain = caesura("translate", model, corpus / "dev.de", *options)
    assert plain.status == 0
    assert caesura("translate", model, shown, "--with-cuts", *options) == plain
    assert caesura("translate", model, "--with-cuts", *options, stdin=cut.out.encode()) == plain


def test_a_text_is_cut_as_its_file_says(parts: Path, write: Write) -> None:
    lines = [["ei", "ns zwei"], ["d", "r", "ei"], ["vier"], [], ["a|b", "␣", "\\ \t", "x"]]
    path = write("cut.txt", "".join(join_pieces(pieces) + "\n" for pieces in lines))
    done = caesura("translate", parts, path, "--with-cuts", "--json")
    assert done.status == 0
    records = [json.loads(line) for line in done.lines]
    assert [row["pieces"] for row in records] == lines
    assert [row["source"] for row in records] == ["".join(pieces) for pieces in lines]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a||b", "cut.txt:2: character 3: "),
        ("ein haus", "cut.txt:2: character 4: "),
        ("a\\q", "cut.txt:2: character 2: "),
        ("a|\\x00", "cut.txt:2: '\\x00'"),
        ("\\ud800", "cut.txt:2: '\\ud800'"),
        ("a\\nb", "cut.txt:2: '\\n'"),
    ],
)
def test_a_line_that_shows_no_pieces_is_refused_with_its_place(
    parts: Path, write: Write, line: str, message: str
) -> None:
    path = write("cut.txt", f"ei|ns\n{line}\n")
    assert message in wording(refusal(caesura("translate", parts, path, "--with-cuts"), answered=1))


def test_what_cannot_have_cuts_is_refused(models: dict[str, Path], parts: Path, write: Write) -> None:
    path = write("cut.txt", "ei|ns\n")
    assert " lookup " in wording(refusal(caesura("translate", models["char"], path, "--with-cuts")))
    table = write("cut.tsv", "ei|ns\tone\n")
    assert "cut.tsv: --with-cuts" in wording(refusal(caesura("translate", parts, table, "--with-cuts")))


def test_a_line_over_the_limit_becomes_empty(parts: Path, write: Write) -> None:
    path = write("cut.txt", "ei|ns\n" + "a|" * 200 + "a\nzw|ei\n")
    done = caesura("translate", parts, path, "--with-cuts")
    assert done.status == 0
    assert done.lines[1] == ""
    assert "cut.txt:2: " in wording(done.err)


# Training


def write_offsets(folder: Path) -> None:
    """Cuts after every third character of train.de and dev.de."""
    for part in ("train", "dev"):
        lines = (folder / f"{part}.de").read_text(encoding="utf-8").splitlines()
        offsets = (" ".join(str(at) for at in range(3, len(line), 3)) for line in lines)
        (folder / f"{part}.cuts").write_text("".join(row + "\n" for row in offsets), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whitespace", "unigram", "entropy", "gru", "file"])
def test_a_model_is_trained_and_gone_on_with_and_cuts_as_its_config_says(kind: str, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_offsets(tmp_path)
    setting = {
        "whitespace": "{type: whitespace}",
        "unigram": "{type: unigram, voc_limit: 45}",
        "entropy": "{type: entropy, order: 4, target: 3.0}",
        "gru": "{type: entropy, model: gru, size: 5, updates: 3, target: 3.0}",
        "file": f"{{type: file, train: {tmp_path}/train.cuts, dev: {tmp_path}/dev.cuts}}",
    }[kind]
    out = tmp_path / "out"
    command = train(tmp_path, out, f"data.cuts={setting}")
    assert caesura(*command, "--set", "training.updates=2").status == 0
    first = corpus_of(out)
    assert first.cuts(0) is not None
    done = caesura(*command)
    assert done.status == 0, done.err
    assert "going on from update 2" in done.out
    assert (out / CUTS_VOCABULARY).exists() == (kind == "unigram")
    assert (out / CUTS_NGRAMS).exists() == (kind == "entropy")
    assert (out / CUTS_GRU).exists() == (kind == "gru")
    assert ("asked 3" in (out / "README.md").read_text()) == (kind in ("entropy", "gru"))
    model = Translator.from_pretrained(out)
    texts = (tmp_path / "dev.de").read_text(encoding="utf-8").splitlines()
    if kind == "file":
        (tmp_path / "new.de").write_text("was niemand kennt\n", encoding="utf-8")
        for command in ("segment", "translate"):
            assert "--with-cuts" in refusal(caesura(command, out, tmp_path / "new.de"))
        pieces = model.segment(texts, cuts=[range(3, len(text), 3) for text in texts])
        assert {len(piece) for text in pieces for piece in text[:-1]} == {3}
        shown = caesura("segment", out, tmp_path / "dev.de").lines  # a text of the config has its cuts
        assert [split_pieces(line) for line in shown] == pieces
        files = ("--src", tmp_path / "dev.de", "--trg", tmp_path / "dev.en")
        assert json.loads(caesura("evaluate", out, *files, "--json").out)["segments"]["longest"] == 3
        assert caesura("compare", out, *files).status == 0
        assert caesura("analyze", out, *files, "--out", tmp_path / "report").status == 0
    else:
        shown = caesura("segment", out, tmp_path / "dev.de").lines
        pieces = [split_pieces(line) for line in shown]
        offsets = [model.cuts.offsets(text) for text in texts]  # type: ignore[union-attr]
        assert [len(row) for row in pieces] == [len(row) + 1 for row in offsets]
    if kind == "whitespace":
        assert pieces == [[word if i == 0 else f" {word}" for i, word in enumerate(t.split())] for t in texts]
    log = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    lengths = [row["segment_length"] for row in log if "segment_length" in row]
    assert len(lengths) >= 2
    assert max(lengths) - min(lengths) < 1e-9  # the cuts of the dev set do not change
    assert lengths[0] > 2


def test_a_changed_offset_file_is_noticed_and_a_missing_one_named(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    write_offsets(tmp_path)
    files = f"data.cuts={{type: file, train: {tmp_path}/train.cuts, dev: {tmp_path}/dev.cuts}}"
    command = train(tmp_path, tmp_path / "out", files)
    assert caesura(*command, "--set", "training.updates=2").status == 0
    path = tmp_path / "dev.cuts"
    content = path.read_text()
    path.write_text("\n" + content.partition("\n")[2])
    assert wording(refusal(caesura(*command))).startswith(f"{tmp_path}/out: ")
    path.unlink()
    assert f"data.cuts.dev: no file {path}" in wording(refusal(caesura(*command)))
    path.write_text(content + "1\n")
    other = train(tmp_path, tmp_path / "other", files)
    assert "dev.de has 12 " in wording(refusal(caesura(*other)))
    path.write_text("99\n" + content.partition("\n")[2])
    assert f"{path}:1: " in wording(refusal(caesura(*other)))


@pytest.mark.parametrize("model", ["ngram", "gru, size: 5, updates: 3"])
def test_a_kept_model_of_characters_is_used_again_unless_it_is_of_another_text(
    model: str, tmp_path: Path
) -> None:
    write_corpus(tmp_path)
    cuts = f"data.cuts={{type: entropy, target: 3.0, model: {model}}}"
    one, two = tmp_path / "one", tmp_path / "two"
    command = train(tmp_path, one, cuts)
    assert caesura(*command, "--set", "training.updates=2").status == 0
    name = CUTS_GRU if "gru" in model else CUTS_NGRAMS
    kept = (one / name).read_bytes()
    shutil.copytree(one, two)
    with (tmp_path / "train.de").open("a") as src, (tmp_path / "train.en").open("a") as trg:
        src.write("zehn\n"), trg.write("ten\n")
    assert caesura(*train(tmp_path, tmp_path / "three", cuts)).status == 0
    other = (tmp_path / "three" / name).read_bytes()
    assert other != kept
    shutil.copy(tmp_path / "three" / name, two / name)
    lines = (tmp_path / "train.de").read_text().splitlines(), (tmp_path / "train.en").read_text().splitlines()
    for path, texts in zip(("train.de", "train.en"), lines, strict=True):
        (tmp_path / path).write_text("".join(line + "\n" for line in texts[:-1]))
    message = refusal(caesura(*train(tmp_path, two, cuts)))
    assert message.startswith(f"{two}: the threshold of its cuts by entropy is from another text")
    assert caesura(*command).status == 0
    assert (one / name).read_bytes() == kept
    (two / name).write_bytes(b"{}")
    assert refusal(caesura(*train(tmp_path, two, cuts))).startswith(f"{two / name}: not a file of ")


def test_cuts_that_a_model_cannot_have_are_refused_with_their_place(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config, out = write_config(tmp_path / "c.yaml"), tmp_path / "out"
    message = refusal(caesura("train", config, "--out", out, "--set", "data.cuts={type: whitespace}"))
    assert wording(message).startswith("--set data.cuts={type: whitespace}: ")
    small = "data.cuts={type: bpe, voc_limit: 9}"
    assert wording(refusal(caesura(*train(tmp_path, out, small)))).startswith(f"--set {small}: ")
    long = "data.cuts={type: entropy, target: 100}"
    message = wording(refusal(caesura(*train(tmp_path, out, long))))
    assert message.startswith(f"--set {long}: data.cuts.target: 100 ")
