"""Packed text, .xz, .zst and .gz, as a stream of bytes that is unpacked in bounded memory."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, cast

from caesura.errors import InputError, missing_extra

PACKED = (".xz", ".zst", ".gz")
XZ_MEMORY = 80 << 20  # bytes: files by `xz -9` take 65 MiB, the next larger dictionary takes 97
ZST_WINDOW = 27  # bits, so 128 MiB: the default limit of `zstd -d`
ZST_LIBRARY = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_AT_ONCE = 1 << 14  # bytes of the file: no more, so that `position` is close to what was unpacked


class DamagedStreamError(Exception):
    """A packed file cannot be unpacked."""


DAMAGED = (DamagedStreamError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def open_packed(path: str | Path) -> IO[bytes] | None:
    """The content of a packed file; None if its name has no suffix of one."""
    suffix = suffix_of(path)
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if suffix == ".xz":
        return io.BufferedReader(_Unpacked(path, _XZ), _AT_ONCE)
    return io.BufferedReader(_Unpacked(path, _zst(path)), _AT_ONCE) if suffix == ".zst" else None


def position(stream: IO[bytes]) -> int:
    """How many bytes of its file a stream of text has read."""
    raw = getattr(stream, "raw", None)
    return raw.position if isinstance(raw, _Unpacked) else getattr(stream, "fileobj", stream).tell()


def suffix_of(path: str | Path) -> str:
    """The suffix that says how a file is packed, or ""."""
    return next((suffix for suffix in PACKED if str(path).endswith(suffix)), "")


def without_suffix(path: str | Path) -> str:
    """The name of a file without the suffix that says how it is packed."""
    return str(path).removesuffix(suffix_of(path))


class _Decompressor(Protocol):
    """A decompressor of Python's, for xz and, from Python 3.14 on, for zst."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


@dataclass(frozen=True)
class _Form:
    """How a kind of packed file is read."""

    decompressor: Callable[[], _Decompressor]
    error: type[Exception]
    begins: bytes  # how a stream begins; other bytes after a stream are left out
    large: str  # in the library's message about a file that asks for too much memory
    most: str  # of memory


_XZ = _Form(
    lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY),
    lzma.LZMAError,
    b"\xfd7zXZ\0",
    "limit",
    f"{XZ_MEMORY >> 20} MiB of memory to be unpacked, more than what `xz -9` writes",
)


def _zst(path: str | Path) -> _Form:
    try:
        library = import_module(ZST_LIBRARY)
    except ImportError:
        raise missing_extra(str(path), "zst") from None
    options = {library.DecompressionParameter.window_log_max: ZST_WINDOW}
    return _Form(
        lambda: library.ZstdDecompressor(options=options),
        library.ZstdError,
        b"",
        "too much memory",
        f"{1 << ZST_WINDOW >> 20} MiB of memory to be unpacked, more than `zstd -d` takes by itself",
    )


class _Unpacked(io.RawIOBase):
    """The content of a file; with `lzma.open`, its header might ask for 4 GiB."""

    def __init__(self, path: str | Path, form: _Form) -> None:
        self._path, self._form, self._file = path, form, open(path, "rb")  # noqa: SIM115
        self._stream, self._ended = form.decompressor(), False

    def readable(self) -> bool:
        return True

    @property
    def position(self) -> int:
        """How many bytes of the file were read."""
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._ended:
            packed = b""
            if self._stream.eof:
                packed = self._next_stream()
                self._stream = self._form.decompressor()
                self._ended = not packed
            elif self._stream.needs_input and not (packed := self._file.read(_AT_ONCE)):
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            unpacked = b"" if self._ended else self._decompress(packed, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        return 0

    def _next_stream(self) -> bytes:
        """The rest from the next stream on, without NULs before it; empty if no stream follows."""
        rest = self._stream.unused_data or self._file.read(_AT_ONCE)
        while rest and not rest.lstrip(b"\0"):
            rest = self._file.read(_AT_ONCE)
        packed = rest.lstrip(b"\0")
        if len(packed) < len(self._form.begins):
            packed += self._file.read(_AT_ONCE)
        return packed if packed.startswith(self._form.begins) else b""

    def _decompress(self, packed: bytes, size: int) -> bytes:
        try:
            return self._stream.decompress(packed, size)
        except self._form.error as error:
            if self._form.large in str(error):
                remedy = "unpack it yourself, or pack it anew"
                raise InputError(f"{self._path}: asks for over {self._form.most}; {remedy}") from None
            raise DamagedStreamError(str(error)) from None
