import gzip
import json
import lzma
import os
import random
import zlib

import numpy as np
import pytest
from numbered import build as make_corpus
from wording import refuses, wording

from caesura.config import RuleCuts
from caesura.data import blocks, files
from caesura.data.corpus import Corpus, ParallelText
from caesura.data.cuts import OffsetFile, RuledCuts
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

SRC = ["das haus", "ein tier", "", "東京に行く", "eine sehr lange zeile die zu lang ist", "und"]
TRG = ["the house", "an animal", "empty", "i go to tokyo", "a line", " "]


def write(path, lines, opener=open):
    with opener(path, "wb") as file:
        file.write("".join(line + "\n" for line in lines).encode())
    return path


@pytest.fixture
def text(tmp_path):
    return ParallelText(write(tmp_path / "t.de", SRC), write(tmp_path / "t.en", TRG))


@pytest.fixture(scope="module")
def chars():
    return train_vocabulary("char", SRC + TRG)


@pytest.fixture
def build(text, chars, tmp_path, monkeypatch):
    """Builds with the settings given, and says whether it had to."""
    written = []
    monkeypatch.setattr(Corpus, "make", lambda *a, real=Corpus.make: (written.append(1), real(*a))[1])

    def call(src=chars, trg=chars, **settings):
        before = len(written)
        corpus = make_corpus(text, src, trg, tmp_path / "cache", "train", **settings)
        return corpus, len(written) > before

    return call


# Parallel text


def test_two_files_and_a_tsv_are_the_same_text(tmp_path, text):
    rows = [f"{s}\t{t}" for s, t in zip(SRC, TRG, strict=True)]
    for name, opener in (("t.tsv", open), ("t.tsv.gz", gzip.open), ("t.tsv.xz", lzma.open)):
        assert list(ParallelText(write(tmp_path / name, rows, opener))) == list(text)
    assert list(text) == [(s, t, None) for s, t in zip(SRC, TRG, strict=True)]


def test_boundaries_come_with_their_source(tmp_path):
    expected = [("haustür", "front door", [4]), ("ab", "x", []), ("東京都", "tokyo", [1, 2])]
    tsv = write(tmp_path / "t.tsv", [f"{s}\t{t}\t{' '.join(map(str, b))}" for s, t, b in expected])
    assert list(ParallelText(tsv)) == expected
    src = write(tmp_path / "a.de.gz", [s for s, _, _ in expected], gzip.open)
    trg = write(tmp_path / "a.en", [t for _, t, _ in expected])
    assert list(ParallelText(src, trg)) == [(s, t, None) for s, t, _ in expected]
    write(tmp_path / "a.de.bounds", [" ".join(map(str, b)) for _, _, b in expected])
    assert list(ParallelText(src, trg)) == expected


@pytest.mark.parametrize("cell", ["0", "3", "2 1", "1 1", "x", "-1", "1,2", "1.0", "²", "9" * 5000])
def test_wrong_boundaries_are_told_with_their_line(tmp_path, cell):
    tsv = write(tmp_path / "t.tsv", ["abc\tx\t1 2", f"abc\tx\t{cell}"])
    with refuses(InputError, f"{tsv}:2: boundaries "):
        list(ParallelText(tsv))
    src, trg, _ = (
        write(tmp_path / n, lines) for n, lines in (("s", ["abc"]), ("t", ["x"]), ("s.bounds", [cell]))
    )
    with refuses(InputError, f"{src}.bounds:1: boundaries "):
        list(ParallelText(src, trg))


@pytest.mark.parametrize("row", ["no tab", "a\tb\t1\t2", ""])
def test_wrong_columns_are_told_with_their_line(tmp_path, row):
    with refuses(InputError, f"{tmp_path}/t.tsv:2: "):
        list(ParallelText(write(tmp_path / "t.tsv", ["a\tb", row])))


