"""The explorer's page on any screen, with any text, for anyone, and when something goes wrong."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import Browser
from explorer.asking import OWN
from explorer.pages import SENTENCE, Window, link

SCREENS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390, "phone": True},
}
PERMISSIONS = ["clipboard-read", "clipboard-write"]
ODD = "<script>alert(1)</script><img src=x onerror=alert(2)> é 한 👩‍👩‍👧 \u202eab\u202c שלום"


def violations(window: Window) -> list[tuple[str, list[Any]]]:
    response = Axe().run(window.page, options={"resultTypes": ["violations"]}).response
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]][:3]) for rule in response["violations"]
    ]


@pytest.mark.parametrize(
    "screen", ["light", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dark", "phone"))]
)
def test_the_page_is_whole_and_accessible(browser: Browser, address: str, screen: str) -> None:
    hash = link(SENTENCE, "cif", "char", "heads", more="&held=3")
    window = Window(browser, address, hash, **SCREENS[screen])
    page = window.page
    window.toggle(2)
    window.strip()
    page.locator(".help summary").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (screen == "dark")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    clipped = "elements => elements.filter(e => e.getBoundingClientRect().right > innerWidth).length"
    assert page.locator("main :not(#examples *):visible").evaluate_all(clipped) == 0
    assert violations(window) == []
    assert window.clean()


def test_the_theme_turns_and_is_remembered(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(SENTENCE, "cif"))
    colour = "getComputedStyle(document.body).backgroundColor"
    light = window.page.evaluate(colour)
    window.click("Light or dark")
    dark = window.page.evaluate(colour)
    assert dark != light
    window.page.reload()
    window.settle()
    assert window.page.evaluate(colour) == dark
    window.click("Light or dark")
    assert window.page.evaluate(colour) == light
    assert window.clean()


def test_a_strangers_text_stays_text_and_clusters_stay_whole(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(ODD, "cif"))
    letters = window.panel().locator(".letter").all_inner_texts()
    assert "".join(letters[:8]) == "<script>"
    assert {"é", "한", "👩‍👩‍👧", "U+202E", "U+202C"} <= {*letters}
    assert window.page.locator("main script, main img").count() == 0
    assert window.page.locator("#text").input_value() == ODD
    # Offsets count code points: behind a cluster of five, and behind marks that are characters of their own.
    at = len(ODD) - 4
    assert window.gap(at).count() == 1
    window.toggle(at)
    assert window.held() == [at]
    assert window.page.locator("[aria-label*='👩‍👩‍👧']").count() == 2
    assert window.clean()


def test_right_to_left_text_runs_right_to_left(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("שלום עולם", "cif"))
    lefts = (
        window.panel().locator(".letter").evaluate_all("all => all.map(e => e.getBoundingClientRect().left)")
    )
    assert lefts == sorted(lefts, reverse=True)
    window.box(2).focus()
    window.press("ArrowLeft")
    assert window.page.evaluate("document.activeElement.closest('.cell').dataset.offset") == "3"
    assert window.clean()


MIXED = {
    "שלום 2024 abc": "abc 2024 םולש",
    "abc שלום def": "abc םולש def",
    "abc שלום 20.5 עולם, def": "abc םלוע 20.5 םולש, def",
    "(שלום) a-b": "a-b )םולש(",
}


def test_text_of_both_directions_stands_as_it_is_read(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abc", "cif"), permissions=PERMISSIONS)
    for text, read in MIXED.items():
        window.type(text)
        letters = window.panel().locator(".letter")
        lefts = letters.evaluate_all("all => all.map(e => e.getBoundingClientRect().left)")
        assert in_order(text, lefts) == read
        window.click("Copy cif as SVG")
        window.page.get_by_text("Copied as SVG.").wait_for()
        drawing = ElementTree.fromstring(window.page.evaluate("navigator.clipboard.readText()"))
        drawn = [float(e.attrib["x"]) for e in drawing.iter() if e.attrib.get("text-anchor") == "middle"]
        assert in_order(text, drawn) == read
    assert window.clean()


def in_order(text: str, lefts: list[float]) -> str:
    """The letters of a text as they stand from left to right."""
    assert len(lefts) == len(text)
    return "".join(letter for _, letter in sorted(zip(lefts, text, strict=True)))


def test_two_models_cut_the_same_sentence_side_by_side(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abcdefghi", "writes"))
    window.page.get_by_role("checkbox", name="act", exact=True).check()
    window.settle()
    assert window.page.locator(".panel h2").all_inner_texts() == ["writes", "act"]
    assert window.panel(0).locator(".out.piece").count() > 0  # ACT-DEC cuts what it writes
    assert window.panel(1).locator(".out.piece").count() == 0
    assert window.panel(1).locator(".cell.sums").count() == 9  # the running sum of ACT
    window.box(4, place=1).focus()
    caption = window.panel(1).locator(".at").inner_text()
    sums = re.search(r"running sum (\d\.\d\d at d, \d\.\d\d at e)", caption)
    assert sums
    assert sums[1] in (window.box(4, place=1).get_attribute("aria-label") or "")
    window.toggle(4, place=1)
    assert (window.held(0), window.held(1)) == ([], [4])
    window.page.get_by_role("checkbox", name="writes", exact=True).uncheck()
    assert window.page.locator(".panel h2").all_inner_texts() == ["act"]
    assert window.held() == [4]
    window.page.get_by_role("checkbox", name="act", exact=True).click()  # the last one stays
    assert window.page.locator(".panel").count() == 1
    assert window.clean()


def test_of_many_models_those_of_the_same_text_open_first(browser: Browser, address: str) -> None:
    def models(route: Any) -> None:
        answer = route.fetch().json()
        answer["models"] = [m | {"examples": [m["kind"]]} for m in answer["models"]]
        route.fulfill(json=answer)

    page = browser.window()
    page.route("**/api/models", models)
    page.goto(address)
    page.wait_for_selector("body.ready")
    assert page.locator(".panel h2").all_inner_texts() == [OWN, "cif"]  # not "char", the second
    examples = page.locator("#examples button").all_inner_texts()
    assert examples == ["bigru ▸ cif ▸ weighted", "lookup", "act"]


def test_cuts_that_cannot_be_moved_say_so(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abcd", "char"))
    window.toggle(2)
    window.page.get_by_text("it has no cuts to move").wait_for()
    assert window.panel().locator(".gap-at").inner_text().endswith("cannot be moved.")
    assert window.panel().locator("button:visible").all_inner_texts() == ["SVG", "PNG"]
    assert window.cuts() == [1, 2, 3]
    assert window.held() == []
    assert window.page.url.endswith("model=char")
    assert window.clean()


@pytest.mark.slow
def test_500_characters_do_not_freeze_it(browser: Browser, address: str) -> None:
    text = ("abcdefghi " * 50)[:500]
    window = Window(browser, address, link(text, "cif"))
    assert window.panel().locator("input[type=checkbox]").count() == 499
    assert window.panel().get_by_role("button", name="try all 499 flips").is_visible()
    # From the click to the end of its frame, in the page; a tenth of that where nothing else runs.
    took = window.page.evaluate(
        "() => new Promise(done => { const began = performance.now();"
        " document.querySelector('.cell input').click();"
        " requestAnimationFrame(() => setTimeout(() => done(performance.now() - began))); })"
    )
    assert took < 2000
    window.settle()
    assert window.held() == [1]
    window.type(text + "x")
    assert "Too long by 1:" in window.page.locator("#count").inner_text()
    assert "500" in window.panel().locator(".notice").inner_text()


def test_an_error_is_a_sentence_and_a_lost_server_is_said(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(SENTENCE, "cif"))
    page = window.page
    page.route("**/explain", lambda route: route.fulfill(status=422, json={"error": {"message": "no <b>"}}))
    page.locator("#text").fill("one")
    page.get_by_text("No <b>.").wait_for()
    page.unroute("**/explain")
    page.route("**/*", lambda route: route.abort())
    page.clock.install()
    page.locator("#text").fill("two")
    page.clock.run_for(500)
    page.get_by_text("The server does not answer.").wait_for()
    page.unroute("**/*")
    page.clock.run_for(2500)
    page.get_by_text("The server answers again.").wait_for()
    page.clock.run_for(500)
    page.wait_for_function("() => document.querySelectorAll('.letter').length === 3")
    assert page.locator(".panel .notice").inner_text() == ""


def test_the_probability_of_the_impossible_is_shown(browser: Browser, address: str) -> None:
    """As of a reference for words of which there are none, such as a line of spaces."""
    window = Window(browser, address, link("abc", "cif"))

    def impossible(route: Any) -> None:
        answer = route.fetch().json()
        route.fulfill(json=answer | {"reference": {"text": "ab", "log_probability": None}})

    window.page.route("**/explain", impossible)
    window.type("abcd")
    assert window.panel().locator(".reference .score").inner_text() == "log p −∞"
    window.page.unroute("**/explain")
    window.page.route(
        "**/explain", lambda route: route.fulfill(json=route.fetch().json() | {"log_probability": None})
    )
    window.toggle(1)
    score = window.panel().locator(".now .score")
    assert score.inner_text() == "log p −∞", "nothing is better or worse by a number"
    assert window.panel().locator(".before .score").inner_text() != "log p −∞"
    assert window.clean()


def test_a_question_that_is_no_longer_asked_is_given_up(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abc", "cif"))
    page = window.page
    page.evaluate(
        "() => { const fetched = fetch; window.fetch = (...asked) => fetched(...asked)"
        ".catch(problem => { window.problem = problem.name; throw problem; }); }"
    )
    asked: list[Any] = []  # the first is never answered
    page.route("**/explain", lambda route: route.continue_() if asked else asked.append(route))
    with page.expect_request("**/explain"):
        page.locator("#text").fill("abcd")
    page.locator("#text").fill("abcde")
    page.wait_for_function("() => window.problem === 'AbortError'")
    window.settle()
    assert window.panel().locator(".letter").count() == 5
    assert window.clean()


def test_the_server_is_asked_within_a_few_milliseconds(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abc", "cif"))
    page = window.page
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    for act in (
        lambda: page.locator("#text").fill("abcd"),
        lambda: page.locator("#text").fill("abcde"),  # while the answer before it may be on its way
        lambda: window.gap(2).click(),
    ):
        with page.expect_request("**/explain"):
            act()
            page.clock.run_for(20)
        window.settle()
    assert window.clean()


def test_a_refused_strip_is_asked_for_again(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(SENTENCE, "cif"))
    window.strip()
    refused: list[int] = []

    def busy(route: Any) -> None:
        refused.append(1)
        route.fulfill(status=429, json={"error": {"message": "too many"}})

    window.page.route("**/flips", busy)
    window.toggle(2)
    window.page.get_by_text("Too many.").wait_for()
    window.page.unroute("**/flips")
    window.strip()
    assert refused
    assert "helps" in window.panel().locator(".flipped").inner_text()


def test_marks_of_other_cuts_are_pale_until_new_ones_are_there(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(SENTENCE, "cif"))
    window.strip()
    held: list[Any] = []
    window.page.route("**/flips", lambda route: held.append(route))
    with window.page.expect_request("**/flips"):
        window.toggle(2)
    window.page.route("**/explain", lambda route: held.append(route))
    with window.page.expect_request("**/explain"):  # the strip on its way is given up
        window.gap(5).click()
    window.page.wait_for_timeout(50)
    assert window.panel().locator(".line.strip.stale").count() == 1
    assert "hurts" in window.panel().locator(".flipped").inner_text()  # what is beneath stays in its place
    window.page.unroute("**/flips")
    held[-1].continue_()
    window.strip()
    assert window.held() == [2, 5]
    assert window.clean()


def test_a_replaced_model_is_said_and_shown(browser: Browser, address: str) -> None:
    window = Window(browser, address, link("abc", "cif"))

    def other(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(json=answer.json() | {"version": "another"})

    window.page.route("**/explain", other)
    window.type("abcd")
    window.page.get_by_text("cif was replaced on disk.").wait_for()
    window.page.wait_for_function("() => document.querySelectorAll('.letter').length === 4")
    assert window.page.locator(".panel").count() == 1


def test_a_running_training_shows_its_curves_and_its_new_cuts(browser: Browser, address: str) -> None:
    """The log is made up; the rest is the server's."""
    state = {"update": 100, "running": True, "shown": None, "version": "first"}

    def models(route: Any) -> None:
        answer = route.fetch().json()
        answer["models"] = [
            m | {"running": True, "history": True} for m in answer["models"] if m["name"] == "cif"
        ]
        route.fulfill(json=answer)

    def training(route: Any) -> None:
        points = [[u, 10 - u / 100] for u in range(0, state["update"] + 1, 50)]
        route.fulfill(json={"model": "cif", **state, "curves": {"loss": points, "bleu": points}})

    page = browser.window()
    page.clock.install()
    page.route("**/api/models", models)
    page.route("**/training", training)
    page.goto(address + link("abcdef", "cif"))
    page.clock.run_for(200)
    page.get_by_role("img", name="loss: 9.00 at update 100").wait_for()
    panel = page.locator(".panel")
    page.wait_for_function("() => document.querySelector('.panel').dataset.answered >= 1")
    answered = int(panel.get_attribute("data-answered") or 0)
    state |= {"update": 200, "shown": 150, "version": "second"}
    page.clock.run_for(2500)
    page.get_by_role("img", name="loss: 8.00 at update 200").wait_for()
    page.get_by_text("in training, update 200; shown: update 150", exact=True).wait_for()
    page.clock.run_for(200)
    page.wait_for_function(f"() => document.querySelector('.panel').dataset.answered > {answered}")
    state["running"] = False
    page.route("**/training", lambda route: route.fulfill(status=503, json={"error": {"message": "busy"}}))
    page.clock.run_for(2500)
    page.get_by_text("Busy.").wait_for()
    page.unroute("**/training")
    page.route("**/training", training)
    page.clock.run_for(2500)
    page.get_by_text("trained", exact=True).wait_for()
    assert panel.locator(".notice").inner_text() == ""


