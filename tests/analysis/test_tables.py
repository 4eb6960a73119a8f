"""A table is the same in text, Markdown and CSV, whatever script it is in."""

import csv
import io

from caesura.analysis.tables import Column, Table

TABLE = Table(
    "t",
    "a table",
    [Column("segment"), Column("count", ","), Column("share", ".1%")],
    [["きる", 1234, 0.5], ['a,"b"', None, float("nan")]],
)


def test_text_is_aligned_by_what_is_seen() -> None:
    assert TABLE.text().split("\n") == [
        "a table",
        "",
        "segment  count  share",
        "きる     1,234  50.0%",
        'a,"b"',
        "",
    ]


def test_csv_has_the_values() -> None:
    assert list(csv.reader(io.StringIO(TABLE.csv()))) == [
        ["segment", "count", "share"],
        ["きる", "1234", "0.5"],
        ['a,"b"', "", "nan"],
    ]


def test_markdown_keeps_its_columns_whatever_is_in_a_cell() -> None:
    table = Table("t", "a table", TABLE.columns, [["a|b", 1234, 0.5], ["c", None, None]])
    assert table.markdown().splitlines() == [
        "| segment | count | share |",
        "| --- | ---: | ---: |",
        r"| a\|b | 1,234 | 50.0% |",
        "| c |  |  |",
    ]
