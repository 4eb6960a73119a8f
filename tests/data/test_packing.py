"""Bytes inside a record: back as they were, and in bounded memory whoever wrote them."""

import lzma
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.data import packing
from caesura.data.packing import packed, unpacked


@given(st.binary(max_size=99))
def test_bytes_come_back_as_they_were(content: bytes) -> None:
    assert unpacked(packed(zlib.compress(content)), zlib.decompressobj(), "bytes") == content
    assert unpacked(packed(lzma.compress(content)), lzma.LZMADecompressor(), "bytes") == content


@pytest.mark.parametrize(
    "broken", [3, None, "x", "\u00fc", "eJw=", packed(b"other"), packed(zlib.compress(b"a")[:-5])]
)
def test_anything_else_is_refused_by_name(broken: object) -> None:
    for unpacker in (zlib.decompressobj(), lzma.LZMADecompressor()):
        with pytest.raises(ValueError, match="not packed bytes: "):
            unpacked(broken, unpacker, "bytes")


def test_what_would_fill_the_memory_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_BYTES", 1000)
    assert len(unpacked(packed(zlib.compress(bytes(999))), zlib.decompressobj(), "bytes")) == 999
    for compress, unpacker in (
        (zlib.compress, zlib.decompressobj()),
        (lzma.compress, lzma.LZMADecompressor()),
    ):
        with pytest.raises(ValueError, match="too long"):
            unpacked(packed(compress(bytes(5000))), unpacker, "bytes")
