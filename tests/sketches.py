"""Empty pictures in the place of figures, whose layout and rendering take most of the time of a report."""

from io import TextIOBase
from typing import IO, Any

SKETCHES = {"png": b"\x89PNG\r\n\x1a\n", "svg": b'<svg width="9pt"></svg>\n'}


def sketch(figure: Any, file: IO[Any], *, format: str, **_: Any) -> None:
    """In the place of the method `savefig` of a figure."""
    file.write(SKETCHES[format].decode() if isinstance(file, TextIOBase) else SKETCHES[format])
