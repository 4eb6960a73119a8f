"""Whatever a stranger wrote, what is shown of it is one line of bounded length that can be seen."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.config.yamlfile import show
from caesura.errors import InputError, TrainingError
from caesura.visible import LINE, VALUE, each_line, escaped, one_line, quoted, shortened

ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
HOSTILE = st.sampled_from(
    [*"\x1b\x07\n\r\x85\u2028\u2029\x9b\u202e\u2066\u200b\u200d\ud800\udcff\ufeff\xad[]"]
)
LONG = st.builds(lambda part, times: part * times, ANY, st.integers(1, 3000))
TEXT = st.one_of(ANY, LONG, st.lists(st.one_of(HOSTILE, ANY), max_size=20).map("".join))

# Signs that can be seen although Unicode counts them among the format characters, by Unicode's own list.
SEEN = {*"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"}
AFTER_SCRIPTS = {*"\u061c\u200b\u200c\u200d\u200e\u200f"}  # which need them between their letters


def can_be_seen(text: str) -> bool:
    """Whether there is no control, line separator, surrogate or other format character in it."""
    kinds = {c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp", "Cf")}
    return kinds <= SEEN | AFTER_SCRIPTS


@given(TEXT)
def test_whatever_is_shown_can_be_seen_and_is_bounded(text: str) -> None:
    for shown, limit in (
        (escaped(text), 10 * len(text)),
        (one_line(text), LINE),
        (shortened(text), VALUE),
        (quoted(text, 20), 20),
        (show(text), VALUE),
        (show([text, {text: 1}]), VALUE),
        (str(InputError(text)), LINE),
        (str(TrainingError(text)), LINE),
    ):
        assert can_be_seen(shown)
        assert len(shown) <= limit
        shown.encode()  # no half of a character


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_lines_stay_as_many_as_the_program_made(texts: list[str]) -> None:
    refusal = str(InputError(*texts))
    assert refusal.count("\n") == len(texts) - 1
    assert str(InputError(*refusal.split("\n"))).count("\n") == len(texts) - 1
    assert each_line("\n".join(texts)).count("\n") == "\n".join(texts).count("\n")


def test_every_character_that_cannot_be_seen_is_escaped_where_it_stands_alone() -> None:
    # Planes 4 to 13 are empty, and 15 and 16 for private use: of those, some are enough.
    every = [*range(0x40000), *range(0xE0000, 0xF0000), *range(0x40000, 0x110000, 97)]
    kept = {chr(i) for i in every if escaped(f"a{chr(i)}") == f"a{chr(i)}"}
    hidden = {c for c in kept if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert hidden == SEEN
    changed = {*map(chr, every)} - kept
    assert {unicodedata.category(c) for c in changed} == {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}


@pytest.mark.parametrize(
    "text",
    [
        *("Größe, Ça va?", "漢字かな", "العربية ۝", "می‌خواهم", "שלום\u200f!", "e\u0301x\u0323", "ก\u200bข"),
        *("क्‍ष", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽", "葛\U000e0100", "[bold]x[/bold] :heart:", "a\\nb", "\u3000\xa0"),
    ],
)
def test_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert one_line(text) == escaped(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("a\u202eb", r"a\u202eb"),
        ("ta\u200bu", r"ta\u200bu"),
        ("a\tb\nc\x85d\u2028e", r"a\tb\nc\x85d\u2028e"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_is_escaped_is_named(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_of_a_long_line_the_beginning_and_the_end_are_shown() -> None:
    shown = one_line("here: " + "x" * 50_000_000 + ": no such file")
    assert re.fullmatch(r"here: x+ \.\.\. \(50,000,020 characters\) \.\.\. x+: no such file", shown)
    assert len(shown) == LINE
