"""The picture of what segments cost: BLEU on test against characters per segment."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from caesura.analysis.figures import styled
from caesura.analysis.plots import Figure, Look, looks
from caesura.experiments.curves import TITLE, WIDTH
from caesura.experiments.recipe import Recipe
from caesura.experiments.results import SystemResult, rounded

BY_LENGTH = "by_length.png"
CAPTION = "BLEU on test against characters per segment on dev, means over seeds, one line per series"
HEIGHT = 3.6  # inches, of a table's part

Point = tuple[float, float]  # characters per segment, BLEU


def series_of(results: Sequence[SystemResult]) -> dict[str, dict[str, list[Point]]]:
    """By table and series, the points of tested systems, short segments first; no table without a line."""
    found: dict[str, dict[str, list[Point]]] = {}
    for result in results:
        length, bleu = result.figure("segment_length"), result.figure("bleu")
        if (name := result.system.series) is not None and length is not None and bleu is not None:
            table = found.setdefault(result.system.table, {})
            table.setdefault(name, []).append((rounded(length.mean), rounded(bleu.mean)))
    return {
        name: {key: sorted(points) for key, points in table.items()}
        for name, table in found.items()
        if any(len(points) > 1 for points in table.values())
    }


@styled
def by_length_figure(recipe: Recipe, results: Sequence[SystemResult]) -> Figure:
    """One panel per table with series, a marker per system, and a line through those of a series."""
    tables, seen = series_of(results), _looks(recipe)
    figure = Figure(figsize=(WIDTH, HEIGHT * len(tables)), layout="constrained")
    grid = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        for series, points in table.items():
            look = seen[series]
            axes.plot(
                *zip(*points, strict=True), color=look.colour, linestyle=look.dashes, marker=look.marker,
                markersize=5, linewidth=1.1, label=series,
            )  # fmt: skip
        title = textwrap.fill(recipe.tables[name].title, TITLE)
        axes.set_title(title, loc="left", fontsize=9.5, parse_math=False)
        axes.set_ylabel("BLEU, test")
        legend = axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=8.5)
        for text in legend.get_texts():
            text.set_parse_math(False)
    grid[-1].set_xlabel("characters per segment")
    return figure


def _looks(recipe: Recipe) -> Mapping[str, Look]:
    """Those of series, the same whichever of them are there."""
    names = [row.series for table in recipe.tables.values() for row in table.rows.values() if row.series]
    return dict(zip(dict.fromkeys(names), looks(), strict=False))
