"""The explorer's page under a hand: typing, toggling, dragging, keys, undo, rules, links."""

from collections.abc import Iterator

import pytest
from chromium import Browser
from explorer.asking import OWN
from explorer.pages import SENTENCE, Window, link

OTHER = "Er möchte Arzt werden."


@pytest.fixture(scope="module")
def window(browser: Browser, address: str) -> Window:
    """The page with one model and a sentence; each test starts from that."""
    return Window(browser, address, link(SENTENCE, OWN))


@pytest.fixture(autouse=True)
def _start(window: Window) -> Iterator[None]:
    window.page.evaluate(f"location.hash = ''; location.hash = {link(SENTENCE, OWN)!r}")
    window.page.wait_for_function(
        """line => document.querySelectorAll('.cell.held').length === 0
            && [...document.querySelector('.panel').querySelectorAll('.letter')]
                .map(cell => cell.innerText).join('') === line""",
        arg=SENTENCE.replace(" ", "␣"),
    )
    window.settle()
    yield
    assert window.clean()


def test_the_line_has_a_labelled_checkbox_per_gap_and_shows_spaces(window: Window) -> None:
    boxes = window.panel().locator("input[type=checkbox]")
    assert boxes.count() == len(SENTENCE) - 1
    assert boxes.nth(2).get_attribute("aria-label").startswith("Cut between e and space, score 0.")
    assert window.panel().locator(".letter").all_inner_texts()[:5] == ["S", "i", "e", "␣", "m"]
    assert window.translation().startswith("She wants to be")


def test_typing_translates_and_keeps_the_one_before(window: Window) -> None:
    before = window.translation()
    window.type(OTHER)
    assert "".join(window.panel().locator(".letter").all_inner_texts()) == OTHER.replace(" ", "␣")
    assert window.translation().startswith("He ")
    assert window.translation(kind="before") == before
    assert "He" in window.panel().locator("ins").all_inner_texts()
    assert "She" in window.panel().locator("del").all_inner_texts()
    assert window.panel().locator(".score").all_inner_texts()[0].startswith("log p −")


def test_another_translation_is_marked_as_a_whole(window: Window) -> None:
    before = window.translation()
    window.type("Wann fährt der nächste Bus?")
    assert window.panel().locator("ins").all_inner_texts() == [window.translation()]
    assert window.panel().locator("del").all_inner_texts() == [before]


def test_a_click_toggles_and_holds_and_the_padlock_lets_go(window: Window) -> None:
    cuts = window.cuts()
    offset = cuts[0]
    window.toggle(offset)
    assert offset not in window.cuts()
    assert window.held() == [offset]
    assert "1 held: the model decides the other 23" in window.panel().locator(".holding").inner_text()
    window.toggle(offset)
    assert offset in window.cuts()
    assert window.held() == [offset]
    window.gap(offset).locator(".lock").click()
    window.settle()
    assert (window.held(), window.cuts()) == ([], cuts)


def test_a_click_above_a_short_bar_toggles_too(window: Window) -> None:
    window.click("characters")
    low = (
        window.panel()
        .locator(".cell.cut .bar")
        .evaluate_all(
            "bars => bars.reduce((low, bar) => low.offsetHeight < bar.offsetHeight ? low : bar)"
            ".closest('.cell').dataset.offset"
        )
    )
    bar = window.gap(int(low)).locator(".bar").bounding_box()
    assert bar
    window.page.mouse.click(bar["x"] + bar["width"] / 2, bar["y"] - 9)
    window.settle()
    assert int(low) not in window.cuts()
    assert window.held() == [int(low)]


def test_a_drag_moves_a_cut(window: Window) -> None:
    cuts = window.cuts()
    offset = cuts[1]
    to = next(at for at in range(offset + 2, len(SENTENCE)) if at not in cuts)
    source, target = window.gap(offset).bounding_box(), window.gap(to).bounding_box()
    assert source
    assert target
    mouse = window.page.mouse
    mouse.move(source["x"] + source["width"] / 2, source["y"] + 30)
    mouse.down()
    mouse.move(target["x"] + target["width"] / 2, target["y"] + 30, steps=4)
    assert window.panel().locator(".cell.target").get_attribute("data-offset") == str(to)
    mouse.up()
    window.settle()
    assert window.held() == [offset, to]
    assert offset not in window.cuts()
    assert to in window.cuts()


def test_escape_ends_a_drag_with_nothing_moved(window: Window) -> None:
    box = window.gap(window.cuts()[1]).bounding_box()
    assert box
    window.page.mouse.move(box["x"] + 5, box["y"] + 30)
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + 90, box["y"] + 30, steps=3)
    window.press("Escape")
    window.page.mouse.up()
    assert window.held() == []


