"""The figure of a search for one number: BLEU and segment length over its values."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes

from caesura.analysis.plots import AXIS, COLOURS, INK, Figure, styled
from caesura.experiments.sweep_grid import shown
from caesura.experiments.sweep_looks import HEIGHT, WIDTH, log_lengths, members, name_lines
from caesura.experiments.sweep_results import Sweep

ENOUGH = 4  # values, below which the other figures show it all

Points = Sequence[tuple[int, float]]  # place of the value, number


def searched(sweep: Sweep) -> list[float]:
    """The values of the only key, in rising order; nothing where there are few or other kinds."""
    if len(sweep.over) != 1:
        return []
    values = [sweep.value(run, sweep.over[0]) for run in members(sweep)]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return []
    numbers = sorted({*values})
    return numbers if len(numbers) >= ENOUGH else []


@styled
def by_value(sweep: Sweep) -> Figure:
    """Above, each run's best BLEU on dev, and the baselines'; below, segment length at the end."""
    values, [key] = searched(sweep), sweep.over
    place = {value: i for i, value in enumerate(values)}
    figure = Figure(figsize=(WIDTH, 1.5 * HEIGHT), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    runs = [(place[sweep.value(run, key)], run) for run in members(sweep)]
    _dots(upper, [(x, y) for x, run in runs if (y := run.at_best("bleu")) is not None])
    lengths = [(x, y) for x, run in runs if (y := run.last("segment_length"))]
    _dots(lower, lengths)
    beside = {r.config: y for r in sweep.runs if r.beside and (y := r.at_best("bleu")) is not None}
    for y in beside.values():
        upper.axhline(y, color=INK, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    lower.axhline(1.0, color=AXIS, linewidth=0.9, zorder=0)
    log_lengths(lower.yaxis, [1.0, *(y for _, y in lengths)])
    name_lines(upper, beside)
    upper.set_title("The best BLEU on dev, greedy", loc="left", fontsize=10.5)
    lower.set_title("Characters per segment, at the end", loc="left", fontsize=10.5)
    lower.set_xticks(range(len(values)), [shown(v) for v in values], rotation=90 if len(values) > 8 else 0)
    lower.set_xlabel(key.rpartition(".")[2])
    return figure


def _dots(axes: Axes, points: Points) -> None:
    """A dot per run, and a line through the means."""
    means = [(x, fmean(y for at, y in points if at == x)) for x in sorted({x for x, _ in points})]
    axes.plot(*zip(*points, strict=True), linestyle="", marker="o", markersize=4, color=COLOURS[0])
    axes.plot(*zip(*means, strict=True), linewidth=1.1, color=COLOURS[0], alpha=0.7)
