"""What a report is to look like in a browser."""

from pathlib import Path

from chromium import Browser

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


def check_layout(browser: Browser) -> None:
    """Everything that can be seen is whole, or scrolls and says so; no segment is on two lines."""
    for problem in (_TORN, _CLIPPED, _CRIES, _TINY):
        elements = browser.ask(problem)
        assert elements == [], elements
    # Wide tables and figures scroll inside themselves: the page does not.
    assert browser.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def check_page(browser: Browser, report: Path) -> None:
    """The open page fetched and complained of nothing; its figures are there, its sections linked."""
    check_layout(browser)
    browser.unfold()
    check_layout(browser)
    assert browser.messages == []
    requests = [url for url in browser.requests if not url.startswith("data:")]
    assert requests == [report.resolve().as_uri()]
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
