"""Compressed bytes as text inside a record, and back again, whoever wrote it."""

from __future__ import annotations

import base64
import lzma
import zlib
from typing import Protocol

MAX_BYTES = 1 << 26  # of what is unpacked


class Unpacker(Protocol):
    """Such as zlib's or lzma's."""

    @property
    def eof(self) -> bool:
        """Whether it has seen the end."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many bytes."""


def packed(compressed: bytes) -> str:
    """Compressed bytes as text."""
    return base64.b64encode(compressed).decode()


def unpacked(text: object, unpacker: Unpacker, what: str) -> bytes:
    """The bytes that were compressed; for anything else a ValueError that names `what` they should be."""
    try:
        if not isinstance(text, str):
            raise TypeError(f"text expected, not {type(text).__name__}")
        content = unpacker.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
    except (ValueError, TypeError, EOFError, zlib.error, lzma.LZMAError) as problem:
        raise ValueError(f"not packed {what}: {problem}") from problem
    if not unpacker.eof:
        raise ValueError(f"not packed {what}: too long or cut off")
    return content
