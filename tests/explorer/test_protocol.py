"""Connections as bytes: what is refused before there is a request, and how."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from explorer.asking import serving
from explorer.pages import listening
from wording import wording

from caesura.explorer import protocol
from caesura.explorer.protocol import HEAD_BYTES

HEAD = b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n"
WAIT = 20.0  # seconds that a test waits for the server, at most


@pytest.fixture(scope="module")
def port(folders: dict[str, Any]) -> Iterator[int]:
    """Where a server of one small model listens."""
    with serving(folders["cif"]) as explorer, listening(explorer) as address:
        yield int(address.rstrip("/").rpartition(":")[2])


@contextmanager
def connected(port: int, *sent: bytes) -> Iterator[socket.socket]:
    """A connection over which something was sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
        for part in sent:
            connection.sendall(part)
        yield connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def refused(answer: bytes) -> int:
    """The status of a refusal, which is a sentence and has the headers of every answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(body))
    assert headers["connection"] == "close"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    wording(json.loads(body)["error"]["message"])
    return int(status.split()[1])


NO_HOST, TOO_LONG = b"GET / HTTP/1.1\r\n\r\n", HEAD + b"X: " + b"a" * HEAD_BYTES


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", NO_HOST, TOO_LONG])
def test_what_is_not_http_is_refused_in_json(port: int, sent: bytes) -> None:
    with connected(port, sent) as connection:
        assert refused(received(connection)) == 400


def test_a_head_that_never_ends_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    with connected(port, HEAD) as connection:
        assert refused(received(connection)) == 408
    with connected(port) as connection:  # as browsers open them to be quick later
        assert received(connection) == b""
    with connected(port, HEAD + b"\r\n" + HEAD[:9]) as connection:  # the second request stays a piece
        answers = received(connection)
        assert answers.startswith(b"HTTP/1.1 200")
        assert answers.count(b"HTTP/1.1 ") <= 2


def test_more_connections_than_there_is_room_for_are_refused(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "CONNECTIONS", 1)
    with connected(port, HEAD, b"\r\n") as first:
        assert first.recv(12) == b"HTTP/1.1 200"
        with connected(port, HEAD, b"\r\n") as second:
            assert refused(received(second)) == 503
    monkeypatch.undo()
    with connected(port, HEAD, b"\r\n") as third:
        assert third.recv(12) == b"HTTP/1.1 200"
