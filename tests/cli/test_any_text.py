"""Any bytes at all, through everything that reads text: line for line, or refused by file, line and byte."""

import gzip
import json
import lzma
import os
import random
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from cli.program import Done, at_terminal, caesura, refusal, with_config, write_config
from folders.test_strangers import at_most, little_memory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numbered import build
from wording import refuses, wording

from caesura.analysis.training_text import training_text
from caesura.data.corpus import ParallelText
from caesura.data.files import read_lines
from caesura.data.tensors import load_tensors, save_tensors
from caesura.data.unpacking import ZST_LIBRARY
from caesura.data.vocabulary_training import train_vocabulary
from caesura.data.words import WORDS
from caesura.errors import InputError
from caesura.evaluation.pieces import split_pieces
from caesura.inference import Translator

LONGEST = 200  # testing.max_input of the models

SPECIAL = [
    *("\ufeff", "\r", "\r\r", "\u2028", "\u2029", "\x85", "\x0b\x0c", "\x1c\x1d\x1e", "\t", " ", "\u3000"),
    *("\u200b", "\u200d", "\u2060", "\u0301\u0301", "e\u0301", "\u202e", "\u202c", "שלום", "عربي", "\x07"),
    *("|", "\\", "\\n", "␣", "<s>", "</s>", "<unk>", "@@", "##", "\U0010ffff", "\ufffe", "\U000e0001"),
]

TEXT = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=30)
PIECES = (
    st.lists(st.one_of(st.sampled_from(SPECIAL), TEXT), max_size=6)
    .map("".join)
    .map(lambda text: text.replace("\n", ""))
)
GOOD = st.one_of(PIECES, st.text(st.sampled_from("eins zweidr"), max_size=250)).map(str.encode)
BAD = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\0b", b"\xf4\x90\x80\x80"]),
).map(lambda raw: raw.replace(b"\n", b""))


