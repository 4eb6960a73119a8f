"""One report of everything: JSON, tables, figures, and a page that a person reads from top to bottom."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from caesura import __version__
from caesura.analysis import chapters, tables
from caesura.analysis.drawings import Drawing, count
from caesura.analysis.findings import Analysis, plain
from caesura.analysis.glance import glance
from caesura.analysis.page import fold, page, table_html
from caesura.analysis.plots import png_of, style
from caesura.data.files import read_json, refuse_odd, write_beside
from caesura.data.held import make_folder
from caesura.errors import InputError
from caesura.evaluation.scores import Comparison

PAGE, NUMBERS = "report.html", "analysis.json"


@dataclass
class Report:
    """What is written: the page, and the tables and figures beside it."""

    models: Sequence[Analysis]
    compared: Mapping[str, Comparison] = field(default_factory=dict)  # paired bootstrap, by model
    missing: str = ""  # a phrase on models that should be here and are not

    @property
    def baseline(self) -> str | None:
        """The model that the others are compared with: the one without a p-value."""
        return next((name for name, row in self.compared.items() if row.bleu.p_value is None), None)

    def write(self, out: Path) -> Path:
        """Write everything into a folder, in the place of a report before it; the page's path."""
        clear(out)
        html, figures = self.page()
        files = {PAGE: html.encode("utf-8", "replace")}  # a lone surrogate, as a broken file may hold
        for table in tables.tables(self.models, self.compared):
            files[f"tables/{table.key}.csv"] = table.csv().encode("utf-8", "replace")
            files[f"tables/{table.key}.txt"] = table.text().encode("utf-8", "replace")
        for name, drawing in figures.items():
            svg = drawing.svg.replace("<svg ", '<svg style="background:#fff" ', 1)
            files[f"figures/{name}.svg"] = svg.encode("utf-8", "replace")
            files[f"figures/{name}.png"] = png_of(drawing.figure)
        for name, content in files.items():
            make_folder((out / name).parent)
            with write_beside(out / name) as file:
                file.write(content)
        written = [*files, *_write_board(out, figures)]
        numbers = json.dumps(
            {**self.numbers(), "files": written}, ensure_ascii=False, indent=1, allow_nan=False
        )
        with write_beside(out / NUMBERS) as file:
            file.write(numbers.encode("utf-8", "replace") + b"\n")
        return out / PAGE

    def numbers(self) -> dict[str, Any]:
        """Every number, for JSON; null where there is none. The weights of single heads are drawn alone."""
        return {
            "caesura": __version__,
            "models": [plain(_without_heads(a)) for a in self.models],
            "bootstrap": {name: plain(row) for name, row in self.compared.items()} or None,
        }

    def page(self) -> tuple[str, dict[str, Drawing]]:
        """The page, and the figures that are in it."""
        figures: dict[str, Drawing] = {}
        sections = [
            (key, chapters.title(key, name, self.models), about, body)
            for key, name, about, write in chapters.CHAPTERS
            if (body := write(self.models, figures))
        ]
        names = ", ".join(a.name for a in self.models)
        return page(f"Caesura: {names}", self._head(), sections, self._foot()), figures

    def _head(self) -> str:
        first = self.models[0]
        text = first.text
        heading = (
            "How it was cut"
            if len(self.models) == 1
            else f"How {_number(len(self.models))} models cut the same text"
        )
        lead = f"{count(text.sentences, 'sentence')} of {escape(text.name)}"
        if first.scores:
            lead += f", translated with {text.search}"
        if self.missing:
            lead += f". <strong>{escape(self.missing)}</strong>"
        table = table_html(tables.overview(self.models, self.compared), note=self._note())
        return (
            f'<h1>{heading}</h1><p class="lead">{lead}.</p>'
            f"{glance(self.models, self.compared, self.baseline)}{fold('All scores', table)}"
        )

    def _note(self) -> str:
        notes = []
        if self.compared:
            notes.append(
                f"p: paired bootstrap of BLEU against {escape(self.baseline or '')}; ±: the model’s own 95% "
                "interval"
            )
        sources = [*list(self.compared.values())[:1], self.models[0].scores]
        if source := next((s for s in sources if s), None):
            notes += [f"<code>{escape(source.signatures[key])}</code>" for key in ("bleu", "chrf")]
        if self.models[0].text.too_long:
            notes.append(
                f"over testing.max_input and taken as empty: {count(self.models[0].text.too_long, 'line')}"
            )
        return " · ".join(notes)

    def _foot(self) -> str:
        text = self.models[0].text
        sampled = "Gates, attention" if any(a.gates for a in self.models) else "Attention"
        parts = [
            f"{sampled} and typos: a sample of {count(text.sample, 'sentence')}, seed {text.seed}.",
            f"Translated: {count(text.translated, 'sentence')}.",
            f"Counts of training text: {escape(text.training)}.",
            f"Every number is in <code>{NUMBERS}</code>, tables and figures are beside it.",
            f"Made with Caesura {__version__}.",
        ]
        return " ".join(parts)


def _without_heads(a: Analysis) -> Analysis:
    """Without the weights of every head along lines: there are thousands of them."""
    drawn = [replace(d, attention=replace(d.attention, heads=None)) if d.attention else d for d in a.drawn]
    return replace(a, drawn=drawn)


def _number(n: int) -> str:
    return (
        ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")[n]
        if n < 10
        else str(n)
    )


def refuse_another(out: Path, models: Sequence[str], text: str) -> None:
    """Refuse a folder with a report of other models or of another text; one of the same may be replaced."""
    try:
        refuse_odd([out / NUMBERS])
        old = read_json(out / NUMBERS)["models"]
        held = [model["name"] for model in old], old[0]["text"]["name"]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return
    if held != ([*models], text):
        report = f"{', '.join(held[0])} on {held[1]}"
        raise InputError(f"{out}: holds a report of {report} that would be overwritten; choose another --out")


def clear(out: Path) -> None:
    """Take away the files that an earlier report says are its own; nothing else in the folder."""
    try:
        owned = read_json(out / NUMBERS)["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in (*owned, NUMBERS):
        path = Path(name)
        if not path.is_absolute() and ".." not in path.parts:
            (out / path).unlink(missing_ok=True)


def _write_board(out: Path, figures: Mapping[str, Drawing]) -> list[str]:
    """The figures for TensorBoard, where it is installed; the files that were written."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return []
    folder = out / "tensorboard"
    before = set(folder.glob("events.*"))
    with SummaryWriter(folder) as board, style():
        for name, drawing in figures.items():
            board.add_figure(name, drawing.figure, close=False)
    return sorted(path.relative_to(out).as_posix() for path in set(folder.glob("events.*")) - before)
