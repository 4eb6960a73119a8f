"""How much the explorer's server takes on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the machine; a request beyond them is refused at once."""

    characters: int = 500  # of a text
    texts: int = 32  # of one request
    flips: int = 120  # gaps of a sentence, unless the request sets long
    body: int = 64 << 10  # bytes of a request
    reading: float = 10.0  # seconds that a body may take to arrive
    per_second: float = 100.0  # requests from one address; the page's files are not counted
    burst: int = 200  # how many of these may come at once
    waiting: int = 100  # quick requests that wait for a thread
    waiting_long: int = 8  # the same of long ones
    seconds: float = 30.0  # that a quick request may take, waiting included
    seconds_long: float = 120.0
