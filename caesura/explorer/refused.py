"""A request that gets no answer: a status, one sentence, and the key that it is about."""

from __future__ import annotations

from caesura.visible import one_line


class Refused(Exception):
    """What the client did wrong, or why the server cannot answer now; the sentence is safe to print."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(one_line(message))
        self.status, self.field = status, field
