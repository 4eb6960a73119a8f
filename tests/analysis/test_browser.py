"""The report in a real browser: nothing fetched, nothing complained of, everything there, on any screen."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from analysis.test_report import LINES, SMALL, subject
from browser import Browser, check_page, needed_browser
from helpers import ACT, LOOKUP

from caesura.analysis.lines import Line
from caesura.analysis.report import Report
from caesura.analysis.study import analyse

SCREENS = {
    "light": {"width": 1200},
    "dark": {"width": 1200, "dark": True},
    "phone": {"width": 390, "phone": True},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(needed_browser()) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    found = [analyse(subject(s, n), LINES, "text", None, SMALL) for s, n in ((LOOKUP, "char"), (ACT, "act"))]
    return Report(found).write(out)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_report_opens(browser: Browser, report: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    check_page(browser, report)


def contrast(browser: Browser, element: str) -> float:
    """Between the colour of an element's text and what is behind it, as WCAG has it."""
    return browser.ask(
        "(() => { const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255);"
        "const curve = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;"
        "const light = c => { const [r, g, b] = rgb(c).map(curve);"
        "return .2126 * r + .7152 * g + .0722 * b; };"
        f"const e = document.querySelector('{element}'), s = getComputedStyle(e);"
        "const text = light(e instanceof SVGElement ? s.fill : s.color);"
        "let on = e; const fill = () => getComputedStyle(on).backgroundColor;"
        "while (fill() === 'rgba(0, 0, 0, 0)') on = on.parentElement;"
        "const back = light(fill());"
        "return (Math.max(text, back) + .05) / (Math.min(text, back) + .05); })()"
    )


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_text_and_figures_can_be_read(browser: Browser, report: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    back = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (screen == "light")
    for element in ("p", "figcaption", "#lengths svg text", "#typos svg text", "td", ".chip small", ".cut i"):
        assert contrast(browser, element) > 4.5, element


def test_text_goes_in_its_own_direction(browser: Browser, tmp_path: Path) -> None:
    lines = [Line(1, "שלום עולם"), Line(2, "abc de")]
    settings = replace(SMALL, translate=0, lines=(1, 2))
    browser.open(Report([analyse(subject(), lines, "text", None, settings)]).write(tmp_path))
    asked = "[...document.querySelectorAll('.pair .cut')].map(e => getComputedStyle(e).direction)"
    assert browser.ask(asked) == ["rtl", "ltr"]