def test_the_line_is_copied_as_svg_and_png(browser: Browser, address: str) -> None:
    window = Window(browser, address, link(ODD, "act", more="&held=3"), permissions=PERMISSIONS)
    window.click("Copy act as SVG")
    window.page.get_by_text("Copied as SVG.").wait_for()
    drawing = ElementTree.fromstring(window.page.evaluate("navigator.clipboard.readText()"))
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    letters = window.panel().locator(".letter").all_inner_texts()
    assert texts[1 : 1 + len(letters)] == letters
    assert "".join(texts[1 + len(letters) :]) == window.translation()
    window.click("Copy act as PNG")
    window.page.get_by_text("Copied as PNG.").wait_for()
    size = window.page.evaluate(
        "async () => { const [item] = await navigator.clipboard.read();"
        " const image = await createImageBitmap(await item.getType('image/png')); return image.width; }"
    )
    assert size == 2 * float(drawing.attrib["width"])
    assert window.clean()


@pytest.mark.parametrize("text", ["a" * 30, "a" * 90 + " b", "שלום " * 30])
def test_a_picture_has_room_for_its_translation(browser: Browser, address: str, text: str) -> None:
    window = Window(browser, address, link("abc", "cif"), permissions=PERMISSIONS)

    def longer(route: Any) -> None:
        answer = route.fetch().json()
        output = answer["output"] | {"symbols": [*text], "offsets": [*range(len(text))]}
        route.fulfill(json=answer | {"translation": text, "output": output, "attention": None})

    window.page.route("**/explain", longer)
    window.type("abcd")
    window.click("Copy cif as SVG")
    window.page.get_by_text("Copied as SVG.").wait_for()
    over = window.page.evaluate(
        "async () => { const svg = await navigator.clipboard.readText();"
        " const drawn = new DOMParser().parseFromString(svg, 'image/svg+xml').documentElement;"
        " document.body.append(drawn); const wide = drawn.width.baseVal.value;"
        " return [...drawn.querySelectorAll('text')].map(text => text.getBBox())"
        ".filter(box => box.x < 20 || box.x + box.width > wide - 20).length; }"
    )
    assert over == 0


def test_the_page_of_the_api_has_every_path(browser: Browser, address: str) -> None:
    page = browser.window()
    page.goto(address + "docs")
    page.wait_for_selector("body.ready")
    headings = page.locator("h2").all_inner_texts()
    assert {"POST /segment", "POST /explain", "POST /flips", "POST /translate"} <= {*headings}
    links = page.locator("a[href^='#']").evaluate_all("all => all.map(a => a.getAttribute('href').slice(1))")
    assert {*links} <= {*headings}
    assert browser.messages == []