@pytest.mark.parametrize(("n", "m"), [(3, 7), (7, 3), (0, 2), (4, 5)])
def test_files_of_different_length_are_told_with_both_counts(tmp_path, n, m):
    src, trg = write(tmp_path / "s.de", ["a"] * n), write(tmp_path / "t.en", ["b"] * m)
    with refuses(InputError, "", f"{src} has {n} ", f"{trg} has {m} "):
        list(ParallelText(src, trg))


def test_a_source_without_target_should_be_a_tsv(tmp_path):
    with refuses(InputError, "train.de: ", ".tsv"):
        ParallelText("train.de")


# The corpus


def test_ids_are_those_of_the_vocabularies(build, chars):
    words = train_vocabulary("word", TRG)
    corpus, _ = build(trg=words, max_src=20)
    kept = [0, 1, 3]
    assert len(corpus) == len(kept)
    for (src, trg), i in zip(corpus, kept, strict=True):
        assert src.tolist() == chars.encode(SRC[i])
        assert trg.tolist() == words.encode(TRG[i])
    assert corpus.lengths.tolist() == [[len(SRC[i]), len(TRG[i].split())] for i in kept]
    rows = np.array([len(corpus) - 1, 0, 0])
    assert corpus.target_symbols(rows) == sum(len(corpus[i][1]) for i in rows)
    assert corpus[-1][0].tolist() == corpus[2][0].tolist()
    with pytest.raises(IndexError):
        corpus[3]
    with pytest.raises(ValueError, match="read-only"):
        corpus[0][0][0] = 1


def test_the_report_names_every_reason(build, monkeypatch):
    monkeypatch.setattr(files, "LINE_LIMIT", 37)
    corpus, _ = build(max_src=20, max_trg=9)
    assert corpus.report.dropped == {
        "empty source": 1,
        "target longer than 9 symbols": 1,
        "source longer than 20 symbols": 1,
        "empty target": 1,
    }
    assert str(corpus.report) == (
        "6 pairs read, 2 kept; dropped: 1 empty source, 1 target longer than 9 symbols, "
        "1 source longer than 20 symbols, 1 empty target"
    )
    again, rebuilt = build(max_src=20, max_trg=9)
    assert not rebuilt
    assert again.report == corpus.report
    monkeypatch.setattr(files, "LINE_LIMIT", 36)
    assert build()[0].report.dropped["line over the limit"] == 1


def test_limits_count_symbols_and_drop_only_what_is_over(build):
    longest = max(len(s) for s in SRC)
    assert len(build(max_src=longest)[0]) == len(build(max_src=longest - 1)[0]) + 1


@pytest.mark.parametrize("level", ["char", "word"])
def test_a_limit_in_characters_drops_the_same_pairs_at_every_level(build, level):
    src, trg = train_vocabulary(level, SRC), train_vocabulary(level, TRG)
    for most in sorted({len(line) for line in (*SRC, *TRG)} - {0}):
        pairs = [(s, t) for s, t in zip(SRC, TRG, strict=True) if s.strip() and t.strip()]
        kept = [(s, t) for s, t in pairs if max(len(s), len(t)) <= most]
        corpus, _ = build(src=src, trg=trg, max_chars=most)
        assert [(a.tolist(), b.tolist()) for a, b in corpus] == [
            (src.encode(s), trg.encode(t)) for s, t in kept
        ]
        dropped = corpus.report.dropped
        over = [dropped.get(f"{side} longer than {most} characters", 0) for side in ("source", "target")]
        assert over == [
            sum(len(s) > most for s, _ in pairs),
            sum(len(t) > most >= len(s) for s, t in pairs),
        ]


@pytest.mark.parametrize("level", ["char", "word", "bpe"])
def test_characters_are_those_of_the_lines_at_every_level(build, level, monkeypatch):
    monkeypatch.setattr(blocks, "LINES", 2)
    size = 50 if level == "bpe" else None
    src, trg = (train_vocabulary(level, lines, size) for lines in (SRC, TRG))
    corpus, _ = build(src=src, trg=trg)
    kept = [(s, t) for s, t in zip(SRC, TRG, strict=True) if s.strip() and t.strip()]
    assert corpus.characters.tolist() == [[len(s), len(t)] for s, t in kept]
    assert corpus.lengths.tolist() == [[len(src.encode(s)), len(trg.encode(t))] for s, t in kept]
    assert (level == "char") == (corpus.lengths.tolist() == corpus.characters.tolist())


