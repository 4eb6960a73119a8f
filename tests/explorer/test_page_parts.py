"""What the explorer's page is made of, called in a browser: history, offsets, links, differences."""

from typing import Any

import pytest
from chromium import Browser
from explorer.pages import Window, link
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
NOT_LOOKING = {"layer": None, "head": None}  # at an attention that was chosen
LOOKING = st.fixed_dictionaries({"layer": st.integers(1, 64), "head": st.none() | st.integers(1, 99)})
PANELS = st.fixed_dictionaries(
    {
        "model": NAMES,
        "rule": st.sampled_from(["own", "characters", "words", "every", "entropy"]),
        "k": st.integers(1, 99),
        "rate": st.none() | st.floats(1, 12).map(lambda rate: round(rate, 1)),
        "held": st.dictionaries(st.integers(1, 500).map(str), st.sampled_from([1, -1]), max_size=6),
    }
).flatmap(lambda panel: (st.just(NOT_LOOKING) | LOOKING).map(lambda look: panel | look))


@pytest.fixture(scope="module")
def parts(browser: Browser, address: str) -> Window:
    """A window with the modules as `parts`."""
    window = Window(browser, address, link("abc", "cif"))
    window.page.evaluate(
        """async () => { window.parts = Object.assign({}, ...await Promise.all(
        ['text', 'state', 'link', 'diff', 'dom'].map(name => import(`/static/${name}.js`)))); }"""
    )
    return window


def call(parts: Window, name: str, *arguments: Any) -> Any:
    return parts.page.evaluate("([name, given]) => window.parts[name](...given)", [name, [*arguments]])


@settings(max_examples=30)
@given(text=TEXTS)
def test_offsets_count_code_points(parts: Window, text: str) -> None:
    clusters = call(parts, "clusters", text)
    assert "".join(cluster["text"] for cluster in clusters) == text
    for cluster in clusters:
        assert text[cluster["offset"] :].startswith(cluster["text"])
    assert call(parts, "size", text) == len(text)


@settings(max_examples=30)
@given(
    text=TEXTS, reference=TEXTS, panels=st.lists(PANELS, max_size=3, unique_by=lambda panel: panel["model"])
)
def test_a_link_is_read_as_it_was_written(
    parts: Window, text: str, reference: str, panels: list[Any]
) -> None:
    tidy = [call(parts, "tidy", one) for one in (text, reference)]
    page = {"text": tidy[0], "reference": tidy[1], "panels": panels}
    assert call(parts, "decode", "#" + call(parts, "encode", page)) == page


@pytest.mark.parametrize(
    ("fields", "panel"),
    [
        ("rule=evil&k=0&rate=x&held=a.0.1.5", {"held": {"1": 1, "5": 1}}),
        ("held=5.-7.-7", {"held": {"5": 1, "7": -1}}),
        ("k=2.5&rate=-3&rule=words", {"rule": "words"}),
        ("rate=Infinity&k=7", {"k": 7}),
        ("layer=0&head=2", {}),
        ("layer=2&head=1.5", {"layer": 2}),
    ],
)
def test_what_a_link_gets_wrong_is_left_out(parts: Window, fields: str, panel: dict[str, Any]) -> None:
    read = call(parts, "decode", f"#text=a&model=m&{fields}&unknown=1")
    assert read["panels"] == [
        {"model": "m", "rule": "own", "k": 3, "rate": None, **NOT_LOOKING, "held": {}} | panel
    ]
    assert call(parts, "decode", f"#model=m&{fields}") is None


@settings(max_examples=30)
@given(
    before=st.text("ab😀", max_size=8),
    after=st.text("ab😀", max_size=8),
    offsets=st.sets(st.integers(1, 7)),
)
def test_held_gaps_stay_with_their_neighbours(
    parts: Window, before: str, after: str, offsets: set[int]
) -> None:
    held = {str(at): 1 for at in offsets if at < len(before)}
    moved = call(parts, "shiftHeld", before, after, held)
    assert len(moved) <= len(held)
    for at in map(int, moved):
        origins = {at, at - len(after) + len(before)} & {*map(int, held)}
        assert any(before[o - 1 : o + 1] == after[at - 1 : at + 1] for o in origins)
    if before == after:
        assert moved == held


def test_typing_moves_what_is_held_behind_it(parts: Window) -> None:
    held = {"1": 1, "3": -1, "5": 1}
    assert call(parts, "shiftHeld", "abcdef", "abcXdef", held) == {"1": 1, "6": 1}
    assert call(parts, "shiftHeld", "abcdef", "abcdefg", held) == held
    assert call(parts, "shiftHeld", "abcdef", "", held) == {}


def test_the_history_goes_back_and_forth(parts: Window) -> None:
    def act(history: Any, **action: Any) -> Any:
        return call(parts, "reduce", history, {"time": 0} | action)

    start = call(parts, "begin", {"text": "ab", "reference": "", "panels": [call(parts, "panelOf", "m")]})
    held = act(start, type="hold", model="m", cuts={"1": 1})
    assert held["now"]["panels"][0]["held"] == {"1": 1}
    assert act(held, type="hold", model="m", cuts={"1": 1}) == held  # nothing changed: no step
    assert act(held, type="hold", model="m", cuts={"1": 0})["now"] == start["now"]
    back = act(held, type="undo")
    assert back["now"] == start["now"]
    assert act(back, type="redo")["now"] == held["now"]
    assert act(act(back, type="rate", model="m", rate=2.0), type="redo")["future"] == []
    one = act(start, type="text", text="abc", group="text", time=0)
    assert len(act(one, type="text", text="abcd", group="text", time=900)["past"]) == 1
    assert len(act(one, type="text", text="abcd", group="text", time=1100)["past"]) == 2
    assert act(start, type="undo") == start


def test_words_that_differ_are_marked(parts: Window) -> None:
    sides = call(parts, "compare", "I forgot it in the train.", "I forgot it on the tram.")
    for side, words in (("before", ["in", "train"]), ("after", ["on", "tram"])):
        assert [word["text"] for word in sides[side] if word["changed"]] == words
    assert call(parts, "compare", "", "") == {"before": [], "after": []}


def test_a_number_that_rounds_to_zero_has_no_sign(parts: Window) -> None:
    shown = [call(parts, "signed", value, 2) for value in (0.004, -0.004, 0, 0.006, -1.5)]
    assert shown == ["0.00", "0.00", "0.00", "+0.01", "−1.50"]


def test_what_has_no_form_is_shown(parts: Window) -> None:
    for character, shown in {
        " ": "␣",
        "\u202e": "U+202E",
        "\x1b": "U+001B",
        "\u0301": "◌\u0301",
        "é": "é",
    }.items():
        assert call(parts, "visible", character) == shown
    assert call(parts, "tidy", "a\r\nb\u2028c") == "a b c"
