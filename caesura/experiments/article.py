"""The page about a recipe's results, DIR.md beside DIR: its tables are made anew, its words stay."""

from __future__ import annotations

import os
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
MARK = re.compile(r"<!-- table (.+) -->")
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
            row.insert(beside, found and str(found))
    return Table(name, name, columns, rows)


def refresh(page: Path, tables: Mapping[str, Table]) -> bool:
    """Put tables between `<!-- table NAME -->` and `<!-- end -->`; False where a page has no such places.

    All other lines stay as they are: a place that holds more than rows of a table is refused.
    """
    if not page.is_file():
        return False
    page = page.resolve()  # a link stays one
    try:
        text = page.read_bytes().decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InputError(f"{page}: not a page in UTF-8: {problem}") from problem
    made: list[str] = []
    begun = 0  # the line where the place of a table began
    for number, line in enumerate(text.split("\n"), 1):
        bare, ending = line.rstrip(), line[len(line.rstrip("\r")) :]
        if begun and bare and not bare.startswith("|") and bare != END:
            remedy = f"and end with a line {END}; line {number} is neither"
            raise InputError(f"{page}:{begun}: the place of a table should have its rows alone, {remedy}")
        if not begun or bare == END:
            made.append(line)
        if bare == END:
            if not begun:
                raise InputError(f"{page}:{number}: {END}, but no <!-- table NAME --> before it")
            begun = 0
        elif mark := MARK.fullmatch(bare):
            if mark[1] not in tables:
                there = f"there are some of {', '.join(tables)}"
                raise InputError(f"{page}:{number}: no results of a table {mark[1]}; {there}")
            begun = number
            made += [row + ending for row in tables[mark[1]].markdown().rstrip("\n").split("\n")]
    if begun:
        raise InputError(f"{page}:{begun}: the place of a table should end with a line {END}")
    if (new := "\n".join(made)) != text:
        if not os.access(page, os.W_OK):
            raise InputError(f"{page}: its tables cannot be made anew, because it is read-only")
        write_whole(page, new)
    return any(map(MARK.fullmatch, map(str.rstrip, made)))