def test_text_of_an_earlier_format_is_numbered_again(build, chars, tmp_path):
    whole = [[side.tolist() for side in pair] for pair in build()[0]]
    idx = tmp_path / "cache" / "train.idx"
    content = idx.read_bytes()
    header = json.loads(content[8:4096])
    header["made_from"]["format"] = 2  # whose table had offsets alone
    table = np.frombuffer(content[4096:], "<i8").reshape(-1, 4)
    offsets = np.append(0, table[1:, :2]).astype("<i8")
    sums = header.pop("crc32")
    header["crc32"] = [sums[0], zlib.crc32(offsets), zlib.crc32(json.dumps(header).encode())]
    idx.write_bytes((b"CAESURA\n" + json.dumps(header).encode()).ljust(4096) + offsets.tobytes())
    messages = []
    corpus, rebuilt = build(say=messages.append)
    assert rebuilt
    assert wording(*messages).startswith(f"{tmp_path}/cache/train.idx: ")
    assert [[side.tolist() for side in pair] for pair in corpus] == whole
    assert idx.read_bytes() == content


def test_nothing_is_built_twice_and_every_change_builds(build, text, chars):
    assert build()[1]
    assert not build()[1]
    os.utime(text.src)
    assert not build()[1]
    for change in (
        {"max_src": 20},
        {"max_trg": 20},
        {"max_chars": 20},
        {"errors": "replace"},
        {"src": train_vocabulary("char", SRC)},
        {"trg": train_vocabulary("word", TRG)},
    ):
        assert build(**change)[1], change
        assert not build(**change)[1], change
    build()
    text.trg.write_text(text.trg.read_text().replace("house", "mouse"))
    corpus, rebuilt = build()
    assert rebuilt
    assert corpus[0][1].tolist() == chars.encode("the mouse")


@pytest.mark.parametrize("suffix", ["bin", "idx"])
@pytest.mark.parametrize(
    "tear",
    [
        lambda p: p.write_bytes(p.read_bytes()[:-1]),
        lambda p: p.write_bytes(p.read_bytes()[:-8]),
        lambda p: p.write_bytes(p.read_bytes() + b"\0\0"),
        lambda p: p.write_bytes(b""),
        lambda p: p.unlink(),
    ],
)
def test_a_torn_cache_is_built_again(build, tmp_path, suffix, tear):
    whole = [[side.tolist() for side in pair] for pair in build()[0]]
    tear(tmp_path / "cache" / f"train.{suffix}")
    with refuses(InputError, f"{tmp_path}/cache/train.idx: "):
        Corpus.load(tmp_path / "cache", "train")
    corpus, rebuilt = build()
    assert rebuilt
    assert [[side.tolist() for side in pair] for pair in corpus] == whole
    assert len(Corpus.load(tmp_path / "cache", "train")) == len(whole)


def test_one_bit_that_is_another_is_noticed_wherever_it_is(build, tmp_path):
    whole = [[side.tolist() for side in pair] for pair in build()[0]]
    rng, messages = random.Random(1), []
    for suffix in ["bin", "idx"]:
        path = tmp_path / "cache" / f"train.{suffix}"
        content = path.read_bytes()
        used = [i for i in range(len(content)) if suffix == "bin" or i >= 4096 or content[i] != ord(" ")]
        for at in rng.sample(used, 60):
            spoilt = bytearray(content)
            spoilt[at] ^= 1 << rng.randrange(8)
            path.write_bytes(spoilt)
            corpus, rebuilt = build(say=messages.append, whole=True)
            assert rebuilt, (suffix, at)
            assert [[side.tolist() for side in pair] for pair in corpus] == whole
            assert path.read_bytes() == content
    assert len(messages) == 120
    assert wording("\n".join({*messages})).startswith(f"{tmp_path}/cache/train.idx: ")
    assert not build()[1]


