"""Figures of a recipe in panels: quality against time, places of cuts, effects of moving them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from matplotlib.axes import Axes

from caesura.analysis.plots import Figure, Look, looks, styled
from caesura.experiments.appendix import agreement_of
from caesura.experiments.recipe import Recipe
from caesura.experiments.results import SystemResult, by_table

BESIDE = 3  # panels
COLUMN, ROW, LEGEND = 2.7, 2.6, 0.2  # inches: of a panel, and of a line of the legend
LETTER = 0.08  # inches: of a name in the legend

Value = Callable[[SystemResult], float | None]


def _mean(name: str, times: float = 1.0) -> Value:
    def find(result: SystemResult) -> float | None:
        figure = result.figure(name)
        return None if figure is None else times * figure.mean

    return find


def _above(name: str, chance: str) -> Value:
    """A score minus its value by chance."""

    def find(result: SystemResult) -> float | None:
        score, level = result.figure(name), result.figure(chance)
        return None if score is None or level is None else score.mean - level.mean

    return find


def _agreement(result: SystemResult) -> float | None:
    agreement = agreement_of(result)
    return None if agreement is None else agreement[0].mean - agreement[1].mean


def _length(result: SystemResult) -> float | None:
    figure = result.figure("segment_length")
    return None if figure is None else figure.mean


@dataclass(frozen=True)
class Panel:
    """The content of a panel."""

    y: Value
    label: str
    x: Value = _length
    under: str = "characters per segment"
    error: Value | None = None
    timed: bool = False  # x is a time, which runs side by side lengthen


BLEU = _mean("bleu")
SECONDS, PLACES, MOVES = "seconds.png", "places.png", "moves.png"
FIGURES: dict[str, tuple[Panel, ...]] = {
    SECONDS: (
        Panel(BLEU, "BLEU, test", _mean("milliseconds"), "ms per update", timed=True),
        Panel(BLEU, "BLEU, test", _mean("decoding", 1000), "ms per sentence translated", timed=True),
    ),
    PLACES: (
        Panel(_above("boundary_f1", "boundary_chance"), "word F1, above chance"),
        Panel(_above("either_f1", "either_chance"), "word F1, either side,\nabove chance"),
        Panel(_above("gold_f1", "gold_chance"), "gold F1, above chance"),
        Panel(_mean("surprisal"), "surprisal at cuts,\nall characters = 1"),
        Panel(_agreement, "agreement of seeds,\nF1 above chance"),
    ),
    MOVES: (
        Panel(_mean("fidelity"), "fidelity", error=_mean("fidelity_error")),
        Panel(_mean("flip_gain"), "best flip, nats per symbol"),
        Panel(_mean("greedy_gain"), "greedy flips, nats per symbol"),
    ),
}
CAPTIONS = {
    SECONDS: "BLEU on test against the time per update and per translated sentence, means over seeds",
    PLACES: "Where cuts fall, by characters per segment: at words, at gold boundaries, before surprising "
    "characters, and at the same places for other seeds",
    MOVES: "The fidelity of the cutter's gradient, and what the best flips of cuts would gain",
}


def drawable(results: Sequence[SystemResult], name: str) -> bool:
    """Whether a figure has anything to show."""
    return bool(_tables(results, name))


@styled
def panels_figure(recipe: Recipe, results: Sequence[SystemResult], name: str) -> Figure:
    """A row of panels per table, a line per series through its systems, by the length of their segments."""
    tables = _tables(results, name)
    panels = [p for p in FIGURES[name] if any(_has(p, r) for listed in tables.values() for r in listed)]
    names = [row.series for table in recipe.tables.values() for row in table.rows.values() if row.series]
    seen = dict(zip(dict.fromkeys(names), looks(), strict=False))  # the same whichever series have points
    shown = {r.system.series for listed in tables.values() for r in listed if any(_has(p, r) for p in panels)}
    beside, rows = min(BESIDE, len(panels)), -(-len(panels) // BESIDE)
    width = max(2, beside) * COLUMN
    columns = max(1, int(width / (0.6 + LETTER * max(len(series or "") for series in shown))))
    height = len(tables) * rows * ROW + LEGEND * -(-len(shown) // columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(tables) * rows, beside, squeeze=False)
    for part, (table, listed) in zip(np.split(grid, len(tables)), tables.items(), strict=True):
        for axes, panel in zip_longest(part.flat, panels):
            if panel is None or not any(_has(panel, result) for result in listed):
                axes.set_axis_off()
            else:
                _draw(axes, panel, listed, seen)
        part[0, 0].set_title(recipe.tables[table].title, loc="left", fontsize=9.5)
    handles = [axes.get_legend_handles_labels() for axes in grid.flat]
    by_name = {label: handle for pair in handles for handle, label in zip(*pair, strict=True)}
    labels = [series for series in seen if series in by_name]
    figure.legend(
        [by_name[label] for label in labels], labels, loc="outside lower left", ncols=columns,
        frameon=False, fontsize=8.5,
    )  # fmt: skip
    return figure


def _tables(results: Sequence[SystemResult], name: str) -> dict[str, list[SystemResult]]:
    """The tables with systems of a series of which a panel has a number."""
    listed = by_table(result for result in results if result.system.series is not None)
    return {
        table: some
        for table, some in listed.items()
        if any(_has(panel, result) for panel in FIGURES[name] for result in some)
    }


def _has(panel: Panel, result: SystemResult) -> bool:
    return panel.x(result) is not None and panel.y(result) is not None


def _draw(axes: Axes, panel: Panel, results: Sequence[SystemResult], seen: Mapping[str, Look]) -> None:
    by_series: dict[str, list[tuple[float, float, float]]] = {}
    for result in sorted(results, key=lambda result: _length(result) or 0.0):
        x, y = panel.x(result), panel.y(result)
        error = panel.error(result) if panel.error else None
        if x is not None and y is not None and result.system.series is not None:
            by_series.setdefault(result.system.series, []).append((x, y, error or 0.0))
    for name, points in by_series.items():
        look, (x_values, y_values, errors) = seen[name], zip(*points, strict=True)
        axes.errorbar(
            x_values, y_values, errors if any(errors) else None, color=look.colour, linestyle=look.dashes,
            marker=look.marker, markersize=4, linewidth=1.1, capsize=2, label=name,
        )  # fmt: skip
    axes.set_ylabel(panel.label)
    axes.set_xlabel(panel.under + _sharing(panel, results))


def _sharing(panel: Panel, results: Sequence[SystemResult]) -> str:
    """How many trainings shared the machine whose times these are."""
    together = [result.together for result in results if _has(panel, result)]
    least, most = min(together), max(together)
    if not panel.timed or most == 1:
        return ""
    return f"\n{most if least == most else f'{least} to {most}'} side by side"
