"""The text form of segments, one sentence a line: `in|␣g|ru|pp|en`."""

import re
from collections.abc import Sequence

from caesura.errors import InputError

SEPARATOR = "|"
SPACE = "␣"

_LETTERS = {"\n": "n", "\t": "t", "\r": "r", "\\": "\\", SEPARATOR: SEPARATOR, SPACE: SPACE}
# Control characters and line separators would break the line, lone surrogates the file's encoding.
_BY_NUMBER = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000)]
_ESCAPES = {
    **{code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _BY_NUMBER},
    **{ord(character): "\\" + letter for character, letter in _LETTERS.items()},
    ord(" "): SPACE,
}
_MEANINGS = {letter: character for character, letter in _LETTERS.items()}
_TOKEN = re.compile(
    r"\\x(?P<x>[0-9a-fA-F]{2})|\\u(?P<u>[0-9a-fA-F]{4})|\\(?P<letter>.?)|(?P<plain>[^\\])", re.S
)


def join_pieces(pieces: Sequence[str]) -> str:
    """Shows pieces on one line: `|` between them, `␣` for a space, what would be misread with a backslash."""
    if not all(pieces):
        raise InputError("an empty piece cannot be shown")
    return SEPARATOR.join(piece.translate(_ESCAPES) for piece in pieces)


def split_pieces(shown: str) -> list[str]:
    """Reads what `join_pieces` wrote; a plain space, as a person may type it, is a space too."""
    if not shown:
        return []
    pieces = [""]
    for token in _TOKEN.finditer(shown):
        if token["plain"] == SEPARATOR:
            pieces.append("")
        else:
            pieces[-1] += _character(token)
    if not all(pieces):
        raise InputError(
            f"empty piece in {shown!r}: two {SEPARATOR!r} in a row, or one at an end of the line"
        )
    return pieces


def _character(token: re.Match[str]) -> str:
    if token["plain"]:
        return " " if token["plain"] == SPACE else token["plain"]
    if number := token["x"] or token["u"]:
        return chr(int(number, 16))
    if token["letter"] not in _MEANINGS:
        raise InputError(
            f"column {token.start() + 1}: unknown escape {token[0]!r}; a backslash itself is written '\\\\'"
        )
    return _MEANINGS[token["letter"]]