@pytest.mark.parametrize(
    "page", [b"CAESURA\n{}", b"CAESURA\n{", b"nonsense", b'CAESURA\n{"pairs": "x", "ids": 1, "dtype": "O"}']
)
def test_a_spoilt_header_is_built_again(build, tmp_path, page):
    build()
    idx = tmp_path / "cache" / "train.idx"
    idx.write_bytes(page.ljust(4096) + idx.read_bytes()[4096:])
    assert build()[1]


def test_a_build_that_fails_leaves_nothing(text, chars, tmp_path):
    write(text.trg, TRG[:-1])
    with refuses(InputError, "", f"{text.src} has 6 ", f"{text.trg} has 5 "):
        make_corpus(text, chars, chars, tmp_path / "cache", "train")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_old_index_is_never_left_beside_new_ids(build, text, tmp_path, monkeypatch):
    build()
    text.trg.write_text(text.trg.read_text().replace("house", "mouse"))  # as long as before
    replace = os.replace

    def stop_before_the_index(source, target):
        if str(target).endswith(".idx"):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop_before_the_index)
        with pytest.raises(KeyboardInterrupt):
            build()
    text.trg.write_text(text.trg.read_text().replace("mouse", "house"))
    assert build()[1]
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["train.bin", "train.idx"]


def test_a_text_without_lines_is_an_empty_corpus(tmp_path, chars):
    text = ParallelText(write(tmp_path / "a", []), write(tmp_path / "b", []))
    corpus = make_corpus(text, chars, chars, tmp_path, "c")
    assert len(corpus) == 0
    assert corpus.lengths.shape == corpus.characters.shape == (0, 2)


def test_a_large_vocabulary_takes_wider_ids(tmp_path):
    words = train_vocabulary("word", (str(i) for i in range(70_000)))
    text = ParallelText(write(tmp_path / "a", ["0 69999 5"]), write(tmp_path / "b", ["69998"]))
    corpus = make_corpus(text, words, words, tmp_path, "c")
    assert words.decode(corpus[0][0]) == "0 69999 5"
    assert corpus[0][0].dtype == np.uint32


def test_many_pairs_are_flushed_in_order_and_told(tmp_path, chars, monkeypatch):
    monkeypatch.setattr(blocks, "LINES", 40)
    src = [("das" * (i % 5 + 1)) for i in range(100)]
    text = ParallelText(write(tmp_path / "a", src), write(tmp_path / "b", src[::-1]))
    counts = []
    corpus = make_corpus(text, chars, chars, tmp_path, "c", progress=lambda *count: counts.append(count))
    assert [chars.decode(s) for s, _ in corpus] == src
    assert [chars.decode(t) for _, t in corpus] == src[::-1]
    assert [done for done, _ in counts] == [40, 80, 100]
    assert counts[-1] == (100, 100)


def test_the_bytes_on_disk_are_fixed(tmp_path, chars):
    text = ParallelText(write(tmp_path / "a", ["da"]), write(tmp_path / "b", ["s"]))
    make_corpus(text, chars, chars, tmp_path, "c")
    ids = np.array(chars.encode("da") + chars.encode("s"), dtype="<u2")
    assert (tmp_path / "c.bin").read_bytes() == ids.tobytes()
    idx = (tmp_path / "c.idx").read_bytes()
    assert idx[4096:] == np.array([[0, 0, 0, 0], [2, 3, 2, 1]], dtype="<i8").tobytes()
    assert json.loads(idx[8:4096])["made_from"]["vocabularies"] == [chars.fingerprint] * 2


# Cuts beside the ids

SPACES = RuledCuts(RuleCuts(type="whitespace"))


def listed(corpus):
    """The ids and cuts of every pair."""
    return [(*(side.tolist() for side in corpus[i]), corpus.cuts(i).tolist()) for i in range(len(corpus))]


