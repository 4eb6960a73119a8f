"""Lines of text: what ends one, and what cannot be read."""

import gzip
import io
import lzma
import os
import sys
import tracemalloc
import zlib
from itertools import combinations

import pytest
from folders.test_strangers import little_memory
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.data import files
from caesura.data.files import digest, packed_instead, read_lines, stored
from caesura.errors import InputError


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\r\n", ["a", "b\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        ("a\u2028b\x85c\x0bd\x0ce\x1cf\rg\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf\rg"]),
    ],
)
def test_lines_end_at_newlines_alone(tmp_path, raw, lines):
    for name, opener in (("t", open), ("t.gz", gzip.open), ("t.xz", lzma.open)):
        with opener(tmp_path / name, "wb") as file:
            file.write(raw)
        assert list(read_lines(tmp_path / name)) == lines


@pytest.mark.parametrize(
    "suffixes", [{*kinds} for n in range(3) for kinds in combinations(("", ".xz", ".gz"), n)]
)
def test_a_name_stands_for_the_plain_file_and_else_for_the_only_packed_one(tmp_path, suffixes):
    for suffix, opener in (("", open), (".gz", gzip.open), (".xz", lzma.open)):
        if suffix in suffixes:
            with opener(tmp_path / f"t{suffix}", "wb") as file:
                file.write(suffix.encode() + b"\n")
    if suffixes == {".xz", ".gz"}:
        with refuses(InputError, f"{tmp_path / 't'}: ", tmp_path / "t.xz", tmp_path / "t.gz"):
            stored(tmp_path / "t")
        return
    first = next((suffix for suffix in ("", ".xz", ".gz") if suffix in suffixes), None)
    if first is None:
        assert stored(tmp_path / "t") == tmp_path / "t"
        with pytest.raises(InputError):
            list(read_lines(tmp_path / "t"))
        return
    assert list(read_lines(tmp_path / "t")) == [first]
    assert digest(tmp_path / "t") == digest(tmp_path / f"t{first}")
    assert (packed_instead(tmp_path / "t") is None) == (first == "")
    (tmp_path / "t").unlink(missing_ok=True)
    (tmp_path / "t").mkdir()
    with refuses(InputError, f"{tmp_path}/t: "):
        list(read_lines(tmp_path / "t"))


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))), st.booleans())
def test_any_lines_come_back(tmp_path_factory, lines, final_newline):
    lines = [line.rstrip("\r").removeprefix("\ufeff") for line in lines] + ["end"]
    path = tmp_path_factory.mktemp("lines") / "t"
    path.write_bytes(("\n".join(lines) + "\n" * final_newline).encode())
    assert list(read_lines(path)) == lines


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ä\nb".encode())))
    assert list(read_lines("-")) == ["ä", "b"]
    assert not sys.stdin.closed


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_over_the_limit_is_none(tmp_path, monkeypatch, end):
    monkeypatch.setattr(files, "LINE_LIMIT", 10)
    path = tmp_path / "t"
    for length in range(1, 25):
        path.write_bytes(b"\xef\xbb\xbf" + b"x" * length + b"\n" + b"y" * length + end)
        expected = ["x" * length, "y" * length] if length <= 10 else [None, None]
        assert list(read_lines(path)) == expected, length


def test_a_giant_line_is_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LINE_LIMIT", 10_000)
    path = tmp_path / "t.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a\n")
        for _ in range(30):
            file.write(b"x" * 1_000_000)
        file.write(b"\nb\n")
    tracemalloc.start()
    try:
        assert list(read_lines(path)) == ["a", None, "b"]
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("raw", "line", "byte", "replaced"),
    [
        (b"ok\nab\xffc\n", 2, 3, ["ok", "ab\ufffdc"]),
        (b"\xc3", 1, 1, ["\ufffd"]),
        (b"\n\n\xc3\xa4\0\n", 3, 3, ["", "", "ä\ufffd"]),
    ],
)
def test_bytes_that_are_no_text(tmp_path, raw, line, byte, replaced):
    path = tmp_path / "t"
    path.write_bytes(raw)
    with refuses(InputError, f"{path}:{line}: ", f"byte {byte} "):
        list(read_lines(path))
    assert list(read_lines(path, errors="replace")) == replaced


def test_files_that_cannot_be_read_are_named(tmp_path):
    whole = "".join(f"{i * 7919 % 1009} line\n" for i in range(5000)).encode()
    (tmp_path / "cut.gz").write_bytes(gzip.compress(whole)[:-100])
    (tmp_path / "cut.xz").write_bytes(lzma.compress(whole)[:-100])
    spoilt = bytearray(gzip.compress(whole))
    spoilt[len(spoilt) // 2] ^= 255
    (tmp_path / "spoilt.gz").write_bytes(spoilt)
    (tmp_path / "plain.gz").write_bytes(whole)
    (tmp_path / "plain.xz").write_bytes(whole)
    (tmp_path / "empty.xz").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for name in ("cut.gz", "cut.xz", "spoilt.gz", "plain.gz", "plain.xz", "empty.xz", "folder", "missing"):
        with pytest.raises(InputError, match=name):
            list(read_lines(tmp_path / name))


def asking_for(dictionary, text):
    """An .xz whose header asks for a dictionary of this size, in its own code."""
    content = bytearray(lzma.compress(text))
    end = 12 + (content[12] + 1) * 4
    assert bytes(content[14:16]) == b"\x21\x01"  # LZMA2, and one byte about it
    content[16] = dictionary
    content[end - 4 : end] = zlib.crc32(content[12 : end - 4]).to_bytes(4, "little")
    return bytes(content)


def test_an_xz_that_asks_for_more_memory_than_the_best_packing_is_refused(tmp_path):
    path = tmp_path / "t.xz"
    path.write_bytes(asking_for(28, b"a\nb\n"))  # 64 MiB, as `xz -9`
    assert [*read_lines(path)] == ["a", "b"]
    for first in (b"", lzma.compress(b"a\n")):
        for code in (29, 37, 40):
            path.write_bytes(first + asking_for(code, b"b\n"))
            with little_memory(1 << 28), refuses(InputError, f"{path}: "):
                list(read_lines(path))


@pytest.mark.parametrize(
    "after", [b"", b"\0" * 8, b"\0" * 200_000, b"junk", lzma.compress(b"") + b"\0" * 4], ids=len
)
def test_an_xz_of_several_streams_is_one_text(tmp_path, after):
    path = tmp_path / "t.xz"
    lines = [f"{i * 7919 % 1009} line" for i in range(50_000)]
    halves = ["\n".join(lines[:30_000]), "\n".join(lines[30_000:])]
    path.write_bytes(
        lzma.compress(halves[0].encode() + b"\n") + b"\0" * 4 + lzma.compress(halves[1].encode()) + after
    )
    assert [*read_lines(path)] == lines


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress], ids=["xz", "gz"])
def test_a_damaged_second_stream_is_not_left_out(tmp_path, compress):
    path = tmp_path / f"t.{'xz' if compress is lzma.compress else 'gz'}"
    second = bytearray(compress(b"b\n" * 5000))
    for spoilt in (second[:-9], second[: len(second) // 2], second[:-20] + b"x" * 20):
        path.write_bytes(compress(b"a\n") + spoilt)
        with pytest.raises(InputError, match=str(path)):
            list(read_lines(path))


@pytest.mark.skipif(os.getuid() == 0, reason="root may read anything")
def test_a_file_without_permission_is_named(tmp_path):
    path = tmp_path / "secret"
    path.write_text("a\n")
    path.chmod(0)
    with pytest.raises(InputError, match=f"^{path}: "):
        list(read_lines(path))
