"""How runs of a sweep look in its figures, and the legends that say so: colours, dashes, markers, axes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from caesura.analysis.plots import COLOURS, INK, spread
from caesura.experiments.sweep_grid import short_name, shown
from caesura.experiments.sweep_results import Sweep, SweepRun

WIDTH, HEIGHT = 7.6, 4.2  # inches; the legend takes the right quarter
DASHES: Sequence[Any] = (
    *("solid", (0, (5, 1.5)), (0, (1, 1.3)), (0, (5, 1.3, 1, 1.3))),
    *((0, (5, 1.3, 1, 1.3, 1, 1.3)), (0, (2.5, 4))),
)
MARKERS = "osD^vP"
OTHER = "#AAAAAA"  # a run without a value of the first key
NAME_GAP = 0.042  # between names of lines, of the height of the axes
LONGEST = 28  # characters of the label of the usual values: the legend takes its width from the axes
SMALLEST = 14.0  # area of a dot, in square points


@dataclass(frozen=True)
class Looks:
    """How the values of keys that vary are shown: by colour, and by dashes or marker."""

    title: str
    colours: Mapping[str, str]
    second: str
    places: Mapping[str, int]  # by the values of the second keys
    usual: Mapping[str, str]  # the second keys, with the value that most runs have
    hidden: Sequence[str]  # keys that vary too, but are not shown
    named: bool = False  # whether runs are told apart by their names: a family has a colour and a place

    def value(self, sweep: Sweep, run: SweepRun) -> str:
        """The value that a run's colour stands for."""
        return family(run) if self.named else value_shown(sweep, run)

    def colour(self, sweep: Sweep, run: SweepRun) -> str:
        """The colour of a run."""
        return self.colours.get(self.value(sweep, run), OTHER)

    def place(self, sweep: Sweep, run: SweepRun) -> int:
        """Which dashes and marker a run has."""
        label = family(run) if self.named else _besides(sweep, run, self.usual)
        return self.places.get(label, 0)


def looks(sweep: Sweep) -> Looks:
    """Colours in the order of the values: negative numbers, 0 and positive ones on one scale of places.

    Dashes show the second key or, if there are enough of them, all other keys together.
    """
    runs = members(sweep)
    sections = any(isinstance(sweep.value(run, key), dict) for run in runs for key in sweep.over[:1])
    if sections and not any("=" in run.group for run in runs):
        return _by_name(runs)
    first = _ordered(sweep.value(run, key) for run in runs for key in sweep.over[:1])
    ordinal = len(first) > 1 and all(map(_is_number, first))
    # Viridis keeps its order for all kinds of colour vision; its yellow end is too faint on white.
    scale = matplotlib.colormaps["viridis"]
    if ordinal:
        colours = [to_hex(scale(0.88 * i / (len(first) - 1))) for i in range(len(first))]
    else:
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(first))]
    others = {key: [shown(sweep.value(run, key)) for run in runs] for key in sweep.over[1:]}
    usual = {key: max(values, key=values.count) for key, values in others.items() if len({*values}) > 1}
    second, hidden = list(dict.fromkeys(_besides(sweep, run, usual) for run in runs)), list[str]()
    if len(usual) > 1 and len(second) > len(DASHES):
        key, *hidden = usual
        usual = {key: usual[key]}
    if len(usual) == 1:
        second = [shown(v) for v in _ordered(sweep.value(run, key) for run in runs for key in usual)]
    return Looks(
        "".join(map(short_name, sweep.over[:1])),
        {shown(value): colour for value, colour in zip(first, colours, strict=True)},
        "otherwise" if len(usual) > 1 else "".join(map(short_name, usual)),
        {label: i for i, label in enumerate(second)},
        usual,
        [short_name(key) for key in hidden],
    )


