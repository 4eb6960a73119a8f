"""The explorer's page in a window, as a test sees it: what it shows, and when it has settled."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import uvicorn
from chromium import Browser
from playwright.sync_api import Locator, Page

from caesura.explorer.serve import server_settings
from caesura.explorer.server import Explorer

SENTENCE = "Sie möchte Ärztin werden."


@contextmanager
def listening(explorer: Explorer, port: int = 0) -> Iterator[str]:
    """The address at which an explorer's server answers, in a thread of its own."""
    with socket.create_server(("127.0.0.1", port)) as bound:
        server = uvicorn.Server(uvicorn.Config(explorer.app, **server_settings()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
        finally:
            server.force_exit = server.should_exit = True
            thread.join(20)


def link(text: str, *models: str, more: str = "") -> str:
    """The part of an address after #, with the first model's own fields last."""
    return f"#text={quote(text)}" + "".join(f"&model={quote(name)}" for name in models) + more


class Window:
    """The page in a window."""

    def __init__(self, browser: Browser, address: str, hash: str = "", **window: Any) -> None:
        self.browser, self.address = browser, address
        self.page: Page = browser.window(**window)
        self.page.goto(address + hash)
        self.settle()

    def settle(self) -> None:
        """Wait until every panel has shown the translation of what is on the page now."""
        self.page.wait_for_selector("body.ready")
        self.page.wait_for_function("() => !document.querySelector('.panel:not([aria-busy=false])')")

    def strip(self, place: int = 0) -> Locator:
        """A line whose strip shows the flips of what is on the page now."""
        self.settle()
        line = self.panel(place).locator(".line.strip:not(.stale)")
        line.wait_for()
        return line

    def panel(self, place: int = 0) -> Locator:
        """A model's part of the page."""
        return self.page.locator(".panel").nth(place)

    def cuts(self, place: int = 0) -> list[int]:
        """Where a line is cut."""
        return [int(cell) for cell in self._offsets(place, ".cell.cut")]

    def held(self, place: int = 0) -> list[int]:
        """The gaps of a line that are held."""
        return [int(cell) for cell in self._offsets(place, ".cell.held")]

    def _offsets(self, place: int, cells: str) -> list[str]:
        return (
            self.panel(place).locator(cells).evaluate_all("cells => cells.map(cell => cell.dataset.offset)")
        )

    def gap(self, offset: int, place: int = 0) -> Locator:
        """The target of a gap."""
        return self.panel(place).locator(f".cell[data-offset='{offset}'] .gap")

    def box(self, offset: int, place: int = 0) -> Locator:
        """The checkbox of a gap."""
        return self.gap(offset, place).locator("input")

    def toggle(self, offset: int, place: int = 0) -> None:
        """Click a gap, and wait for what that does."""
        self.gap(offset, place).click()
        self.settle()

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def click(self, name: str) -> None:
        """Click the button of this name."""
        self.page.get_by_role("button", name=name, exact=True).first.click()
        self.settle()

    def type(self, text: str) -> None:
        """Put a text into the sentence's field."""
        self.page.locator("#text").fill(text)
        self.settle()

    def translation(self, place: int = 0, kind: str = "now") -> str:
        """A translation that a panel shows."""
        return self.panel(place).locator(f".translation.{kind} .text").inner_text()

    def clean(self) -> bool:
        """Whether the page complained of nothing and asked no other machine."""
        assert self.browser.messages == []
        away = [u for u in self.browser.requests if not u.startswith((self.address, "data:", "blob:"))]
        assert away == []
        return True
