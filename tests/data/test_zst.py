"""Text packed as .zst, with and without the package that reads it."""

import sys
from pathlib import Path

import pytest
from folders.test_strangers import little_memory
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.data.corpus import ParallelText
from caesura.data.files import digest, packed_instead, read_lines, stored
from caesura.data.unpacking import ZST_LIBRARY
from caesura.errors import InputError

SKIPPED = b"\x5a\x2a\x4d\x18\x05\0\0\0notes"  # a frame that is not text


@pytest.fixture(scope="module", name="zstd")
def _zstd():
    return pytest.importorskip(
        ZST_LIBRARY, reason=f"{ZST_LIBRARY} is not installed: .venv/bin/pip install -e '.[zst]'"
    )


def test_without_the_package_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, ZST_LIBRARY, None)
    (tmp_path / "t.zst").write_bytes(b"")
    with refuses(InputError, f"{tmp_path / 't.zst'} ", "'.[zst]'"):
        list(read_lines(tmp_path / "t"))


@given(lines=st.lists(st.text("aü𠮷 ")), cut=st.integers(0, 10))
def test_text_comes_back_from_any_number_of_frames(
    zstd, tmp_path_factory, lines: list[str], cut: int
) -> None:
    path = tmp_path_factory.mktemp("zst") / "t"
    content = "".join(f"{line}\n" for line in lines).encode()
    packed = zstd.compress(content[:cut]) + SKIPPED + zstd.compress(content[cut:])
    Path(f"{path}.zst").write_bytes(packed)
    assert list(read_lines(path)) == lines
    assert stored(path) == Path(f"{path}.zst")
    assert packed_instead(path)
    assert digest(path) == digest(f"{path}.zst")


@given(data=st.data())
def test_a_cut_off_or_damaged_file_is_named(zstd, tmp_path_factory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("zst") / "t.zst"
    lines = [f"{i * 7919 % 1009} line" for i in range(500)]
    options = {zstd.CompressionParameter.checksum_flag: 1}
    frames = [zstd.compress("\n".join(part).encode(), options=options) for part in (lines[:300], lines[300:])]
    frame = bytearray(frames[data.draw(st.integers(0, 1))])
    at = data.draw(st.integers(0, len(frame) - 1))
    damaged = (
        frame[:at] if data.draw(st.booleans()) else frame[:at] + bytes([frame[at] ^ 255]) + frame[at + 1 :]
    )
    for before in (b"", frames[0]) if damaged else (b"",):  # nothing after a frame is whole
        path.write_bytes(before + damaged)
        with pytest.raises(InputError, match=f"^{path}: "):
            list(read_lines(path))


def test_what_is_not_a_zst_is_named(tmp_path: Path, zstd) -> None:
    path = tmp_path / "t.zst"
    for content in (b"", b"plain text\n", zstd.compress(b"x")[:3], zstd.compress(b"a\n") + b"\0\0junk"):
        path.write_bytes(content)
        with refuses(InputError, f"{path}: damaged"):
            list(read_lines(path))
    path.write_bytes(zstd.compress(b"a\n") + b"\0\0")
    assert list(read_lines(path)) == ["a"]


def test_a_zst_that_asks_for_much_memory_is_refused_and_a_bomb_takes_little(tmp_path: Path, zstd) -> None:
    path, window = tmp_path / "t.zst", zstd.CompressionParameter.window_log
    packer = zstd.ZstdCompressor(options={window: 28})
    path.write_bytes(
        packer.compress(b"a\n") + packer.flush()
    )  # of unknown size, so the whole window is asked for
    with refuses(InputError, f"{path}: "):
        list(read_lines(path))
    path.write_bytes(zstd.compress(b"a\n" + b"x" * 50_000_000 + b"\nb\n"))
    with little_memory(1 << 25):
        assert list(read_lines(path)) == ["a", None, "b"]


def test_tables_may_be_packed(tmp_path: Path, zstd) -> None:
    (tmp_path / "t.tsv.zst").write_bytes(zstd.compress(b"ein tier\tan animal\n"))
    assert list(ParallelText(tmp_path / "t.tsv")) == [("ein tier", "an animal", None)]
    (tmp_path / "t.de.zst").write_bytes(zstd.compress(b"ein tier\n"))
    (tmp_path / "t.en").write_text("an animal\n")
    (tmp_path / "t.de.bounds").write_text("4\n")
    assert list(ParallelText(tmp_path / "t.de", tmp_path / "t.en")) == [("ein tier", "an animal", [4])]
    assert list(ParallelText(tmp_path / "t.de.zst", tmp_path / "t.en")) == [("ein tier", "an animal", [4])]
