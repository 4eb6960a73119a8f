"""uvicorn's connections, but with a limit on the wait for a request, and with refusals in JSON."""

from __future__ import annotations

import asyncio

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from caesura.explorer.guard import HEADERS
from caesura.explorer.refused import Refused
from caesura.explorer.server import error_response

CONNECTIONS = 512
HEAD_BYTES = 16 << 10  # of a request, before its body
HEAD_SECONDS = 30.0  # for these bytes to arrive


class Protocol(H11Protocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept it; if too many are open, its request will be refused."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            self.app = _refusal(503, "too many connections are open; try again in a moment")
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read a piece of a request, or of several."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer was sent; the next request may come."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client, or the server, has closed it."""
        super().connection_lost(exc)
        self._forget()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for a head that it cannot read."""
        limit = f"{HEAD_BYTES >> 10} KiB"
        self._refuse(400, f"this is not a request in HTTP, or its headers are longer than {limit}")

    def _watch(self) -> None:
        """Begin the wait for the head of a request, or end it."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(408, "the headers of the request took too long to arrive")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close; only close if another answer is being sent."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            refusal = _refusal(status, message)
            for event in (
                h11.Response(status_code=status, headers=refusal.raw_headers),
                h11.Data(data=bytes(refusal.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _refusal(status: int, message: str) -> Response:
    """An answer that refuses a request and closes its connection."""
    response = error_response(Refused(status, message))
    response.headers.update({**HEADERS, "connection": "close"})
    return response