def test_keys_do_all_that_a_pointer_does(window: Window) -> None:
    window.box(1).focus()
    window.press("ArrowRight", "ArrowRight")
    assert window.page.evaluate("document.activeElement.closest('.cell').dataset.offset") == "3"
    cut = 3 in window.cuts()
    window.press(" ")
    window.settle()
    assert (3 in window.cuts(), window.held()) == (not cut, [3])
    window.press("Delete")
    window.settle()
    assert (3 in window.cuts(), window.held()) == (cut, [])
    window.press("l")
    window.settle()
    assert (3 in window.cuts(), window.held()) == (cut, [3])
    window.press("Delete", "End")
    assert window.page.evaluate("document.activeElement.closest('.cell').dataset.offset") == "24"
    window.press("Home", "Tab")
    assert not window.page.evaluate("document.activeElement.matches('.cell input')")  # one stop for all gaps


def test_shift_and_an_arrow_move_a_cut(window: Window) -> None:
    cuts = window.cuts()
    offset = next(at for at in cuts if at + 1 not in cuts)
    window.box(offset).focus()
    window.press("Shift+ArrowRight")
    window.settle()
    assert window.held() == [offset, offset + 1]
    assert offset + 1 in window.cuts()
    assert window.page.evaluate("document.activeElement.closest('.cell').dataset.offset") == str(offset + 1)


def test_undo_redo_and_reset(window: Window) -> None:
    cuts = window.cuts()
    window.toggle(4)
    window.toggle(9)
    window.press("Control+z")
    window.settle()
    assert window.held() == [4]
    window.click("undo")
    assert (window.held(), window.cuts()) == ([], cuts)
    window.press("Control+Shift+z", "Control+y")
    window.settle()
    assert window.held() == [4, 9]
    window.click("reset")
    assert (window.held(), window.cuts()) == ([], cuts)
    window.click("undo")
    assert window.held() == [4, 9]
    window.page.locator("#text").press_sequentially("xyz")
    window.settle()
    window.press("Control+z")  # typing is one step
    assert window.page.locator("#text").input_value() == SENTENCE


def test_rules_decide_what_is_not_held(window: Window) -> None:
    window.toggle(2)
    cut = 2 in window.cuts()
    window.click("characters")
    assert {*range(1, 25)} - {*window.cuts()} == ({2} if not cut else set())
    window.click("words")
    assert {*window.cuts()} - {2} == {4, 11, 18}
    entropy = window.page.get_by_role("button", name="entropy")
    assert entropy.is_disabled()  # no model here has n-grams
    assert "open a model that cuts by entropy" in (entropy.get_attribute("title") or "")
    window.panel().locator(".k").fill("5")
    window.panel().locator(".k").press("Enter")
    window.settle()
    assert {*window.cuts()} - {2} == {5, 10, 15, 20}
    assert window.held() == [2]
    window.click("hold all")
    assert len(window.held()) == 24
    window.click("model")  # where all are held there is nothing left to decide: they are let go
    assert window.held() == []


def test_rules_keep_characters_of_several_code_points_whole(window: Window) -> None:
    window.type("ae\u0301b👩‍👩‍👧cd")  # clusters at 0, 1, 3, 4, 9 and 10
    window.click("characters")
    assert window.cuts() == [1, 3, 4, 9, 10]
    assert window.panel().locator(".cell.within").count() == 0
    window.panel().locator(".k").fill("2")
    window.panel().locator(".k").press("Enter")
    window.settle()
    assert window.cuts() == [3, 9]
    assert window.panel().locator(".cell.within").count() == 0
    assert window.held() == []
    window.toggle(4)
    assert (window.cuts(), window.held()) == ([3, 4, 9], [4])


def test_the_slider_changes_the_rate(window: Window) -> None:
    assert window.panel().locator(".rate output").inner_text() == "3.0"
    cuts = len(window.cuts())
    slider = window.panel().get_by_role("slider")
    slider.fill("6")
    window.settle()
    assert len(window.cuts()) < cuts
    window.click("undo")
    assert slider.input_value() == "3"
    assert len(window.cuts()) == cuts


def test_the_strip_has_one_mark_per_gap_and_turns_to_a_reference(window: Window) -> None:
    line = window.strip()
    assert "the model’s own output" in window.panel().locator(".flipped").inner_text()
    assert line.locator(".cell.helps, .cell.hurts").count() >= 20
    for mark in ("change", "promise"):  # each on a scale of its own
        tall = f"cells => Math.max(...cells.map(cell => Number(cell.style.getPropertyValue('--{mark}'))))"
        assert line.locator(".cell").evaluate_all(tall) == 1
    agree = line.locator(".cell.helps.promises, .cell.hurts.warns").count()
    assert f"predicts (right at {agree} of 24 gaps)" in window.panel().locator(".flipped").inner_text()
    window.page.locator("#reference").fill("She would like to be a physician.")
    line = window.strip()
    assert "helps the reference by" in window.panel().locator(".flipped").inner_text()
    assert window.translation(kind="reference") == "She would like to be a physician."
    best = line.locator(".cell.best")
    assert best.count() == 1
    assert "helps" in (best.get_attribute("class") or "")


