"""The text form of segments, one sentence a line: `in|␣g|ru|pp|en`."""

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


def join_pieces(pieces: Sequence[str]) -> str:
    """Shows pieces on one line: `|` between them, `␣` for a space, what would be misread with a backslash."""
    if not all(pieces):
        raise InputError("an empty piece cannot be shown")
    return SEPARATOR.join(piece.translate(_ESCAPES) for piece in pieces)
