"""The shown form of pieces can be read back, whatever is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation.pieces import join_pieces, split_pieces

AWKWARD = st.sampled_from(list("|␣\\ ntrxu0aÄ東\n\t\r\0\x0b\x0c\x1c\x7f\x85\u2028\u2029\ud800"))
ANY = st.characters(exclude_categories=[])
PIECES = st.lists(st.text(AWKWARD, min_size=1, max_size=6) | st.text(ANY, min_size=1, max_size=4), max_size=6)


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["in", " g", "ru", "pp", "en"], "in|␣g|ru|pp|en"),
        (["a|b", "␣", "\\"], r"a\|b|\␣|\\"),
        (["\\n", "\n"], r"\\n|\n"),
        (["a\tb\r"], r"a\tb\r"),
        (["\0\x85\u2028"], r"\x00\x85\u2028"),
        (["\ud800x"], r"\ud800x"),
        (["東京", "都"], "東京|都"),
        (["alles"], "alles"),
        ([], ""),
    ],
)
def test_shown_forms(pieces, shown):
    assert join_pieces(pieces) == shown
    assert split_pieces(shown) == pieces


@given(PIECES)
def test_pieces_come_back_exactly(pieces):
    assert split_pieces(join_pieces(pieces)) == pieces


@given(PIECES)
def test_a_sentence_is_one_line_that_can_be_written(pieces):
    shown = join_pieces(pieces)
    assert len(shown.splitlines()) == (1 if pieces else 0)
    assert " " not in shown
    assert shown.encode("utf-8").decode("utf-8") == shown


@given(PIECES, PIECES)
def test_different_pieces_look_different(one, other):
    assert (join_pieces(one) == join_pieces(other)) == (one == other)


def test_an_empty_piece_cannot_be_shown():
    with refuses(InputError):
        join_pieces(["a", ""])


@pytest.mark.parametrize(
    ("shown", "at"),
    [
        ("a||b", 3),
        ("|a", 1),
        ("a|", 2),
        ("|", 1),
        ("ein haus", 4),
        ("ab\\", 3),
        (r"ab|\q", 4),
        (r"\x4", 1),
        (r"ü\xG0", 2),
        (r"\u12", 1),
        (r"\U0001f600", 1),
    ],
)
def test_what_shows_no_pieces_is_told_with_its_place(shown, at):
    with refuses(InputError, f"f.txt:7: character {at}: "):
        split_pieces(shown, "f.txt:7")
    with refuses(InputError, f"character {at}: "):
        split_pieces(shown)


@given(st.text(AWKWARD | ANY, max_size=12))
def test_any_line_is_pieces_or_an_error(shown):
    try:
        pieces = split_pieces(shown)
    except InputError:
        return
    assert all(pieces)
    assert split_pieces(join_pieces(pieces)) == pieces