def files(least: int) -> st.SearchStrategy[bytes]:
    """Files of `least` lines or more, half of them with nothing bad in them."""
    good = st.lists(GOOD, min_size=least, max_size=least + 40)
    any_lines = st.lists(st.one_of(*[GOOD] * 9, BAD), min_size=least, max_size=least + 40)
    drawn = st.tuples(st.one_of(good, any_lines), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
    return drawn.map(lambda d: d[1].join(d[0]) + (d[1] if d[2] and d[0] else b""))


seen: Counter[str] = Counter()


def expected(content: bytes) -> tuple[list[str], tuple[int, int] | None]:
    """The lines of a file before the first bad one, and where that one is: its number and its bad byte."""
    lines = []
    rows = content.split(b"\n")
    for number, row in enumerate(rows[:-1] if rows[-1] == b"" else rows, 1):
        row = row.removesuffix(b"\r")
        if number == 1:
            row = row.removeprefix(b"\xef\xbb\xbf")
        try:
            text = row.decode("utf-8")
        except UnicodeDecodeError as error:
            return lines, (number, error.start + 1)
        if "\0" in text:
            return lines, (number, row.index(0) + 1)
        lines.append(text)
    return lines, None


def many(examples: int) -> Callable[..., settings]:
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused(done: Done, path: Path, bad: tuple[int, int]) -> None:
    """What was refused is named by file, line and byte."""
    assert done.status == 2
    match = re.search(
        rf"caesura: {re.escape(str(path))}:(\d+): .* at byte (\d+) \(0x", done.err.split("\n")[-2]
    )
    assert match is not None, done.err
    assert (int(match[1]), int(match[2])) == bad


def check_reader(path: Path, content: bytes) -> None:
    lines, bad = expected(content)
    texts, problem = [], ""
    try:
        for line in read_lines(path):
            texts.append(line)
    except InputError as refusal:
        problem = str(refusal)
    assert texts == lines
    assert problem.startswith(f"{path}:{bad[0]}: " if bad else "")
    assert bool(problem) == bool(bad)
    rows = content.split(b"\n")
    assert len([*read_lines(path, "replace")]) == len(rows) - (rows[-1] == b"")
    seen.update(lines=len(lines), refused=bad is not None, files=1)


def check_commands(models: dict[str, Path], system: str, path: Path, content: bytes) -> None:
    lines, bad = expected(content)
    for name in ("segment", "translate"):
        done = caesura(name, models[system], path, *(["--beam", "1"] if name == "translate" else []))
        if bad is None:
            assert done.status == 0, done.err
        else:
            refused(done, path, bad)
        assert len(done.lines) == len(lines)
        if name == "segment":
            shown = ["" if len(line) > LONGEST else line for line in lines]
            assert ["".join(split_pieces(line)) for line in done.lines] == shown
        assert done.err.count("longer than 200 characters") == sum(len(line) > LONGEST for line in lines)


def check_evaluation(models: dict[str, Path], system: str, path: Path, content: bytes) -> None:
    lines, bad = expected(content)
    done = caesura("evaluate", models[system], "--src", path, "--trg", path, "--beam", "1", "--json")
    if bad is not None:
        refused(done, path, bad)
    elif not lines:
        assert (done.status, done.err) == (2, f"caesura: {path}: no sentences to score\n")
    else:
        assert done.status == 0, done.err
        assert json.loads(done.out)["scores"]["sentences"] == len(lines)


def check_corpus(folder: Path, path: Path, content: bytes) -> None:
    lines, bad = expected(content)
    text = ParallelText(path, path)
    if bad is not None or not "".join(lines).strip():
        return
    vocabulary = train_vocabulary("char", lines)
    corpus = build(text, vocabulary, vocabulary, folder, "any", max_src=100)
    kept = [line for line in lines if line.strip() and len(line) <= 100]
    assert [vocabulary.decode(source) for source, _ in corpus] == kept
    assert corpus.report.read == len(lines) == corpus.report.kept + sum(corpus.report.dropped.values())


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_text_named_by_a_config_is_read_from_a_file_alone(
    models: dict[str, Path], corpus: Path, tmp_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    named = {"device": Path("/dev/zero"), "pipe": tmp_path / "pipe", "folder": tmp_path}[kind]
    test = f"test:\n    src: {named}\n    trg: {named}\n"
    with_config(models["word"], tmp_path / "test", "test: null\n", test)
    with at_most(20):
        message = refusal(caesura("evaluate", tmp_path / "test"))
    assert wording(message).startswith(f"{named}: ")
    assert "data.test" in message
    with_config(models["word"], tmp_path / "train", str(corpus / "train.de"), str(named))
    (tmp_path / "train" / WORDS).unlink()
    with at_most(20):
        sources = training_text(
            Translator.from_pretrained(tmp_path / "train"), tmp_path / "train", None, "strict"
        )
    assert (sources.src, sources.trg, sources.path) == (None, None, None)


def test_the_words_of_a_folder_are_those_its_weights_were_saved_with(
    models: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(models["word"], tmp_path / "model"))
    model, path = Translator.from_pretrained(folder), folder / WORDS
    assert training_text(model, folder, None, "strict").src is not None
    content = path.read_text()
    path.write_text(content.replace('"total": ', '"total": 1', 1))
    with refuses(InputError, "", "train.words.json: "):
        training_text(model, folder, None, "strict")
    weights, facts = load_tensors(folder / "model.safetensors")
    facts["files"].pop(WORDS)  # as it was before
    save_tensors(folder / "model.safetensors", weights, facts)
    assert training_text(model, folder, None, "strict").src is not None


@pytest.mark.parametrize(("examples", "least"), [(60, 0), pytest.param(1000, 15, marks=pytest.mark.soak)])
def test_any_file_is_read_line_for_line_or_refused(tmp_path: Path, examples: int, least: int) -> None:
    @many(examples)
    @given(files(least))
    def check(content: bytes) -> None:
        path = tmp_path / "any.txt"
        path.write_bytes(content)
        check_reader(path, content)
        check_corpus(tmp_path, path, content)

    seen.clear()
    check()
    print(dict(seen))


@pytest.mark.parametrize(
    ("system", "examples", "least"),
    [
        *(("act", 8, 0), ("bpe", 8, 0)),
        *(pytest.param(*given, marks=pytest.mark.soak) for given in (("act", 50, 20), ("bpe", 450, 20))),
    ],
)
def test_any_file_is_answered_line_for_line_or_refused(
    models: dict[str, Path], tmp_path: Path, system: str, examples: int, least: int
) -> None:
    @many(examples)
    @given(files(least))
    def check(content: bytes) -> None:
        path = tmp_path / "any.txt"
        path.write_bytes(content)
        seen.update(lines=len(expected(content)[0]), files=1)
        with at_most(120):
            check_commands(models, system, path, content)
            check_evaluation(models, system, path, content)

    seen.clear()
    check()
    print(system, dict(seen))


def hostile_line(rng: random.Random) -> str:
    """Letters of any script, controls, marks and what else no sentence has; at times too long."""
    size = rng.choice((0, 1, 5, 20, 60, 250))
    drawn = (rng.choice(SPECIAL) if rng.random() < 0.3 else chr(rng.choice(PLANES)(rng)) for _ in range(size))
    return "".join(c for c in "".join(drawn) if c not in "\n\0" and not "\ud800" <= c <= "\udfff")


PLANES: list[Callable[[random.Random], int]] = [
    *[lambda rng: rng.randrange(1, 0x80)] * 4,
    lambda rng: rng.randrange(0x80, 0x3000),
    lambda rng: rng.randrange(0x110000),
]


@pytest.mark.parametrize(
    ("seed", "rounds", "size"),
    [(1, 1, 60), *(pytest.param(seed, 5, 5000, marks=pytest.mark.soak) for seed in range(2, 6))],
)
def test_hostile_lines_come_out_line_for_line_and_at_a_terminal_so_that_they_can_be_seen(
    models: dict[str, Path], tmp_path: Path, seed: int, rounds: int, size: int
) -> None:
    rng, path = random.Random(seed), tmp_path / "hostile.txt"
    batches = ("--set", "testing.batch_size=64", "--set", f"testing.max_input={LONGEST}")
    for _ in range(rounds):
        lines = ["x", *(hostile_line(rng) for _ in range(size - 1))]  # no BOM at the start
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        clean = [line.removesuffix("\r") for line in lines]
        with at_most(600):
            cut = caesura("segment", models["bpe"], path, *batches)
            written = caesura("translate", models["bpe"], path, "--beam", 1, *batches)
            shown = at_terminal("translate", models["bpe"], path, "--beam", 1, "--segments", *batches)
        assert (cut.status, written.status, shown.status) == (0, 0, 0)
        pieces = ["".join(split_pieces(line)) for line in cut.lines]
        assert pieces == ["" if len(line) > LONGEST else line for line in clean]
        assert len(written.lines) == size
        warnings = cut.err.count("\n")
        assert len(shown.lines) == size + warnings
        assert not {unicodedata.category(c) for c in shown.out} & {"Cs", "Zl", "Zp"}
        assert {c for c in shown.out if unicodedata.category(c) == "Cc"} <= {"\n", "\t"}
    print({"lines": rounds * size})


SIZE = 200_000_000


def _packing(path: Path) -> IO[bytes]:
    if path.suffix == ".zst":
        return pytest.importorskip(ZST_LIBRARY).open(path, "wb")
    return gzip.open(path, "wb", 1) if path.suffix == ".gz" else lzma.open(path, "wb", preset=0)


@pytest.fixture(params=["plain", ".gz", ".xz", ".zst"])
def giant(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A text whose second line has 200 MB; packed, it is a bomb of some hundred kB."""
    if request.param == "plain":
        path = tmp_path / "giant.txt"
        with path.open("wb") as file:
            file.write(b"eins\n")
            file.seek(SIZE, 1)
            file.write(b"\nneun\n")
        return path
    path = tmp_path / f"giant{request.param}"
    with _packing(path) as file:
        file.write(b"eins\n")
        for _ in range(SIZE // 1_000_000):
            file.write(b"x" * 1_000_000)
        file.write(b"\nneun\n")
    return path


@pytest.mark.slow
def test_a_line_of_200_mb_takes_no_memory(models: dict[str, Path], giant: Path, tmp_path: Path) -> None:
    warning = f"caesura: {giant}:2: longer than 200 characters (testing.max_input)"
    caesura("segment", models["act"], stdin=b"eins\n")  # what is loaded once
    with little_memory(100_000_000), at_most(300):
        for name in ("segment", "translate"):
            done = caesura(name, models["act"], giant)
            assert done.status == 0
            assert [bool(line) for line in done.lines] == [True, False, done.lines[2] != ""]
            assert done.err.startswith(warning)
        done = caesura("evaluate", models["act"], "--src", giant, "--trg", giant, "--json")
        assert done.status == 0
        assert done.err.startswith(warning)
        lines = [*read_lines(giant)]
    assert lines == ["eins", None, "neun"]


@pytest.mark.slow
@pytest.mark.parametrize("giant", ["plain", ".gz"], indirect=True)
def test_a_training_line_of_200_mb_is_dropped_and_counted(corpus: Path, giant: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", "char", corpus)
    text = f"data.train={{src: {giant}, trg: {giant}}}"
    given = ("train", config, "--out", tmp_path / "out", "--set", text, "--set", "training.updates=1")
    caesura("train", config, "--out", tmp_path / "first", "--set", "training.updates=1")
    with little_memory(100_000_000), at_most(300):
        done = caesura(*given)
    assert done.status == 0, done.err
    assert "3 pairs read, 2 kept; dropped: 1 line over the limit" in done.out


def test_a_training_line_longer_than_any_sentence_is_dropped_without_being_asked(
    corpus: Path, tmp_path: Path
) -> None:
    for language in ("de", "en"):
        text = (corpus / f"train.{language}").read_bytes()
        (tmp_path / f"long.{language}").write_bytes(text + b"x" * 900_000 + b"\n")
    config = write_config(tmp_path / "c.yaml", "char", corpus)
    train = f"data.train={{src: {tmp_path}/long.de, trg: {tmp_path}/long.en}}"
    done = caesura("train", config, "--out", tmp_path / "out", "--set", train, "--set", "training.updates=1")
    assert done.status == 0, done.err
    assert "61 pairs read, 60 kept; dropped: 1 source longer than 5000 symbols" in done.out
