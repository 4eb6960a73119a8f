"""The page about a recipe's results, DIR.md beside DIR: its tables are made anew, its words stay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from caesura.analysis.tables import Cell, Column, Table
from caesura.data.files import write_whole
from caesura.errors import InputError
from caesura.experiments.appendix import Pair
from caesura.experiments.result_tables import BOUNDARIES, DECODING, FIDELITY, FLIP, PACE, comparison_table
from caesura.experiments.results import SystemResult

END = "<!-- end -->"
MARK = re.compile(r"^<!-- table (.+) -->\n", re.MULTILINE)
PLACE = re.compile(rf"{MARK.pattern}(?:(?!<!-- ).*\n)*{END}$", re.MULTILINE)
KEPT = ("system", "seeds", "segments (longest)", "BLEU", "chrF2", FIDELITY, FLIP, BOUNDARIES, PACE, DECODING)


def page_of(out: Path) -> Path:
    """The page about the results in a folder."""
    return Path(f"{out.resolve()}.md")


def article_table(name: str, results: Sequence[SystemResult], pairs: Sequence[Pair]) -> Table:
    """The columns that a page has room for, and how far each system is above the first one."""
    table = comparison_table(name, name, results)
    at = [place for place, column in enumerate(table.columns) if column.name in KEPT]
    columns = [table.columns[place] for place in at]
    rows: list[list[Cell]] = [[row[place] for place in at] for row in table.rows]
    if pairs:
        first = pairs[0].other
        above = {pair.system: pair.bleu for pair in pairs if pair.other == first}
        beside = 1 + [column.name for column in columns].index("BLEU")
        columns.insert(beside, Column(f"BLEU - {first} (95%)", "s"))
        for row in rows:
            found = above.get(str(row[0]))
            row.insert(beside, found and f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})")
    return Table(name, name, columns, rows)


def refresh(page: Path, tables: Mapping[str, Table]) -> bool:
    """Put tables between `<!-- table NAME -->` and `<!-- end -->`; False where a page has no such places."""
    if not page.is_file():
        return False
    try:
        text = page.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(f"{page}: not a page in UTF-8: {problem}") from problem
    places = {match.start() for match in PLACE.finditer(text)}
    for mark in MARK.finditer(text):
        where = f"{page}:{text.count(chr(10), 0, mark.start()) + 1}"
        if mark.start() not in places:
            raise InputError(f"{where}: the place of a table should end with a line {END}")
        if mark[1] not in tables:
            raise InputError(
                f"{where}: no results of a table {mark[1]}; there are some of {', '.join(tables)}"
            )
    made = PLACE.sub(lambda place: f"<!-- table {place[1]} -->\n{tables[place[1]].markdown()}{END}", text)
    if made != text:
        write_whole(page, made)
    return bool(places)
