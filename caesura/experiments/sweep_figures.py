"""Pictures of a sweep, each a function from its results to a figure; nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from caesura.analysis.figures import styled
from caesura.analysis.plots import AXIS, COLOURS, INK, short
from caesura.experiments.sweep_grid import short_name, shown
from caesura.experiments.sweep_results import Result, Sweep

WIDTH, HEIGHT = 7.6, 4.2  # inches; the legend takes the right quarter
DASHES: Sequence[Any] = ("solid", (0, (5, 1.5)), (0, (1, 1.3)), (0, (5, 1.3, 1, 1.3)))
MARKERS = "osD^vP"
OTHER = "#AAAAAA"  # a run without a value of the first key
SMALLEST, LARGEST = 18.0, 190.0  # areas of dots, in square points


@dataclass(frozen=True)
class Looks:
    """How the values of the first two keys that vary are told: by colour, and by dashes or marker."""

    title: str
    colours: Mapping[str, str]
    second: str
    places: Mapping[str, int]  # of the second key's values

    def colour(self, sweep: Sweep, run: Result) -> str:
        """The colour of a run."""
        return self.colours.get(_said(sweep, run, 0), OTHER)

    def place(self, sweep: Sweep, run: Result) -> int:
        """Which dashes and marker a run has."""
        return self.places.get(_said(sweep, run, 1), 0)


def looks(sweep: Sweep) -> Looks:
    """Colours in the order of the values: negative numbers, 0 and positive ones on one scale of places."""
    keys, runs = sweep.over, _members(sweep)
    values = [_ordered(sweep.value(run, key) for run in runs) for key in keys[:2]]
    first, second = [*values, [], []][:2]
    ordinal = len(first) > 1 and all(isinstance(v, int | float) for v in first)
    # Viridis keeps its order for all kinds of colour vision; its yellow end is too faint on white.
    scale = matplotlib.colormaps["viridis"]
    if ordinal:
        colours = [to_hex(scale(0.88 * i / (len(first) - 1))) for i in range(len(first))]
    else:
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(first))]
    names = [short_name(key) for key in [*keys[:2], "", ""][:2]]
    return Looks(
        names[0],
        {shown(value): colour for value, colour in zip(first, colours, strict=True)},
        names[1],
        {shown(value): i for i, value in enumerate(second)},
    )


@styled
def length_curves(sweep: Sweep, field: str = "segment_length") -> Figure:
    """Segment length over training sentences, a line a run, its start marked; baselines are dotted."""
    figure, seen = _axes(), looks(sweep)
    axes = figure.axes[0]
    _lines(axes, sweep, seen, field, lambda value: value if value > 0 else math.nan)
    _log_lengths(axes.yaxis, [v for run in sweep.runs for v in run.column(field)])
    axes.set_ylabel(_unit(field))
    _sentences(axes)
    _legend(axes, seen, dashes=True, extra=[_mark("o", "start", hollow=True)])
    return figure


@styled
def gradient_curves(sweep: Sweep, field: str = "gradient_share") -> Figure:
    """The share of characters whose halting score gets a gradient, over training sentences."""
    figure, seen = _axes(), looks(sweep)
    axes = figure.axes[0]
    _lines(axes, sweep, seen, field, lambda value: value)
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.set_ylabel(f"{'output ' if 'output' in field else ''}characters with halting gradient")
    _sentences(axes)
    _legend(axes, seen, dashes=True, extra=[_mark("o", "start", hollow=True)])
    return figure


@styled
def start_and_end(sweep: Sweep, field: str = "segment_length") -> Figure:
    """Where runs start and end: an arrow a run from the diagonal, where nothing has moved, to its dot.

    Runs with one start would hide each other: they stand a little beside it, in the order of the colours.
    """
    figure, seen = _axes(square=True), looks(sweep)
    axes = figure.axes[0]
    ends = [(run, run.first(field), run.last(field)) for run in _members(sweep)]
    drawn = [(run, a, b) for run, a, b in ends if a and b]
    ranks = {colour: i for i, colour in enumerate(seen.colours.values())}
    for run, start, end in drawn:
        colour = seen.colour(sweep, run)
        middle = (len(ranks) - 1) / 2
        x = start * 1.025 ** (ranks.get(colour, middle) - middle + 0.3 * seen.place(sweep, run))
        axes.annotate(
            "", xy=(x, end), xytext=(x, start),
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 0.8, "alpha": 0.55, "shrinkA": 0,
                        "shrinkB": 3, "mutation_scale": 7},
        )  # fmt: skip
        _dot(axes, x, end, colour, seen.place(sweep, run))
    every = [value for _, a, b in drawn for value in (a, b)]
    low, high = min([1.0, *every]) * 0.85, max([2.0, *every]) * 1.25
    axes.plot([low, high], [low, high], color=AXIS, linewidth=0.9, zorder=0)
    for axis in (axes.xaxis, axes.yaxis):
        _log_lengths(axis, every)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_xlabel(f"{_unit(field)} at the start")
    axes.set_ylabel(f"{_unit(field)} at the end")
    _legend(axes, seen, dashes=False)
    return figure


@styled
def score_and_length(sweep: Sweep, field: str = "segment_length") -> Figure:
    """BLEU against segment length at the last validation; the dot's area is the time of an update.

    Where the best model came earlier, a thin line leads to where that one was.
    """
    figure, seen = _axes(), looks(sweep)
    axes = figure.axes[0]
    times = [run.milliseconds for run in sweep.runs if run.milliseconds]
    slowest = max(times, default=1.0)
    every = []
    for run in sweep.runs:
        x, y = run.last(field), run.last("bleu")
        if x is None or y is None or not x > 0:
            continue
        every.append(x)
        colour = INK if run.beside else seen.colour(sweep, run)
        area = LARGEST * run.milliseconds / slowest if run.milliseconds else SMALLEST
        best = run.at_best(field), run.at_best("bleu")
        if best[0] and best[1] is not None and best != (x, y):
            every.append(best[0])
            axes.plot([x, best[0]], [y, best[1]], color=colour, linewidth=0.7, alpha=0.6)
            axes.plot(best[0], best[1], marker=".", markersize=3, color=colour)
        _dot(axes, x, y, colour, 0 if run.beside else seen.place(sweep, run), max(area, SMALLEST), run.beside)
    for name, (x, y) in _baselines(sweep, field, "bleu").items():
        axes.annotate(
            name, (x, y), xytext=(8, 7), textcoords="offset points", fontsize=8.5, color=INK, parse_math=False
        )
    _log_lengths(axes.xaxis, every)
    axes.margins(x=0.12, y=0.12)
    axes.set_xlabel(f"{_unit(field)} at the end")
    axes.set_ylabel("BLEU on dev at the end")
    sizes = [_size(ms, slowest) for ms in _round_times(times)]
    extra = [_mark("X", "baseline")] if any(run.beside for run in sweep.runs) else []
    _legend(axes, seen, dashes=False, extra=[*extra, *sizes])
    return figure


FIGURES: Mapping[str, Callable[[Sweep], Figure]] = {
    "trajectories": length_curves,
    "start-and-end": start_and_end,
    "bleu": score_and_length,
    "gradient": gradient_curves,
    "output-trajectories": lambda sweep: length_curves(sweep, "output_segment_length"),
    "output-start-and-end": lambda sweep: start_and_end(sweep, "output_segment_length"),
    "output-bleu": lambda sweep: score_and_length(sweep, "output_segment_length"),
    "output-gradient": lambda sweep: gradient_curves(sweep, "output_gradient_share"),
}


def figures(sweep: Sweep) -> dict[str, Figure]:
    """Every figure that there is something to draw in: those of a side on which some run halts, or moves."""
    made = {}
    for name, draw in FIGURES.items():
        side = "output_" if name.startswith("output") else ""
        field = f"{side}gradient_share" if name.endswith("gradient") else f"{side}segment_length"
        if any(run.last(field) is not None for run in sweep.runs) and _moves(sweep, side):
            made[name] = draw(sweep)
    return made


def _moves(sweep: Sweep, side: str) -> bool:
    """Whether a run of the grid cuts a side by a halting unit, or in any case not always alike.

    Where none does, as on the source of a sweep of decoders, all would stand on one spot.
    """
    members = _members(sweep) or sweep.runs
    if any(run.last(f"{side}gradient_share") is not None for run in members):
        return True
    lengths = {value for run in members for value in run.curve.get(f"{side}segment_length", ())}
    other = "" if side else "output_"
    return len(lengths - {None}) > 1 or not any(
        run.last(f"{other}gradient_share") is not None for run in members
    )


def _unit(field: str) -> str:
    return f"characters in {'an output' if 'output' in field else 'a'} segment"


def _members(sweep: Sweep) -> list[Result]:
    return [run for run in sweep.runs if not run.beside]


def _said(sweep: Sweep, run: Result, n: int) -> str:
    return shown(sweep.value(run, sweep.over[n])) if n < len(sweep.over) else ""


def _ordered(values: Any) -> list[Any]:
    """Values without repetition, numbers in their order before everything else."""
    numbers, others = set(), []
    for value in values:
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers.add(value)
        elif value is not None and value not in others:
            others.append(value)
    return [*sorted(numbers), *others]


def _axes(square: bool = False) -> Figure:
    figure = Figure(figsize=(HEIGHT + 2.2 if square else WIDTH, HEIGHT), layout="constrained")
    figure.subplots()
    return figure


def _lines(axes: Axes, sweep: Sweep, seen: Looks, field: str, clean: Callable[[float], float]) -> None:
    few = len(_members(sweep)) <= 12
    for run in sweep.runs:
        x, y = run.column("sentences"), [clean(value) for value in run.column(field)]
        if not any(map(math.isfinite, y)):
            continue
        if run.beside:
            axes.plot(x, y, color=INK, linestyle=(0, (1, 2)), linewidth=1.1)
            continue
        colour = seen.colour(sweep, run)
        dashes = DASHES[seen.place(sweep, run) % len(DASHES)]
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6 if few else 1.1, alpha=0.9)
        axes.plot(x[:1], y[:1], marker="o", markersize=5, markerfacecolor="white", color=colour)
    for name, (x_end, y_end) in _baselines(sweep, "sentences", field).items():
        axes.annotate(
            name, (x_end, y_end), xytext=(3, 3), textcoords="offset points", fontsize=8.5, color=INK,
            parse_math=False, ha="right",
        )  # fmt: skip


def _baselines(sweep: Sweep, x: str, y: str) -> dict[str, tuple[float, float]]:
    """Where the name of each baseline stands: at its last seed's last validation."""
    ends = ((run, run.last(x), run.last(y)) for run in sweep.runs if run.beside)
    return {run.group: (a, b) for run, a, b in ends if a is not None and b is not None}


