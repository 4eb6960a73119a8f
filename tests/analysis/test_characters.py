"""Characters in any script can be seen, and every unit knows its place."""

import pytest
from analysis.cuts import cut
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.characters import END, labels, units, visible
from caesura.analysis.tables import Column, Table
from caesura.output import Segmentation


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("n d", "n␣d"),
        ("\u3000\u00a0", "␣␣"),
        ("\u0301e", "◌\u0301e"),
        ("e\u0301", "e\u0301"),
        ("שלום", "שלום"),
        ("a\tb\x00", "a\\tb\\x00"),
        ("|\\", "|\\"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_all_of_a_text_is_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_invisible_is_left(text: str) -> None:
    assert "".join(visible(text).split()) == visible(text)
    visible(text).encode()


def test_units_know_their_place_in_the_word() -> None:
    text = "in gru ."
    counts = units(text, cut("i|n |gr|u| ."))
    assert [u.place for u in counts] == [1, 2, 1, 3, 1]
    assert [u.space for u in counts] == [False, True, False, False, True]
    assert [u.punctuation for u in counts] == [False, False, False, False, True]
    assert [u.start for u in counts] == [0, 1, 3, 5, 6]
    assert [u.first for u in counts] == [True, False, True, False, False]


def test_a_unit_that_holds_a_first_character_is_first_wherever_it_begins() -> None:
    counts = units("in gru gri", cut("i|n g|ru |gri"))
    assert [u.place for u in counts] == [1, 1, 2, 1]
    assert [u.first for u in counts] == [True, True, False, True]


def test_a_words_unit_begins_after_its_space() -> None:
    words = Segmentation(["in", " gru"], [2, 3], [True, True], [1.0, 1.0], None)
    parts = units("in gru", words)
    assert [(u.text, u.start, u.place, u.space) for u in parts] == [("in", 0, 1, False), ("gru", 3, 1, False)]


def test_the_end_is_a_step_of_its_own_or_with_the_last() -> None:
    assert labels(["a ", "b"], 3) == ["a␣", "b", END]
    assert labels(["a ", "b"], 2) == ["a␣", "b" + END]
    assert labels([], 1) == [END]


def test_a_vowel_sign_stands_on_a_circle_and_takes_no_place() -> None:
    sign = "\u093f"  # a mark of combining class 0
    assert visible(sign) == "◌" + sign
    assert Table("t", "t", [Column("a"), Column("b")], [["क" + sign, "x"]]).text().split("\n")[2:4] == [
        "a  b",
        "क" + sign + "  x",
    ]
