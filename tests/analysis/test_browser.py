"""The report in a real browser: nothing fetched, nothing complained of, everything there, on any screen."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from analysis.test_report import LINES, SMALL, subject
from browser import NAMES, Browser, find_browser
from helpers import ACT, LOOKUP

from caesura.analysis.report import Report
from caesura.analysis.study import analyse

SCREENS = {
    "light": {"width": 1200},
    "dark": {"width": 1200, "dark": True},
    "phone": {"width": 390, "phone": True},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        said = f"NO BROWSER: the report was not opened; install one of {', '.join(NAMES)}"
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.warn(said, stacklevel=1)
        pytest.skip(said)
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    found = [analyse(subject(s, n), LINES, "text", None, SMALL) for s, n in ((LOOKUP, "char"), (ACT, "act"))]
    return Report(found).write(out)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_report_opens(browser: Browser, report: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    assert browser.named("Log.entryAdded") == []
    assert browser.named("Runtime.consoleAPICalled") == []
    assert browser.named("Runtime.exceptionThrown") == []
    requests = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("data:")] == [report.resolve().as_uri()]

    # Every figure is there and has a size; every section is linked, and every link leads somewhere.
    drawn = sorted(path.stem for path in (report.parent / "figures").glob("*.png"))
    shown = browser.ask(
        "[...document.querySelectorAll('figure')]"
        ".filter(f => f.querySelector('svg').getBoundingClientRect().height > 20).map(f => f.id).sort()"
    )
    assert shown == drawn
    assert browser.ask("[...document.querySelectorAll('section')].map(s => s.id)") == browser.ask(
        "[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))"
    )
    # Wide tables and figures scroll inside themselves: the page does not.
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def contrast(browser: Browser, element: str) -> float:
    """Between the colour of an element's text and the page behind it, as WCAG has it."""
    return browser.ask(
        "(() => { const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255);"
        "const curve = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;"
        "const light = c => { const [r, g, b] = rgb(c).map(curve);"
        "return .2126 * r + .7152 * g + .0722 * b; };"
        f"const e = document.querySelector('{element}'), s = getComputedStyle(e);"
        "const text = light(e instanceof SVGElement ? s.fill : s.color);"
        "const back = light(getComputedStyle(document.body).backgroundColor);"
        "return (Math.max(text, back) + .05) / (Math.min(text, back) + .05); })()"
    )


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_text_and_figures_can_be_read(browser: Browser, report: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    back = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (screen == "light")
    for element in ("p", "figcaption", "#lengths svg text", "#typos svg text", "td"):
        assert contrast(browser, element) > 4.5, element


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screenshot_can_be_taken(browser: Browser, report: Path, tmp_path: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000
