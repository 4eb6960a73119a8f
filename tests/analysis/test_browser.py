"""The report in a real browser: nothing fetched, nothing complained of, everything there, on any screen."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from analysis.subjects import LINES, SMALL, subject
from analysis.test_report import keep_chapters
from analysis.test_report_parts import CIF
from chromium import Browser, needed_browser
from helpers import ACT, LOOKUP
from layout import check_layout, check_page

from caesura.analysis.lines import Line
from caesura.analysis.report import Report
from caesura.analysis.study import analyse
from caesura.evaluation.scores import paired_bootstrap

SCREENS = {
    "light": {"width": 1280},
    "dark": {"width": 1280, "dark": True},
    "phone": {"width": 390, "phone": True},
    "dark phone": {"width": 390, "phone": True, "dark": True},
}
CHAPTERS = "section > details"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(needed_browser()) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(written: Path) -> Path:
    return written / "report.html"


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
        "const layers = []; let on = e, share = 0;"  # tints over what is behind them
        "while (share < 1) { const c = getComputedStyle(on).backgroundColor; on = on.parentElement;"
        "share = c.startsWith('rgba') ? +c.match(/[\\d.]+/g)[3] : 1; layers.push([rgb(c), share]); }"
        "const mixed = layers.reduceRight((under, [over, a]) =>"
        "over.map((v, i) => a * v + (1 - a) * under[i]), [0, 0, 0]);"
        "const back = light(mixed.map(v => 255 * v).join());"
        "return (Math.max(text, back) + .05) / (Math.min(text, back) + .05); })()"
    )


@pytest.mark.parametrize("screen", ["light", "dark"])
def test_text_and_figures_can_be_read(browser: Browser, report: Path, screen: str) -> None:
    browser.open(report, **SCREENS[screen])  # type: ignore[arg-type]
    browser.unfold()
    back = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (screen == "light")
    for element in (
        "p",
        "figcaption",
        "#lengths svg text",
        "#typos svg text",
        "td",
        ".chip small",
        ".cut i",
        ".gauge small",
    ):
        assert contrast(browser, element) > 4.5, element


@pytest.mark.usefixtures("sketched")
def test_text_goes_in_its_own_direction(browser: Browser, tmp_path: Path) -> None:
    lines = [Line(1, "שלום עולם"), Line(2, "abc de")]
    settings = replace(SMALL, translate=0, lines=(1, 2))
    browser.open(Report([analyse(subject(), lines, "text", None, settings)]).write(tmp_path))
    asked = "[...document.querySelectorAll('.pair .cut')].map(e => getComputedStyle(e).direction)"
    assert browser.ask(asked) == ["rtl", "ltr"]


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model that never cuts."""
    never = ACT | {"halting_bias": -20.0, "learn_halting": False, "tau": 0.0}
    lines = [Line(1, "abc de fgh-" * 30, "ab " * 60), Line(2, "ab-cd ef")]
    model = analyse(subject(never), lines, "text", None, replace(SMALL, translate=0, lines=(1, 2), moved=0))
    with pytest.MonkeyPatch.context() as patch:
        keep_chapters(patch, "segments", "sentences")
        return Report([model]).write(tmp_path_factory.mktemp("uncut"))


@pytest.mark.parametrize("screen", SCREENS)
def test_a_segment_wider_than_the_screen_scrolls_and_says_so(
    browser: Browser, uncut: Path, screen: str
) -> None:
    browser.open(uncut, **SCREENS[screen])  # type: ignore[arg-type]
    browser.unfold()
    check_layout(browser)
    wider = "[...document.querySelectorAll('.cut')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert browser.ask(wider) == 2  # in the example and among the sentences


def test_folds_open_for_a_link_and_on_paper(browser: Browser, report: Path) -> None:
    closed = "[...document.querySelectorAll('figure')].filter(f => !f.checkVisibility()).length"
    browser.open(report)
    figures = browser.ask("document.querySelectorAll('figure').length")
    assert browser.ask(closed) == figures
    browser.ask("document.querySelector('nav a[href=\"#errors\"]').click()")
    assert browser.ask("document.querySelector('#typos').checkVisibility()")
    browser.page.emulate_media(media="print")
    assert browser.ask(closed) == 0
    browser.open(report, anchor="typos")
    assert browser.ask("document.querySelector('#typos').checkVisibility()")
    assert browser.ask(closed) > 0


def check_screens(browser: Browser, page: Path, most: int) -> None:
    """What matters is on the first screen, and the page with every chapter open is no longer than said."""
    browser.open(page)
    assert browser.ask("document.querySelector('.example').getBoundingClientRect().bottom") <= 800
    assert browser.ask("document.querySelectorAll('.gauges > div').length") == 4
    assert browser.ask("document.documentElement.scrollHeight / 800") <= 3
    browser.unfold(CHAPTERS)
    assert browser.ask("document.documentElement.scrollHeight / 800") <= most


def test_two_models_take_at_most_12_screens(browser: Browser, report: Path) -> None:
    check_screens(browser, report, 12)


@pytest.mark.slow
def test_six_models_take_at_most_20_screens(browser: Browser, tmp_path: Path) -> None:
    segmenters = {"char": LOOKUP, "act": ACT, "act, tau 0.3": ACT | {"tau": 0.3, "halting_bias": -1.0}}
    segmenters |= {"cif": CIF | {"rate": {"target": 3.0}}, "cif at 2": CIF | {"rate": {"target": 2.0}}}
    segmenters |= {"every second": CIF | {"cutter": {"type": "fixed", "k": 2}, "pooling": {"type": "mean"}}}
    analyses = [analyse(subject(s, n), LINES, "text", None, SMALL) for n, s in segmenters.items()]
    lines = [line.reference or "" for line in LINES]
    compared = paired_bootstrap({a.name: lines for a in analyses}, lines, samples=20)
    page = Report(analyses, compared).write(tmp_path)
    check_screens(browser, page, 20)
    for screen in SCREENS.values():
        browser.open(page, **screen)  # type: ignore[arg-type]
        check_page(browser, page)