def test_the_cuts_of_kept_pairs_lie_beside_their_ids(build, chars, tmp_path):
    lines = ["3", "1 2", "", "2 4", "4 5", "1"]
    from_file = OffsetFile(write(tmp_path / "t.cuts", lines))
    kept = [0, 1, 3]  # the others are empty or too long
    corpus, _ = build(max_src=20, cuts=from_file)
    for i, line in enumerate(kept):
        ends = [*map(int, lines[line].split())]
        assert corpus.cuts(i).tolist() == [int(at in ends) for at in range(1, len(SRC[line]) + 1)]
        assert corpus[i][0].tolist() == chars.encode(SRC[line])
    assert corpus.cuts(-1).tolist() == corpus.cuts(2).tolist()
    assert corpus.cuts(0).dtype == np.int8
    by_rule, _ = build(max_src=20, cuts=SPACES)
    assert [np.flatnonzero(by_rule.cuts(i)).tolist() for i in range(3)] == [[2], [2], []]


def test_a_corpus_without_cuts_has_the_format_that_it_had(build, tmp_path):
    corpus, _ = build()
    assert corpus.cuts(0) is None
    plain = (tmp_path / "cache" / "train.idx").read_bytes()
    header = json.loads(plain[8:4096])
    assert set(header) == {"made_from", "dtype", "pairs", "ids", "report", "crc32"}
    assert set(header["made_from"]) == {"format", "text", "vocabularies", "settings"}
    assert len(header["crc32"]) == 3
    assert build(cuts=SPACES)[1]
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".bin", ".cut", ".idx"]
    assert build()[1]
    assert (tmp_path / "cache" / "train.idx").read_bytes() == plain
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".bin", ".idx"]


def test_another_source_of_cuts_builds_again(build, tmp_path):
    path = write(tmp_path / "t.cuts", ["1", "", "", "", "", ""])
    for cuts in (SPACES, RuledCuts(RuleCuts(type="whitespace", most=3)), OffsetFile(path)):
        assert build(cuts=cuts)[1]
        assert not build(cuts=cuts)[1]
    write(path, ["2", "", "", "", "", ""])
    corpus, rebuilt = build(cuts=OffsetFile(path))
    assert rebuilt
    assert np.flatnonzero(corpus.cuts(0)).tolist() == [1]


def test_torn_or_changed_cuts_are_noticed(build, tmp_path):
    whole = listed(build(cuts=SPACES)[0])
    path = tmp_path / "cache" / "train.cut"
    content = path.read_bytes()
    assert len(content) == sum(len(src) for src, _, _ in whole)
    for spoilt in (content[:-1], content + b"\0", b"", bytes([content[0] ^ 1]) + content[1:], None):
        path.unlink() if spoilt is None else path.write_bytes(spoilt)
        with refuses(InputError, f"{tmp_path}/cache/train.idx: "):
            Corpus.load(tmp_path / "cache", "train", whole=True)
        corpus, rebuilt = build(cuts=SPACES, whole=True)
        assert rebuilt
        assert listed(corpus) == whole
        assert path.read_bytes() == content


@pytest.mark.parametrize("count", [5, 7, 0])
def test_cuts_for_another_number_of_lines_leave_nothing(build, tmp_path, count):
    path = write(tmp_path / "t.cuts", [""] * count)
    with refuses(InputError, "", "t.de has 6 ", f"{path} has {count} "):
        build(cuts=OffsetFile(path))
    assert list((tmp_path / "cache").iterdir()) == []


def test_cuts_are_flushed_in_order(tmp_path, chars, monkeypatch):
    src = ["das" * (i % 5 + 1) + " und" * (i % 3) for i in range(100)]
    text = ParallelText(write(tmp_path / "a", src), write(tmp_path / "b", src))
    whole = listed(make_corpus(text, chars, chars, tmp_path, "c", cuts=SPACES))
    monkeypatch.setattr(blocks, "LINES", 7)
    assert listed(make_corpus(text, chars, chars, tmp_path, "d", cuts=SPACES)) == whole
    assert [row[2] for row in whole] == [
        [int(line[at : at + 1] == " ") for at in range(1, len(line) + 1)] for line in src
    ]
