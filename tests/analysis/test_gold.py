"""Gold segmentations in the formats that they come in, and what is said where they say nothing."""

import lzma
from pathlib import Path
from unittest import mock

import pytest
from wording import refuses

from caesura.analysis.gold import Gold, GoldLine, read_gold
from caesura.errors import InputError


def gold(tmp_path: Path, text: str, name: str = "gold.tsv") -> Gold:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_gold(tmp_path / name)


def test_compounds_are_looked_up_as_whole_words(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "warnhinweise\twarn hinweise\twarn+hinweis(e)\nweitere\tweitere\tweitere\n")
    line = boundaries.in_text(1, "Die Warnhinweise, weitere Warnhinweise")
    assert line is not None
    assert line.bounds == (30,)  # the first has a comma: not the whole word
    assert line.judged == {*range(19, 25), *range(27, 38)}
    assert boundaries.in_text(2, "nichts davon") is None
    assert boundaries.own_text() == [GoldLine("warnhinweise", (4,)), GoldLine("weitere", ())]


def test_morphemes_that_do_not_spell_the_word_are_left_out(tmp_path: Path) -> None:
    standard = gold(tmp_path, "merchandizes\tmerchandize @@s\t100\nsubsidised\tsubside @@y @@ise @@ed\t110\n")
    assert standard.lexicon == {"merchandizes": (11,)}


def test_a_lexicon_may_have_entries_of_several_words(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "afghans\tafghan s\nde facto\tde facto\nincult\tincult\n")
    assert boundaries.lexicon == {"afghans": (6,), "incult": ()}


def test_sentences_in_morphemes_are_judged_where_their_words_are_spelled(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "It comes , having\tIt come @@s , have @@ing\n***\t***\na b\ta b\n")
    assert boundaries.lines == [
        GoldLine("It comes , having", (7,), frozenset({1, *range(4, 8)})),
        GoldLine("***", (), frozenset({1, 2})),
        GoldLine("a b", (), frozenset()),
    ]
    assert boundaries.in_text(1, "It comes , having") == boundaries.lines[0]
    assert boundaries.in_text(1, "another text") is None
    assert boundaries.in_text(4, "beyond the file") is None


def test_words_of_a_language_without_spaces(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "これ に 不快 感\n私 は\n", "ja.words")
    assert boundaries.lines == [GoldLine("これに不快感", (2, 3, 5)), GoldLine("私は", (1,))]
    assert boundaries.in_text(1, "これに不快感") == boundaries.lines[0]


def test_words_are_found_in_a_text_with_other_spaces(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "a bc d\n", "words")
    assert boundaries.in_text(1, "ab  cd") == GoldLine("ab  cd", (1, 5))


def test_offsets_of_the_source(tmp_path: Path) -> None:
    boundaries = gold(tmp_path, "2 4\n\n1\n", "x.bounds")
    assert boundaries.in_text(1, "abcdef") == GoldLine("abcdef", (2, 4))
    assert boundaries.in_text(2, "abc") == GoldLine("abc", ())
    assert boundaries.own_text() == []
    with refuses(InputError, "x.bounds:3: "):
        boundaries.in_text(3, "a")
    with refuses(InputError, "x.bounds: "):
        boundaries.in_text(4, "a")


def test_a_compressed_file(tmp_path: Path) -> None:
    (tmp_path / "g.tsv.xz").write_bytes(lzma.compress(b"incult\tincult\nafghans\tafghan s\n"))
    assert read_gold(tmp_path / "g.tsv.xz").lexicon == {"incult": (), "afghans": (6,)}


@pytest.mark.parametrize(
    ("text", "place"), [("", "gold.tsv: "), ("a\ta\nno tab\n", "gold.tsv:2: "), ("a\tb\n", "gold.tsv: ")]
)
def test_what_is_no_gold_is_refused(tmp_path: Path, text: str, place: str) -> None:
    with refuses(InputError, "", place):
        gold(tmp_path, text)


def test_a_line_over_the_limit_does_not_move_those_after_it(tmp_path: Path) -> None:
    with mock.patch("caesura.analysis.gold.read_lines", return_value=[None, "a bc"]):
        boundaries = read_gold(tmp_path / "words")
    assert boundaries.in_text(2, "abc") == GoldLine("abc", (1,))
