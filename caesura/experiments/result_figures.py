"""The figures of a recipe: BLEU on dev over training, and BLEU on test against segment length."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from matplotlib.axes import Axes

from caesura.analysis.plots import COLOURS, Figure, Look, label_ends, looks, short, styled
from caesura.experiments.outcome import rounded
from caesura.experiments.recipe import Recipe
from caesura.experiments.result_tables import time_shown
from caesura.experiments.results import SystemResult, by_table

CURVES, BY_LENGTH = "curves.png", "by_length.png"
CAPTIONS = {
    BY_LENGTH: "BLEU on test against characters per segment on dev, means over seeds, one line per series",
    CURVES: "BLEU on dev over the training sentences seen, one line per seed, with a dot at its best "
    "validation",
}
WIDTH, HEIGHT = 8.0, 2.5  # inches: of a figure, and of the panel of a table, at least
TALL = 3.6  # inches: the panel of a table with series
FRAME = 0.7  # inches of a panel outside its axes
TITLE = 80  # characters of a line of a table's title
GAP = 0.17  # between names, in inches

Point = tuple[float, float]  # characters per segment, BLEU


@styled
def curves_figure(recipe: Recipe, results: Sequence[SystemResult]) -> Figure:
    """One panel per table, one line per seed, and for each system the time to best in its table.

    Over sentences, because trainings that share a machine do less per second. Only numbers that metrics/
    keeps are drawn, whether or not the folders are there.
    """
    tables = by_table(result for result in results if result.best is not None)
    titles = [textwrap.fill(recipe.tables[name].title, TITLE) for name in tables]
    heights = [max(HEIGHT, GAP * (len(listed) + 1) + FRAME) for listed in tables.values()]
    height = sum(heights) + GAP * sum(title.count("\n") for title in titles)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(len(tables), 1, sharey=True, squeeze=False, height_ratios=heights)[:, 0]
    seen = _system_looks(recipe)
    panels = [_lines(axes, listed, seen) for axes, listed in zip(grid, tables.values(), strict=True)]
    grid[0].set_ylim(bottom=0)
    for axes, title, ends, tall in zip(grid, titles, panels, heights, strict=True):
        axes.set_title(title, loc="left", fontsize=9.5)
        axes.set_xlim(left=0)
        axes.set_ylabel("BLEU, dev")
        axes.xaxis.set_major_formatter(short)
        label_ends(axes, ends, GAP / (tall - FRAME))
        starred = any(name.endswith("*") for name, *_ in ends)
        axes.annotate(
            "time to best" + " (* side by side)" * starred, (1.03, 1), xytext=(0, 9), fontsize=8.5,
            xycoords="axes fraction", textcoords="offset points", annotation_clip=False,
        )  # fmt: skip
    grid[-1].set_xlabel("training sentences seen")
    return figure


def _system_looks(recipe: Recipe) -> dict[str, Look]:
    """By system: char and char-3layer have one colour everywhere, and within a table other dashes."""
    by_system, kinds = {}, dict[str, int]()
    for table, listed in recipe.tables.items():
        used = Counter[int]()
        for row in listed.rows:
            place = kinds.setdefault(row.partition("-")[0], len(kinds)) % len(COLOURS)
            by_system[f"{table}-{row}"] = next(islice(looks(), place + used[place] * len(COLOURS), None))
            used[place] += 1
    return by_system


def _lines(
    axes: Axes, results: Sequence[SystemResult], seen: Mapping[str, Look]
) -> list[tuple[str, str, float, float]]:
    """Draw the curves of a table; the names of its systems, with colours and where a line of each ends."""
    ends = []
    for result in results:
        look, last = seen[result.system.name], (0.0, 0.0)
        for outcome in result.outcomes.values():
            if outcome.best is None:
                continue
            points = [(v["sentences"], rounded(v["bleu"])) for v in outcome.validations]
            axes.plot(*zip(*points, strict=True), color=look.colour, linestyle=look.dashes, linewidth=1.1)
            best = outcome.best["sentences"], outcome.best["bleu"]
            axes.plot(*best, color=look.colour, marker=look.marker, markersize=4)
            last = points[-1]
        name = f"{result.system.title}: {time_shown(result, 'seconds_to_best')}"
        ends.append((name, look.colour, *last))
    return ends


def series_of(results: Sequence[SystemResult]) -> dict[str, dict[str, list[Point]]]:
    """By table and series, the points of tested systems, short segments first; no table without a line."""
    tables: dict[str, dict[str, list[Point]]] = {}
    for result in results:
        length, bleu = result.figure("segment_length"), result.figure("bleu")
        if (name := result.system.series) is not None and length is not None and bleu is not None:
            series = tables.setdefault(result.system.table, {})
            series.setdefault(name, []).append((rounded(length.mean), rounded(bleu.mean)))
    return {
        name: {key: sorted(points) for key, points in table.items()}
        for name, table in tables.items()
        if any(len(points) > 1 for points in table.values())
    }


@styled
def by_length_figure(recipe: Recipe, results: Sequence[SystemResult]) -> Figure:
    """One panel per table with series, one marker per system, and a line through each series."""
    tables = series_of(results)
    names = [row.series for table in recipe.tables.values() for row in table.rows.values() if row.series]
    seen = dict(zip(dict.fromkeys(names), looks(), strict=False))  # the same whichever series have points
    figure = Figure(figsize=(WIDTH, TALL * len(tables)), layout="constrained")
    grid = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for axes, (name, table) in zip(grid, tables.items(), strict=True):
        for series, points in table.items():
            look = seen[series]
            axes.plot(
                *zip(*points, strict=True), color=look.colour, linestyle=look.dashes, marker=look.marker,
                markersize=5, linewidth=1.1, label=series,
            )  # fmt: skip
        title = textwrap.fill(recipe.tables[name].title, TITLE)
        axes.set_title(title, loc="left", fontsize=9.5)
        axes.set_ylabel("BLEU, test")
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=8.5)
    grid[-1].set_xlabel("characters per segment")
    return figure
