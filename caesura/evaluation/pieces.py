"""The text form of segments, one sentence per line: `in|␣g|ru|pp|en`."""

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


_TOKEN = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\[ntr\\|␣]|[^\\ ]", re.DOTALL)
_MEANINGS = {f"\\{letter}": character for character, letter in _LETTERS.items()} | {SPACE: " "}


def join_pieces(pieces: Sequence[str]) -> str:
    """Pieces on one line: `|` between them, `␣` for a space, a backslash before ambiguous characters."""
    if not all(pieces):
        raise InputError("an empty piece cannot be shown")
    return SEPARATOR.join(piece.translate(_ESCAPES) for piece in pieces)


def split_pieces(shown: str, place: str = "") -> list[str]:
    """The pieces that `join_pieces` shows in this way; `place` names the line where it is not such a one."""
    pieces, at = [""], 0
    while at < len(shown):
        token = _TOKEN.match(shown, at)
        if token is None:
            raise _malformed(place, at, _why(shown, at))
        if token[0] != SEPARATOR:
            pieces[-1] += _meaning(token[0])
        elif not pieces[-1]:
            raise _malformed(place, at, "an empty piece before |")
        else:
            pieces.append("")
        at = token.end()
    if shown and not pieces[-1]:
        raise _malformed(place, at - 1, "an empty piece after |")
    return pieces if shown else []


def _meaning(token: str) -> str:
    if token in _MEANINGS:
        return _MEANINGS[token]
    return chr(int(token[2:], 16)) if len(token) > 1 else token


def _why(shown: str, at: int) -> str:
    if shown[at] == " ":
        return f"a space; write {SPACE}"
    return f"{shown[at : at + 6]!r} is not an escape; a backslash is written twice"


def _malformed(place: str, at: int, reason: str) -> InputError:
    return InputError(f"{place}{': ' if place else ''}character {at + 1}: {reason}")
