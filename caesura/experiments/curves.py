"""The picture of a recipe's trainings: BLEU on dev as sentences are seen."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from caesura.analysis.figures import styled
from caesura.analysis.plots import COLOURS, Figure, Look, label_ends, looks, short
from caesura.experiments.recipe import Recipe
from caesura.experiments.result_tables import time_shown
from caesura.experiments.results import SystemResult, rounded

CURVES = "curves.png"
CAPTION = "BLEU on dev over the training sentences seen, one line per seed, with a dot at its best validation"
WIDTH, HEIGHT = 8.0, 2.5  # inches: of the figure, and of a table's part of it, at least
FRAME = 0.7  # inches of a part that its axes do not have
TITLE = 80  # characters of a line of a table's title
GAP = 0.17  # between names, in inches


@styled
def curves_figure(recipe: Recipe, results: Sequence[SystemResult]) -> Figure:
    """One panel per table, one line per seed, and for each system the time to best that its table has.

    Sentences, because a second is worth less where trainings share the machine. What is drawn is what
    metrics/ keeps, whether or not the folders are there.
    """
    tables: dict[str, list[SystemResult]] = {}
    for result in results:
        if result.best is not None:
            tables.setdefault(result.system.table, []).append(result)
    titles = [textwrap.fill(recipe.tables[name].title, TITLE) for name in tables]
    heights = [max(HEIGHT, GAP * (len(listed) + 1) + FRAME) for listed in tables.values()]
    height = sum(heights) + GAP * sum(title.count("\n") for title in titles)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    grid = figure.subplots(len(tables), 1, sharey=True, squeeze=False, height_ratios=heights)[:, 0]
    seen = _looks(recipe)
    panels = [_lines(axes, listed, seen) for axes, listed in zip(grid, tables.values(), strict=True)]
    grid[0].set_ylim(bottom=0)
    for axes, title, ends, tall in zip(grid, titles, panels, heights, strict=True):
        axes.set_title(title, loc="left", fontsize=9.5, parse_math=False)
        axes.set_xlim(left=0)
        axes.set_ylabel("BLEU, dev")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))
        label_ends(axes, ends, GAP / (tall - FRAME))
        starred = any(name.endswith("*") for name, *_ in ends)
        axes.annotate(
            "time to best" + " (* side by side)" * starred, (1.03, 1), xytext=(0, 9), fontsize=8.5,
            xycoords="axes fraction", textcoords="offset points", annotation_clip=False,
        )  # fmt: skip
    grid[-1].set_xlabel("training sentences seen")
    return figure


def _looks(recipe: Recipe) -> dict[str, Look]:
    """Those of systems: char and char-3layer have one colour everywhere, and within a table other dashes."""
    found, kinds = {}, dict[str, int]()
    for table, listed in recipe.tables.items():
        used = Counter[int]()
        for row in listed.rows:
            place = kinds.setdefault(row.partition("-")[0], len(kinds)) % len(COLOURS)
            found[f"{table}-{row}"] = next(islice(looks(), place + used[place] * len(COLOURS), None))
            used[place] += 1
    return found


def _lines(
    axes: Axes, results: Sequence[SystemResult], seen: Mapping[str, Look]
) -> list[tuple[str, str, float, float]]:
    """Draw those of a table; the names of its systems, with their colours and where a line of each ends."""
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
