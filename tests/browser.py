"""A real browser, without a driver: Chromium's own protocol through a pipe."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
PATIENCE = 60  # seconds that an answer may take


# Puts the two ends where the browser looks for them; one of them may be 3 or 4 already.
_MOVE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place, inheritable=True)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Where a browser of Chromium's kind is installed; $CAESURA_BROWSER first."""
    named = os.environ.get("CAESURA_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def needed_browser() -> str:
    """The browser; without one the test is skipped loudly, or fails where $CAESURA_NEEDS_BROWSER is set."""
    if program := find_browser():
        return program
    message = f"NO BROWSER: the report was not opened; install one of {', '.join(NAMES)}"
    if os.environ.get("CAESURA_NEEDS_BROWSER"):
        pytest.fail(message)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn(message, stacklevel=1)
    pytest.skip(message)


# Boxes whose contents are wider than they are, by what a reader sees of it.
_CLIPPED = """(() => {
  const cue = e => getComputedStyle(e).backgroundAttachment.includes('local')
    && (!e.closest('figure') || e.closest('figure').querySelector('.more')?.offsetWidth > 20);
  const named = e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40);
  const all = [...document.querySelectorAll('body *')].filter(e => e.checkVisibility());
  const inside = e => e.parentElement.closest('.scroll, .cut, svg');
  return all.filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== 'visible'
      && !e.matches('.more') && !cue(e))
    .concat(all.filter(e => !inside(e) && e.getBoundingClientRect().right > innerWidth + 1)).map(named);
})()"""
# Figures that fit and still say that they scroll.
_CRIES = """[...document.querySelectorAll('figure')].filter(f => { const s = f.querySelector('.scroll');
  return f.checkVisibility() && s.scrollWidth <= s.clientWidth
    && f.querySelector('.more').offsetWidth > 0; }).map(f => f.id)"""
_TORN = """[...document.querySelectorAll('.cut b, .chip')].filter(e =>
  new Set([...e.getClientRects()].map(r => Math.round(r.top))).size > 1).map(e => e.textContent)"""
_TINY = """[...document.querySelectorAll('svg text')].filter(t => t.textContent.trim()
  && t.checkVisibility()
  && (m => parseFloat(getComputedStyle(t).fontSize) * Math.hypot(m.a, m.b) < 9)(t.getScreenCTM()))
  .map(t => t.textContent)"""


def check_layout(browser: "Browser") -> None:
    """Everything that can be seen is whole, or scrolls and says so; no segment is on two lines."""
    for problem in (_TORN, _CLIPPED, _CRIES, _TINY):
        elements = browser.ask(problem)
        assert elements == [], elements
    # Wide tables and figures scroll inside themselves: the page does not.
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def check_page(browser: "Browser", report: Path) -> None:
    """The open page fetched and complained of nothing; its figures are there, its sections linked."""
    check_layout(browser)
    browser.unfold()
    check_layout(browser)
    assert browser.named("Log.entryAdded") == []
    assert browser.named("Runtime.consoleAPICalled") == []
    assert browser.named("Runtime.exceptionThrown") == []
    requests = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("data:")] == [report.resolve().as_uri()]
    drawn = sorted(path.stem for path in (report.parent / "figures").glob("*.png"))
    shown = browser.ask(
        "[...document.querySelectorAll('figure')]"
        ".filter(f => f.checkVisibility() && f.querySelector('svg').getBoundingClientRect().height > 20)"
        ".map(f => f.id).sort()"
    )
    assert shown == drawn
    assert browser.ask("[...document.querySelectorAll('section > details > div')].map(s => s.id)") == (
        browser.ask("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    )


class Browser:
    """A page of a headless browser; everything that it said and asked for is kept."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # It reads commands from descriptor 3 and answers on 4.
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--hide-scrollbars", f"--user-data-dir={self._folder.name}"]
        flags += ["--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MOVE, str(theirs_in), str(theirs_out), program, *flags],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        try:
            self._attach()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._to)
        os.close(self._from)
        with suppress(OSError):
            self._folder.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask for something and wait for the answer; events meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(
        self, path: Path, width: int = 1280, dark: bool = False, phone: bool = False, anchor: str = ""
    ) -> None:
        """Open a file, at an anchor where one is named, and wait until it is loaded."""
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=800, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url="about:blank")  # a new anchor alone loads nothing
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())
        self.events.clear()
        self.send("Page.navigate", url=path.resolve().as_uri() + (anchor and f"#{anchor}"))
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def unfold(self, what: str = "details") -> None:
        """Open folds."""
        self.ask(f"document.querySelectorAll('{what}').forEach(fold => {{ fold.open = true; }})")

    def named(self, method: str) -> list[dict[str, Any]]:
        """What the page said or did of a kind since it was opened."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], PATIENCE)[0]:
                raise TimeoutError(f"the browser said nothing for {PATIENCE} seconds")
            chunk = os.read(self._from, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)
