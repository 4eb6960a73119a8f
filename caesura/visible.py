"""Text that a stranger wrote, made safe to print: only visible characters reach a terminal.

Controls, line separators, lone surrogates, and characters that are invisible or reorder a line, are escaped.
Text of any script stays readable, so these stay: combining marks and variation selectors, signs that Unicode
calls format characters but that can be seen (Arabic, Syriac, Kaithi), and, after a character beyond Latin,
joiners, the zero-width space and direction marks, which scripts and emoji need there.
"""

from __future__ import annotations

import re

LINE = 2000  # characters of a line of a message
VALUE = 60  # characters of a value inside a line
HALVES = re.compile("[\ud800-\udfff]")  # of a character: lone surrogates, which text cannot hold

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u180e\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    "|(?<![^\x00-\u036f])[\u061c\u200b-\u200f]"
)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def escaped(text: str) -> str:
    r"""The text with invisible characters escaped: \x1b, \n, \u202e."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub(_escape, text)


def one_line(text: object) -> str:
    """One line of at most LINE characters: escaped; a longer one loses its middle."""
    whole = str(text)
    shown = escaped(whole if len(whole) <= LINE else whole[:LINE] + whole[-LINE:])
    if len(shown) <= LINE:
        return shown
    mark = f" ... ({len(whole):,} characters) ... "
    room = LINE - len(mark)
    return shown[: room - room // 3] + mark + shown[-(room // 3) :]


def each_line(text: str) -> str:
    """`one_line` for each line of a text whose line breaks are ours, such as a table."""
    return "\n".join(map(one_line, text.split("\n")))


def shortened(text: str, limit: int = VALUE) -> str:
    """The beginning of a value, for use within a line: escaped, and cut to `limit` characters."""
    shown = escaped(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def quoted(text: str, limit: int = VALUE) -> str:
    """The same in quotes, which count."""
    return f"'{shortened(text, limit - 2)}'"
