"""Blocks of lines, in one process or several: the ids are those that a vocabulary gives to each line."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered import build
from wording import refuses
from workers import killed, slow

from caesura.config import RuleCuts
from caesura.data import blocks
from caesura.data.blocks import Block, in_order, read_blocks
from caesura.data.corpus import Corpus, ParallelText
from caesura.data.cuts import OffsetFile, RuledCuts, places_of
from caesura.data.files import read_lines
from caesura.data.numbering import Counting, count_text, encode_all
from caesura.data.vocabulary import Vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.data.words import words_of
from caesura.errors import InputError, TrainingError

ODD = [
    b"das haus",
    b"",
    b"mit\rwagen\r",
    "zwei\u2028zeilen \x1c e\u0301 e\u0301\u0302".encode(),
    " \t\u3000".encode(),
    "\ufeff東京に行く 🏳️‍🌈 ş".encode(),
    b"kaputt \xff\xfe \xed\xa0\x80 \xc3",
    b"nul \0 hier",
    b"x" * 300,
    b" mehr  als ein  leerzeichen ",
]
SRC = [line + b" %d" % (i % 7) if i % 3 else line for i in range(4) for line in ODD]
TRG = [b"the other side " + line for line in SRC[::-1]]
VOCABULARIES = {
    "char": {},
    "spelled": {"kind": "char", "byte_fallback": True, "size": 280},
    "byte": {},
    "word": {},
    "bpe": {"size": 400},
    "wordpiece": {"size": 400},
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LINES", 7)
    monkeypatch.setattr(blocks, "_WORTH", 1)


@pytest.fixture
def text(tmp_path: Path) -> ParallelText:
    """Odd lines, all of them; the first begins with a byte-order mark and some end in CR LF."""
    for name, lines in (("a", SRC), ("b", TRG)):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + b"".join(line + b"\n" for line in lines)[:-1])
    return ParallelText(tmp_path / "a", tmp_path / "b")


def vocabulary_of(name: str, path: Path) -> Vocabulary:
    """A vocabulary that knows most characters of a text."""
    lines = [line or "" for line in read_lines(path, "replace")]
    return train_vocabulary(**{"kind": name, "lines": lines[:9], **VOCABULARIES[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_any_number_of_processes_writes_the_ids_of_each_line(
    text: ParallelText, tmp_path: Path, name: str
) -> None:
    assert text.trg is not None
    src, trg = vocabulary_of(name, text.src), vocabulary_of(name, text.trg)
    lines = zip(read_lines(text.src, "replace"), read_lines(text.trg, "replace"), strict=True)
    fit = [(a, b) for a, b in lines if a and a.strip() and b and b.strip()]
    kept = [(a, b) for a, b in fit if len(src.encode(a)) <= 250 and len(trg.encode(b)) <= 250]
    for cores in (1, 2, *([5] if name == "bpe" else [])):
        settings = {"max_src": 250, "max_trg": 250, "errors": "replace", "cores": cores}
        corpus = build(text, src, trg, tmp_path / str(cores), "c", **settings)  # type: ignore[arg-type]
        assert [(a.tolist(), b.tolist()) for a, b in corpus] == [
            (src.encode(a), trg.encode(b)) for a, b in kept
        ]
        assert corpus.characters.tolist() == [[len(a), len(b)] for a, b in kept]
        assert (corpus.report.read, corpus.report.kept) == (40, len(kept))
        assert sum(corpus.report.dropped.values()) == 40 - len(kept)
    first = [(tmp_path / "1" / f"c.{suffix}").read_bytes() for suffix in ("bin", "idx")]
    assert first == [(tmp_path / str(cores) / f"c.{suffix}").read_bytes() for suffix in ("bin", "idx")]


@pytest.mark.parametrize("kind", ["rule", "file"])
def test_any_number_of_processes_writes_the_cuts_of_each_line(
    text: ParallelText, tmp_path: Path, kind: str
) -> None:
    chars = vocabulary_of("char", text.src)
    lines = [line or "" for line in read_lines(text.src, "replace")]
    rule = RuledCuts(RuleCuts(type="whitespace"))
    offsets = [rule.offsets(line) for line in lines]
    (tmp_path / "c").write_text("".join(" ".join(map(str, row)) + "\n" for row in offsets))
    cuts = rule if kind == "rule" else OffsetFile(tmp_path / "c")
    for cores in (1, 2):
        corpus = build(
            text, chars, chars, tmp_path / str(cores), "c", errors="replace", cuts=cuts, cores=cores
        )
        kept = [i for i, line in enumerate(lines) if line.strip()]
        assert [corpus.cuts(i).tolist() for i in range(len(corpus))] == [  # type: ignore[union-attr]
            rule(lines[i], places_of(chars.encode_spans(lines[i])[1])).tolist() for i in kept
        ]


@given(st.lists(st.text(st.characters(codec=None), max_size=8), max_size=6))
def test_all_at_once_is_one_after_the_other(texts: list[str]) -> None:
    """Lone surrogates too, although the text of a file cannot have them."""
    known = "".join(texts)[::2]
    for name in ("char", "spelled", "byte", "word"):
        options = {"kind": name, **VOCABULARIES[name], "size": None}
        lines = [known.translate({0: "", 10: ""} | dict.fromkeys(range(0xD800, 0xE000), "")), "a"]
        vocabulary = train_vocabulary(lines=lines, **options)  # type: ignore[arg-type]
        ids, counts = encode_all(vocabulary, texts)
        assert ids.tolist() == [i for text in texts for i in vocabulary.encode(text)]
        assert counts.tolist() == [len(vocabulary.encode(text)) for text in texts]


@pytest.mark.parametrize("cores", [1, 2])
def test_symbols_and_words_are_counted(text: ParallelText, cores: int) -> None:
    assert text.trg is not None
    counts = count_text(Counting(text, (False, True), "replace"), cores=cores)
    sides = [[line or "" for line in read_lines(path, "replace")] for path in (text.src, text.trg)]
    assert counts.symbols(0, "char") == {c: "".join(sides[0]).count(c) for c in "".join(sides[0])}
    assert counts.symbols(1, "word") == {
        w: " ".join(sides[1]).split().count(w) for w in " ".join(sides[1]).split()
    }
    assert counts.symbols(1, "bpe") is None
    for side, words in zip(sides, counts.words, strict=True):
        known = [word for line in side for word in words_of(line)]
        assert words.total == len(known)
        assert words.counts == {word: known.count(word) for word in known if len(word) <= 100}


@pytest.mark.parametrize("cores", [1, 2])
def test_the_first_bad_line_is_named_whoever_reads_it(tmp_path: Path, cores: int) -> None:
    chars = train_vocabulary("char", ["abc"])
    good = [b"abc"] * 40
    for name, lines in (("a", [*good[:30], b"\xff", *good, b"\xfe"]), ("b", [*good, *good])):
        (tmp_path / name).write_bytes(b"".join(line + b"\n" for line in lines))
    text = ParallelText(tmp_path / "a", tmp_path / "b")
    with refuses(InputError, f"{tmp_path}/a:31: "):
        build(text, chars, chars, tmp_path / "c", "c", cores=cores)
    with refuses(InputError, "", f"{tmp_path}/a has 72 ", f"{tmp_path}/b has 80 "):
        build(text, chars, chars, tmp_path / "c", "c", cores=cores, errors="replace")
    assert [*(tmp_path / "c").iterdir()] == []


def test_lines_of_any_length_make_blocks_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_BYTES", 100)
    (tmp_path / "a").write_bytes(b"x" * 60 + b"\n" + b"y" * 60 + b"\n" + b"z\n" * 12)
    found = [*read_blocks([tmp_path / "a"])]
    assert [(block.first, len(block.rows)) for block in found] == [(1, 2), (3, 7), (10, 5)]
    assert [block.share for block in found][-1] == 1.0


def test_a_process_that_is_killed_is_one_sentence() -> None:
    with refuses(TrainingError, "a process ", "SIGKILL"):
        [*in_order(killed, [Block(1, [(b"x",)], 1.0)], 2)]


def test_processes_end_with_the_work_even_in_the_middle_of_it() -> None:
    work = in_order(slow, [Block(1 + i, [(b"x",)], 1.0) for i in range(9)], 2)
    other = next(work)
    assert other != os.getpid()
    work.close()
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_numbers_are_as_wide_as_a_vocabulary_needs(tmp_path: Path) -> None:
    words = train_vocabulary("word", (str(i) for i in range(70_000)))
    for name in ("a", "b"):
        (tmp_path / name).write_text("69999 1\n")
    corpus: Corpus = build(ParallelText(tmp_path / "a", tmp_path / "b"), words, words, tmp_path, "c")
    assert corpus[0][0].dtype == np.uint32
    assert words.decode(corpus[0][1]) == "69999 1"
