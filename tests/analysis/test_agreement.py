"""Agreement of boundaries: as the evaluation counts it, and only where the reference speaks."""

import random

import pytest
from helpers import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.agreement import (
    Agreement,
    Agreements,
    agreement,
    before_spaces,
    train_bpe,
    with_own_text,
)
from caesura.analysis.gold import Gold, GoldLine
from caesura.analysis.segments_chapter import _against
from caesura.evaluation.boundaries import boundary_table

texts = st.text("ab c", min_size=2, max_size=9)
lines = st.lists(
    texts.flatmap(
        lambda t: st.tuples(st.just(t), *[st.sets(st.integers(1, len(t) - 1)).map(tuple) for _ in "pg"])
    ),
    min_size=1,
    max_size=5,
)


@given(lines)
def test_it_counts_as_the_evaluation_does(
    triples: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
) -> None:
    sources, cuts, gold = map(list, zip(*triples, strict=True))
    ours = agreement("x", "gold", cuts, [GoldLine(t, g) for t, g in zip(sources, gold, strict=True)])
    assert ours.rows == boundary_table(sources, cuts, gold)


def test_places_that_are_not_judged_do_not_count() -> None:
    line = GoldLine("ab cde", (4,), frozenset({4, 5}))
    row = agreement("x", "gold", [(1, 4)], [line]).rows["model"]
    assert (row.precision, row.recall, row.predicted) == (1.0, 1.0, 1)


def test_a_cut_after_the_space_is_one_before_it() -> None:
    assert before_spaces("ab  cd e", (1, 4, 7)) == (1, 2, 6)
    assert before_spaces(" ab", (1,)) == ()


def test_a_text_is_compared_with_spaces_bpe_and_gold() -> None:
    text = "der tisch der tisch"
    bpe = train_bpe([text], 40)
    agreements = Agreements(bpe, Gold("lexicon", lexicon={"tisch": (3,)}))
    agreements.add(1, text, (4, 10), own_gold=(3,))
    tables = {table.reference: table.rows for table in agreements.result()}
    assert list(tables) == ["white space", "white space, either side", "BPE", "gold", "lexicon"]
    assert tables["white space"]["model"].f1 == 0
    assert tables["white space, either side"]["model"].precision == 1
    assert tables["white space"]["whitespace"].f1 == tables["BPE"]["BPE"].f1 == 1
    assert tables["gold"]["model"].correct == 0
    assert tables["lexicon"]["model"].gold == 2
    assert tables["lexicon"]["model"].predicted == 0  # both of its cuts are outside the listed words


def test_a_reference_without_boundaries_is_left_out() -> None:
    agreements = Agreements(None, None)
    agreements.add(1, "einwort", (3,), None)
    assert agreements.result() == []


@pytest.mark.parametrize(
    ("gold", "messages"),
    [
        (None, []),
        (Gold("file", offsets=[(2,)]), ["file"]),
        (Gold("file", lines=[GoldLine("abcd", (2,))]), ["file"]),  # the same sentence
        (Gold("file", lines=[GoldLine("dcba", (2,))]), ["file, alone"]),
        (Gold("file", lexicon={"abcd": (2,)}), ["file", "file, alone"]),
        (Gold("file", lexicon={"dcba": (2,)}), ["file, alone"]),
    ],
)
def test_sentences_of_the_gold_are_not_told_twice(gold: Gold | None, messages: list[str]) -> None:
    agreements = Agreements(None, gold)
    agreements.add(1, "abcd", (1,), None)
    tables = with_own_text(agreements.result(), tiny_model(), gold)
    assert [table.reference for table in tables] == messages
    assert [table.alone for table in tables] == [name.endswith("alone") for name in messages]


@pytest.mark.parametrize("lines", [[], ["", " "], ["日本語の文字は多い"]])
def test_no_bpe_where_the_characters_alone_are_too_many(lines: list[str]) -> None:
    assert train_bpe(lines, 10) is None


def test_a_baseline_that_is_right_everywhere_is_still_shown() -> None:
    result = agreement("gold", "about", [()], [GoldLine("ab", (1,))])
    scores = result.rows
    rows, note = _against("gold", [("m", result)], 2)
    assert "on 1 of 2 lines" in note
    assert scores["every character"].f1 == 1
    assert ("every character", 1.0, 1.0, 1.0) in rows
    same, _ = _against("white space", [("m", Agreement("white space", "about", 1, scores))], 2)
    assert "whitespace" not in [label for label, *_ in same]


def test_chance_is_what_random_cuts_reach_on_either_side_of_a_space_too() -> None:
    draw, tables = random.Random(1), Agreements(None, None)
    for number in range(400):
        text = " ".join("x" * draw.randint(2, 7) for _ in range(12))
        bounds = [place for place in range(1, len(text)) if draw.random() < 0.25]
        tables.add(number, text, bounds, None)
    for table in tables.result():
        assert table.chance == pytest.approx(table.rows["model"].f1, abs=0.01), table.reference
