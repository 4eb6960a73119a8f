"""One report of everything: JSON, tables, figures, and a page that a person reads from top to bottom."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from html import escape
from pathlib import Path
from typing import Any

from caesura import __version__
from caesura.analysis import chapters, tables
from caesura.analysis.drawings import Drawing
from caesura.analysis.page import cut, page, table_html
from caesura.analysis.plots import png_of, style
from caesura.analysis.study import Analysis
from caesura.data.files import write_beside
from caesura.evaluation.scores import Comparison

PAGE, NUMBERS = "report.html", "analysis.json"


@dataclass
class Report:
    """What is written: the page, and the tables and figures beside it."""

    found: Sequence[Analysis]
    compared: Mapping[str, Comparison] = field(default_factory=dict)  # paired bootstrap, by model

    def write(self, out: Path) -> Path:
        """Write everything into a folder; the page's path."""
        for folder in (out / "tables", out / "figures"):
            folder.mkdir(parents=True, exist_ok=True)
        _write(
            out / NUMBERS, json.dumps(self.numbers(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
        )
        for table in tables.tables(self.found, self.compared):
            _write(out / "tables" / f"{table.key}.csv", table.csv())
            _write(out / "tables" / f"{table.key}.txt", table.text())
        html, figures = self.page()
        for name, drawing in figures.items():
            _write(
                out / "figures" / f"{name}.svg",
                drawing.svg.replace("<svg ", '<svg style="background:#fff" ', 1),
            )
            with write_beside(out / "figures" / f"{name}.png") as file:
                file.write(png_of(drawing.figure))
        _write(out / PAGE, html)
        _write_board(out / "tensorboard", figures)
        return out / PAGE

    def numbers(self) -> dict[str, Any]:
        """Every number, for JSON; null where there is none."""
        return {
            "caesura": __version__,
            "models": [_plain(a) for a in self.found],
            "bootstrap": {name: _plain(row) for name, row in self.compared.items()} or None,
        }

    def page(self) -> tuple[str, dict[str, Drawing]]:
        """The page, and the figures that are in it."""
        figures: dict[str, Drawing] = {}
        sections = [(key, name, write(self.found, figures)) for key, name, write in chapters.CHAPTERS]
        names = ", ".join(a.name for a in self.found)
        return page(f"Caesura: {names}", self._head(), sections, self._foot()), figures

    def _head(self) -> str:
        first = self.found[0]
        text = first.text
        heading = (
            "How it was cut"
            if len(self.found) == 1
            else f"How {_number(len(self.found))} models cut the same text"
        )
        lead = f"{text.sentences:,} sentences of {escape(text.name)}"
        if first.scores:
            lead += ", translated greedily" if text.search == "greedy" else f", translated with {text.search}"
        heroes = ""
        if first.readings:
            number = first.readings[0].number
            for a in self.found:
                for r in a.readings:
                    if r.number == number:
                        heroes += f'<p class="who">{escape(a.name)}: {escape(a.about)}</p>' + cut(
                            r.pieces, "cut hero"
                        )
        table = tables.overview(self.found, self.compared)
        return f'<h1>{heading}</h1><p class="lead">{lead}.</p>{heroes}' + table_html(table, note=self._note())

    def _note(self) -> str:
        said = []
        if self.compared:
            said.append("p and ±: paired bootstrap of BLEU against the first model")
        if scores := self.found[0].scores:
            said += [
                f"<code>{escape(s)}</code>" for s in (scores.signatures["bleu"], scores.signatures["chrf"])
            ]
        if self.found[0].text.too_long:
            said.append(f"{self.found[0].text.too_long} lines over testing.max_input are taken as empty")
        return " · ".join(said)

    def _foot(self) -> str:
        text = self.found[0].text
        parts = [
            f"Gates, attention and typos: a sample of {text.sample:,} sentences, seed {text.seed}.",
            f"Translated: {text.translated:,} sentences.",
            f"Counts of training text: {escape(text.training)}.",
            f"Every number is in <code>{NUMBERS}</code>, tables and figures are beside it.",
            f"Made with Caesura {__version__}.",
        ]
        return " ".join(parts)


def _number(n: int) -> str:
    return (
        ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")[n]
        if n < 10
        else str(n)
    )


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, and what is not a number as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    # A lone surrogate, as a broken file may hold, has no UTF-8.
    with write_beside(path) as file:
        file.write(text.encode("utf-8", "replace"))


def _write_board(folder: Path, figures: Mapping[str, Drawing]) -> None:
    """The figures for TensorBoard, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(folder) as board, style():
        for name, drawing in figures.items():
            board.add_figure(name, drawing.figure, close=False)
