"""`analyze --only inside`: what is kept of a model's segments, gates and attention, and the tables of it."""

from __future__ import annotations

import json

import pytest
from helpers import tiny_model
from wording import refuses

from caesura.analysis.inside import EXAMPLES, inside_tables, measure_inside
from caesura.analysis.lines import Line
from caesura.analysis.training_text import TrainingText
from caesura.data.words import WordCounts
from caesura.errors import InputError

WORDS = WordCounts({"abc": 3}, 3, True)
LINES = [Line(i, "abc abcd efg"[: 6 + i], "abc ab") for i in range(1, 7)] + [Line(7, " ", "x")]


def test_it_is_small_and_the_same_each_time() -> None:
    model = tiny_model()
    records = [measure_inside(model, LINES, "t", 5, TrainingText(WORDS, WORDS)).record() for _ in range(2)]
    assert records[0] == records[1]
    text = json.dumps(records[0], allow_nan=False)
    assert len(text) < 4000
    record = json.loads(text)
    assert record["sentences"] == 6
    assert len(record["examples"]) == EXAMPLES
    assert len(record["gates"]) == 4  # one layer, two directions, two gates
    assert 0 < record["attention"]["end"] < 1
    shown = {table.key for table in inside_tables({"a": record, "b": record})}
    assert {"examples", "gates", "attention"} <= shown


def record(**given: object) -> dict[str, object]:
    empty = {"frequent": {}, "characters": [], "gates": [], "attention": None, "examples": []}
    return empty | given


def test_segments_and_lines_of_several_models_stand_side_by_side() -> None:
    act = record(
        frequent={"2": [["きる", 52, 239], ["n ", 3, 0]], "3": [["abc", 1, None]]},
        characters=[["き", 183, 52]],
        examples=[[3, "き|る", "cut", "the cut"]],
    )
    char = record(examples=[[3, "a", "<unk>", "the cut"]])
    tables = {table.key: table.rows for table in inside_tables({"act": act, "char": char})}
    assert [*tables] == ["frequent", "characters", "examples"]
    assert tables["frequent"] == [
        ["act", 2, "きる 52; n␣ 3", "1 of 2"],
        ["act", 3, "abc 1", ""],
    ]
    assert tables["characters"] == [["act", "き", 183, 52]]
    assert [row[1:] for row in tables["examples"]] == [
        ["reference", "", "the cut"],
        ["act", "き|る", "cut"],
        ["char", "a", "<unk>"],
    ]


@pytest.mark.parametrize("lines", [[], [Line(1, " ", "a")]])
def test_a_text_without_sentences_is_refused(lines: list[Line]) -> None:
    with refuses(InputError, "t"):
        measure_inside(tiny_model(), lines, "t", 5, TrainingText(None, None))