def _by_name(runs: Sequence[SweepRun]) -> Looks:
    """The looks of runs that have names: one per family, in the order of the list."""
    families = list(dict.fromkeys(family(run) for run in runs))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(families)}
    places = {name: i // len(COLOURS) for i, name in enumerate(families)}
    return Looks("", colours, "", places, {}, [], named=True)


def family(run: SweepRun) -> str:
    """The name of a run up to its first number: "cif 4 stein" is of the family "cif"."""
    return re.split(r" (?=\d)", run.group)[0]


def members(sweep: Sweep) -> list[SweepRun]:
    """The runs of the grid: all but the baselines."""
    return [run for run in sweep.runs if not run.beside]


def value_shown(sweep: Sweep, run: SweepRun) -> str:
    """A run's value of the first key that varies, for a legend."""
    return "".join(shown(sweep.value(run, key)) for key in sweep.over[:1])


def _besides(sweep: Sweep, run: SweepRun, usual: Mapping[str, str]) -> str:
    """The value of the second key in a run; of several keys, the values that are not the usual ones."""
    values = {key: shown(sweep.value(run, key)) for key in usual}
    if len(values) == 1:
        return "".join(values.values())
    if unusual := {key: value for key, value in values.items() if value != usual[key]}:
        return _listed(unusual)
    label = f"as most: {_listed(usual)}"
    return label if len(label) <= LONGEST else "as most"


def _listed(values: Mapping[str, str]) -> str:
    return " ".join(f"{short_name(key)}={value}" for key, value in values.items())


def _ordered(values: Any) -> list[Any]:
    """Values without repetition, numbers in their order before everything else."""
    numbers, others = set(), []
    for value in values:
        if _is_number(value):
            numbers.add(value)
        elif value is not None and value not in others:
            others.append(value)
    return [*sorted(numbers), *others]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def name_lines(axes: Axes, names: Mapping[str, float]) -> None:
    """Names at the right edge of the axes, at heights that do not run into each other; limits stay."""
    axes.set_ylim(axes.get_ylim())
    inside = axes.transData + axes.transAxes.inverted()
    heights = [float(inside.transform((axes.get_xlim()[1], y))[1]) for y in names.values()]
    for name, height in zip(names, spread(heights, NAME_GAP), strict=True):
        axes.annotate(
            name, (1.0, height), xytext=(3, 0), xycoords="axes fraction", textcoords="offset points",
            fontsize=8.5, color=INK, va="center", annotation_clip=False,
        )  # fmt: skip


def dot(
    axes: Axes, x: float, y: float, colour: str, place: int, area: float = 42.0, beside: bool = False
) -> None:
    """A run's dot, in the marker of its place."""
    marker = "X" if beside else MARKERS[place % len(MARKERS)]
    axes.scatter(
        [x], [y], s=area, color=colour, marker=marker, alpha=0.75, edgecolors="white", linewidths=0.6
    )


def log_lengths(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis of lengths with plain numbers, and a few of them even where all are near 1."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    spread = max(finite, default=1.0) / min(finite, default=1.0)
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    subs = (1, 1.5, 2, 3, 5, 7) if spread < 12 else (1, 2, 5)
    near = MaxNLocator(6, steps=[1, 2, 5, 10])
    axis.set_major_locator(near if spread < 1.6 else LogLocator(base=10, subs=subs, numticks=12))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def mark(marker: str, label: str, hollow: bool = False) -> Line2D:
    """A marker in the legend."""
    face = "white" if hollow else INK
    return Line2D(
        [], [], linestyle="", marker=marker, color=INK, markerfacecolor=face, markersize=5, label=label
    )


def size(ms: float, scale: float) -> Line2D:
    """A dot in the legend, of the area that so many milliseconds have."""
    side = math.sqrt(max(scale * ms, SMALLEST))
    label = f"{ms:g} ms per update"
    return Line2D(
        [], [], linestyle="", marker="o", color=OTHER, markersize=side, markeredgewidth=0, label=label
    )


def legend(axes: Axes, seen: Looks, dashes: bool, extra: Sequence[Line2D] = (), colours: bool = True) -> None:
    """Colours, then dashes or markers, to the right of the axes."""
    handles: list[Line2D] = []
    if seen.named:
        for name, colour in seen.colours.items():
            look = _look(seen.places[name], dashes)
            handles.append(Line2D([], [], color=colour, label=name, **look))
    elif seen.colours and colours:
        handles.append(heading(seen.title))
        handles += [Line2D([], [], color=c, linewidth=2.4, label=name) for name, c in seen.colours.items()]
    if len(seen.places) > 1 and not seen.named:
        handles += [heading(""), heading(seen.second)] if handles else [heading(seen.second)]
        for name, place in seen.places.items():
            handles.append(Line2D([], [], color=INK, label=name, **_look(place, dashes)))
    if seen.hidden:
        handles += [heading(text) for text in ("", "not shown:", ", ".join(seen.hidden))]
    if extra:
        handles += [heading(""), *extra] if handles else list(extra)
    if handles:
        axes.figure.legend(
            handles=handles, loc="outside right upper", frameon=False, fontsize=8.5, handlelength=2.0,
            labelspacing=0.35,
        )  # fmt: skip


def _look(place: int, dashes: bool) -> dict[str, Any]:
    """How the legend draws a place: by its dashes or by its marker."""
    if dashes:
        return {"linestyle": DASHES[place % len(DASHES)], "linewidth": 1.4}
    return {"linestyle": "", "marker": MARKERS[place % len(MARKERS)], "markersize": 5.5}


def heading(text: str) -> Line2D:
    """A line of text in the legend."""
    return Line2D([], [], linestyle="", label=text or " ")
