"""Text as bytes of UTF-8, and any bytes as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))  # their names in vocabularies
REPLACEMENT = "\ufffd"

# A character, or bytes that may begin one; any other byte is a unit by itself.
_UNIT = re.compile(
    rb"[\x00-\x7f]+"
    rb"|[\xc2-\xdf][\x80-\xbf]"
    rb"|(?:\xe0[\xa0-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]|\xed[\x80-\x9f])[\x80-\xbf]?"
    rb"|(?:\xf0[\x90-\xbf]|[\xf1-\xf3][\x80-\xbf]|\xf4[\x80-\x8f])[\x80-\xbf]{0,2}"
    rb"|[\x80-\xff]"
)


def to_bytes(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which no file can hold, becomes three bytes."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(content: bytes) -> str:
    """The text of bytes; bytes that are not UTF-8, or that no line can hold, become U+FFFD."""
    text = content.decode("utf-8", "replace")
    return text.replace("\n", REPLACEMENT).replace("\0", REPLACEMENT)


def sizes(content: bytes) -> Iterator[int]:
    """How many bytes each character of `from_bytes` stands for."""
    for match in _UNIT.finditer(content):
        unit = match.group()
        if unit[0] < 0x80:
            yield from (1 for _ in unit)
        else:
            yield len(unit)