def _dot(
    axes: Axes, x: float, y: float, colour: str, place: int, area: float = 42.0, beside: bool = False
) -> None:
    marker = "X" if beside else MARKERS[place % len(MARKERS)]
    axes.scatter(
        [x], [y], s=area, color=colour, marker=marker, alpha=0.75, edgecolors="white", linewidths=0.6
    )


def _log_lengths(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis of lengths with plain numbers, and a few of them even where all are near 1."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    spread = max(finite, default=1.0) / min(finite, default=1.0)
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    subs: tuple[float, ...] = (1, 1.5, 2, 3, 5, 7) if spread < 12 else (1, 2, 5)
    if spread < 1.6:
        subs = tuple(1 + i / 20 for i in range(20)) if spread < 1.15 else tuple(1 + i / 10 for i in range(90))
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _sentences(axes: Axes) -> None:
    axes.set_xlabel("training sentences seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))
    axes.set_xlim(left=-0.015 * axes.get_xlim()[1])


def _mark(marker: str, label: str, hollow: bool = False) -> Line2D:
    face = "white" if hollow else INK
    return Line2D(
        [], [], linestyle="", marker=marker, color=INK, markerfacecolor=face, markersize=5, label=label
    )


def _round_times(times: Sequence[float]) -> list[float]:
    """One or two plain numbers within the range, for the legend of sizes."""
    if not times:
        return []
    ends = [float(f"{value:.2g}") for value in (min(times), max(times))]
    return ends if ends[1] > 1.5 * ends[0] else ends[1:]


def _size(ms: float, slowest: float) -> Line2D:
    side = math.sqrt(max(LARGEST * ms / slowest, SMALLEST))
    label = f"{ms:g} ms an update"
    return Line2D(
        [], [], linestyle="", marker="o", color=OTHER, markersize=side, markeredgewidth=0, label=label
    )


def _legend(axes: Axes, seen: Looks, dashes: bool, extra: Sequence[Line2D] = ()) -> None:
    """Colours, then dashes or markers, to the right of the axes."""
    handles: list[Line2D] = []
    if seen.colours:
        handles.append(_heading(seen.title))
        handles += [Line2D([], [], color=c, linewidth=2.4, label=name) for name, c in seen.colours.items()]
    if len(seen.places) > 1:
        handles.append(_heading(seen.second))
        for name, place in seen.places.items():
            look: dict[str, Any] = {"linestyle": DASHES[place % len(DASHES)], "linewidth": 1.4}
            if not dashes:
                look = {"linestyle": "", "marker": MARKERS[place % len(MARKERS)], "markersize": 5.5}
            handles.append(Line2D([], [], color=INK, label=name, **look))
    if extra:
        handles += [_heading(""), *extra] if handles else list(extra)
    if not handles:
        return
    legend = axes.figure.legend(
        handles=handles, loc="outside right upper", frameon=False, fontsize=8.5, handlelength=2.0,
        labelspacing=0.35,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _heading(text: str) -> Line2D:
    return Line2D([], [], linestyle="", label=text or " ")