def test_attention_is_shown_both_ways(window: Window) -> None:
    shaded = "cells => cells.map(cell => Number(cell.style.getPropertyValue('--attention')))"
    window.page.set_viewport_size({"width": 640, "height": 1000})  # where the words about a gap take two rows
    window.strip()  # which takes room above the translation
    out = window.panel().locator(".out").nth(3)
    place = out.bounding_box()
    out.hover()
    assert out.bounding_box() == pytest.approx(place, abs=1)  # pixels; a row of words has twenty
    weights = window.panel().locator(".cell").evaluate_all(shaded)
    assert max(weights) > 0.1
    window.panel().locator(".letter").nth(1).hover()
    window.page.wait_for_selector(".translations.attended")
    assert max(window.panel().locator(".out").evaluate_all(shaded)) > 0.1


def test_keys_go_through_the_translation_and_say_what_it_attends_to(window: Window) -> None:
    outs = window.panel().locator(".out")
    assert window.panel().locator(".out[tabindex='0']").count() == 1  # one stop for all of them
    outs.first.focus()
    window.press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert window.page.evaluate("document.activeElement.dataset.index") == "2"
    shaded = "cells => Math.max(...cells.map(cell => Number(cell.style.getPropertyValue('--attention'))))"
    assert window.panel().locator(".cell").evaluate_all(shaded) > 0.1
    caption = window.panel().locator(".at")
    assert caption.inner_text().startswith(f"“{outs.nth(2).inner_text()}” attends most to “")
    assert outs.nth(2).get_attribute("aria-describedby") == caption.get_attribute("id")
    window.press("End")
    last = window.page.evaluate("document.activeElement.dataset.index")
    assert last == str(outs.count() - 1)
    window.press("Home", "Tab")
    assert window.panel().locator(".out:focus").count() == 0
    assert window.panel().locator(".cell").evaluate_all(shaded) == 0
    assert "attends" not in caption.inner_text()


def test_a_layer_and_a_head_are_chosen_with_keys(window: Window) -> None:
    page, panel = window.page, window.panel()
    assert panel.locator(".heads").count() == 0  # the decoder has a single attention
    page.evaluate(f"location.hash = {link('abcdefgh', 'heads')!r}")
    page.wait_for_selector(".panel .heads")
    window.strip()
    shaded = "cells => cells.map(cell => Number(cell.style.getPropertyValue('--attention')))"

    def seen() -> list[float]:
        panel.locator(".out").first.focus()
        return panel.locator(".cell").evaluate_all(shaded)

    usual, asked = seen(), len([url for url in window.browser.requests if url.endswith("/flips")])
    layer, head = panel.get_by_label("Layer of the"), panel.get_by_label("Head of the")
    assert (layer.input_value(), head.input_value()) == ("1", "0")
    layer.focus()
    window.press("ArrowDown", "Tab", "ArrowDown", "ArrowDown")
    page.wait_for_function("() => location.hash.includes('layer=2&head=2')")
    window.settle()
    chosen = seen()
    assert chosen != usual
    assert panel.locator(".translation.before").count() == 0  # it is the same translation
    window.strip()
    assert len([url for url in window.browser.requests if url.endswith("/flips")]) == asked
    page.reload()
    window.settle()
    assert (layer.input_value(), head.input_value()) == ("2", "2")
    assert seen() == chosen
    window.click("reset")
    assert (layer.input_value(), head.input_value(), seen()) == ("1", "0", usual)


def test_a_link_has_it_all(window: Window) -> None:
    window.page.evaluate(f"location.hash = {link('Ein Häuschen & 50% #1 +2', OWN, 'cif')!r}")
    window.page.wait_for_function("() => document.querySelectorAll('.panel').length === 2")
    window.settle()
    window.toggle(3)
    window.toggle(5, place=1)
    window.page.locator("#reference").fill("a+b=c&d")
    window.page.wait_for_function("() => location.hash.includes('reference=')")
    window.settle()
    before = [window.page.url, window.cuts(), window.cuts(1), window.held(), window.held(1)]
    window.page.reload()
    window.settle()
    assert [window.page.url, window.cuts(), window.cuts(1), window.held(), window.held(1)] == before
    assert window.held() == [3]
    assert window.held(1) == [5]
    assert window.page.locator("#text").input_value() == "Ein Häuschen & 50% #1 +2"
    assert window.page.locator("#reference").input_value() == "a+b=c&d"
