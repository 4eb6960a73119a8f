"""Listening: a port, a link to it, and a quiet end after Ctrl-C."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from caesura.errors import InputError, Interrupted
from caesura.explorer.guard import LOOPBACK
from caesura.explorer.limits import Limits
from caesura.explorer.protocol import HEAD_BYTES, Protocol
from caesura.explorer.server import Explorer
from caesura.explorer.shelf import Shelf
from caesura.signals import restore_signals, take_signals
from caesura.visible import one_line

ENDING = 5  # seconds that requests have to end


@dataclass(frozen=True)
class Address:
    """Where to listen."""

    host: str
    port: int  # 0: any that is free

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def bind(self) -> socket.socket:
        """A socket that listens there."""
        try:
            addresses = socket.getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, kind, protocol, _, place = addresses[0]
            bound = socket.socket(family, kind, protocol)
        except OSError as problem:
            raise InputError(f"--host {self.host}: {problem.strerror}") from problem
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen(128)
        except OSError as problem:
            bound.close()
            remedy = "choose another --port, or leave it out for a free one"
            raise InputError(
                f"--host {self.host} --port {self.port}: {problem.strerror}; {remedy}"
            ) from problem
        return bound

    def names(self) -> tuple[str, ...]:
        """The names that requests may use for this server."""
        if self.local:
            return (*LOOPBACK, self.host)
        return (*LOOPBACK, self.host, socket.gethostname(), socket.getfqdn())

    def link(self, port: int, token: str | None) -> str:
        """What a person opens in a browser."""
        everywhere = self.host in ("0.0.0.0", "::", "")
        host = socket.gethostname() if everywhere else self.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{port}/" + (f"#token={token}" if token else "")


class _Server(uvicorn.Server):
    """Uvicorn's, with signals as the other commands have them: those that were ignored stay ignored."""

    ended_by: int | None = None
    explorer: Explorer

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = take_signals(self._end)
        try:
            yield
        finally:
            restore_signals(before)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # the second time, without waiting for anything
        self.should_exit, self.ended_by = True, number
        self.explorer.stop()


def serve(
    folders: Sequence[Path],
    address: Address,
    threads: int,
    settings: Sequence[str] = (),
    browse: bool = False,
) -> None:
    """Load the models, print a link, and answer until a signal comes; Ctrl-C is the usual end."""
    shelf = Shelf(folders, settings)
    bound = address.bind()
    token = None if address.local else secrets.token_urlsafe(24)
    explorer = Explorer(shelf, threads, Limits(), address.names(), token)
    server = _Server(uvicorn.Config(explorer.app, **server_settings()))
    server.explorer = explorer
    link = address.link(bound.getsockname()[1], token)
    if not address.local:
        warning = "other machines can reach this server; whoever has the link can use its models"
        print(one_line(f"caesura: --host {address.host}: {warning}"), file=sys.stderr)
    try:
        print(one_line(link), flush=True)
        print("Ctrl-C stops it", file=sys.stderr)
        if browse and not open_browser(link):
            print("caesura: --open: no browser could be opened; open the link yourself", file=sys.stderr)
        server.run(sockets=[bound])
    except KeyboardInterrupt:  # before the server took the signals
        pass
    finally:
        explorer.stop()
        explorer.join(ENDING)
        bound.close()
    if server.ended_by is not None and server.ended_by != signal.SIGINT:
        raise Interrupted(server.ended_by)


def open_browser(link: str) -> bool:
    """Open a link; without a screen, open nothing: a browser in the terminal would block it."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in screens):
        return False
    return webbrowser.open(link)


def server_settings() -> dict[str, Any]:
    """How uvicorn should serve: quietly, and within bounds."""
    return {
        "loop": "asyncio",
        "http": Protocol,
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "log_level": "critical",
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": ENDING,
    }
