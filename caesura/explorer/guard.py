"""What stands in front of the server: who may ask, from where, how often, and which headers answers get.

A page of another site can make a browser send requests to this machine, even under a name of its own that
leads here (DNS rebinding). So the host that a request names must be this one, and its origin this page.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from caesura.explorer.limits import Limits
from caesura.explorer.refused import Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ADDRESSES = 1000  # whose rates are remembered
FILES = ("/", "/docs")  # of the page, beside those in /static/
OPEN = "/openapi.json"  # with them, all that needs no token

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """Lets through what may pass, and puts the headers on every answer."""

    def __init__(
        self,
        app: App,
        refuse: Callable[[Refused], App],
        hosts: Collection[str],
        token: str | None,
        limits: Limits,
    ) -> None:
        """`hosts` are names that requests may use; with a `token`, addresses as well."""
        self._app, self._refuse = app, refuse
        self._hosts, self._token = {host.lower() for host in hosts}, token
        self._rates = Rates(limits.per_second, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
            app = self._app
        except Refused as problem:
            app = self._refuse(problem)
        await app(scope, receive, _with_headers(send))

    def _check(self, scope: Scope) -> None:
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            if key in headers and key in ("host", "origin", "authorization", "content-type"):
                raise Refused(400, f"the header {key} is given twice")
            headers[key] = value.decode("latin-1")
        host = headers.get("host", "")
        if not self._known(host):
            raise Refused(403, "this server does not answer to the name in the request (header Host)")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise Refused(403, "requests from other sites are not answered (header Origin)")
        reads = scope["method"] in ("GET", "HEAD")
        is_file = reads and (scope["path"] in FILES or scope["path"].startswith("/static/"))
        is_page = is_file or (reads and scope["path"] == OPEN)
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_page:
            raise Refused(403, "requests from other sites are not answered (header Sec-Fetch-Site)")
        if self._token is not None and not is_page:
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                raise Refused(401, "this server needs the token from the link that it printed")
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise Refused(415, "the body should be JSON, with the header Content-Type: application/json")
        if not is_file:
            self._rates.take((scope.get("client") or ("",))[0])

    def _known(self, host: str) -> bool:
        name = hostname(host)
        return name is not None and (name in self._hosts or (self._token is not None and _is_address(name)))


class Rates:
    """How many requests each address may make: a bucket that fills with time."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when

    def take(self, address: str) -> None:
        """Count a request; Refused where there have been too many."""
        now = time.monotonic()
        left, before = self._left.pop(address, (float(self._burst), now))
        left = min(float(self._burst), left + (now - before) * self._per_second)
        self._left[address] = (max(0.0, left - 1), now)
        if len(self._left) > ADDRESSES:
            self._left.popitem(last=False)
        if left < 1:
            raise Refused(429, f"more than {self._per_second:g} requests per second; slow down")


def hostname(host: str) -> str | None:
    """The name in a Host header, without its port; None where it is malformed."""
    name, port = host.lower(), ""
    if name.startswith("["):
        name, bracket, port = name[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    elif ":" in name:
        name, _, port = name.partition(":")
    if (port and not (port.isascii() and port.isdigit())) or not name:
        return None
    return name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            names = {name for name, _ in message.get("headers", [])}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in names]
            message["headers"] = [*message.get("headers", []), *more]
        await send(message)

    return sending
