"""A real browser: a Chromium that this machine has, driven by Playwright, which downloads none."""

import io
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 30_000  # milliseconds that anything may take


def find_browser() -> str | None:
    """Where a browser of Chromium's kind is installed; $CAESURA_BROWSER first."""
    named = os.environ.get("CAESURA_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def needed_browser() -> str:
    """The browser; without one the test is skipped loudly, or fails where $CAESURA_NEEDS_BROWSER is set."""
    if program := find_browser():
        return program
    message = f"NO BROWSER: the page was not opened; install one of {', '.join(NAMES)}"
    if os.environ.get("CAESURA_NEEDS_BROWSER"):
        pytest.fail(message)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn(message, stacklevel=1)
    pytest.skip(message)


class Browser:
    """A headless browser with one window at a time; what its page said and asked for is kept."""

    page: Page

    def __init__(self, program: str) -> None:
        self._playwright = sync_playwright().start()
        try:
            launch = self._playwright.chromium.launch
            self._chromium = launch(executable_path=program, args=[*FLAGS], chromium_sandbox=False)
        except BaseException:
            self._playwright.stop()
            raise
        self.messages: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._chromium.close()
        self._playwright.stop()

    def window(
        self, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False, **settings: Any
    ) -> Page:
        """A new window with nothing in it and no memory; the one before it is closed."""
        for context in self._chromium.contexts:
            for page in context.pages:
                page.unroute_all(behavior="ignoreErrors")  # a test's route may be in the middle of an answer
            context.close()
        self.messages.clear()
        self.requests.clear()
        context = self._chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            is_mobile=phone,
            has_touch=phone,
            **{"device_scale_factor": 2 if phone else 1} | settings,
        )
        context.set_default_timeout(PATIENCE)
        self.page = context.new_page()
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda problem: self.messages.append(str(problem)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        return self.page

    def open(
        self, path: Path, width: int = 1280, dark: bool = False, phone: bool = False, anchor: str = ""
    ) -> None:
        """Open a file in a new window, at an anchor where one is named, and wait until it is loaded."""
        page = self.window(width, dark=dark, phone=phone)
        page.goto(path.resolve().as_uri() + (anchor and f"#{anchor}"))

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(expression)

    def unfold(self, what: str = "details") -> None:
        """Open folds."""
        self.ask(f"document.querySelectorAll('{what}').forEach(fold => {{ fold.open = true; }})")


def side_by_side(shots: Sequence[bytes], shrinks: float, margin: int = 16) -> Image.Image:
    """Screenshots at twice the size of the page, shrunk and next to each other."""
    pictures = []
    for png in shots:
        shot = Image.open(io.BytesIO(png)).convert("RGB")
        width, height = (round(side * shrinks / 2) for side in shot.size)
        pictures.append(shot.resize((width, height), Image.Resampling.LANCZOS))
    width = sum(picture.width for picture in pictures) + margin * (len(pictures) + 1)
    sheet = Image.new("RGB", (width, pictures[0].height + 2 * margin), "#e8eaee")
    left = margin
    for picture in pictures:
        sheet.paste(picture, (left, margin))
        left += picture.width + margin
    return sheet
