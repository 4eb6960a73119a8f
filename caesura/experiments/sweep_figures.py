"""Figures of a sweep, each a function from its results to a figure; nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from caesura.analysis.plots import AXIS, INK, Figure, blank, short, styled
from caesura.experiments.sweep_grid import at
from caesura.experiments.sweep_looks import (
    DASHES,
    HEIGHT,
    SMALLEST,
    WIDTH,
    Looks,
    dot,
    heading,
    legend,
    log_lengths,
    looks,
    mark,
    members,
    name_lines,
    size,
)
from caesura.experiments.sweep_results import Sweep, SweepRun
from caesura.experiments.sweep_values import by_value, searched

LARGEST = 120.0  # area of a dot, in square points; half of it where there are many
MANY = 12  # runs, above which they are drawn finer
STILL = 0.03  # of the height of the axes: an arrow of less would be all head
# The start goes around an end that is in the same place.
RING: Mapping[str, Any] = {
    "marker": "o", "markersize": 8.5, "markerfacecolor": "none", "markeredgewidth": 0.8,
}  # fmt: skip
FIRST = 100  # sentences, up to which a logarithmic axis is linear: it begins at 0
EARLY = 50  # the part of all sentences up to which losses are not drawn: they fall alike, and fall most
NATS = "nats per target symbol"
SYMBOLS = "data.trg.level", "data.trg.voc_limit"  # on which a cross-entropy depends


@styled
def length_curves(sweep: Sweep, field: str = "segment_length") -> Figure:
    """Segment length over training sentences, one line per run with its ends; baselines are dotted."""
    figure, axes = _curves(sweep, field, f"{_side(field)}segment length through training", positive=True)
    axes.axhline(1.0, color=AXIS, linewidth=0.9, zorder=0)
    log_lengths(axes.yaxis, [1.0, *(v for run in sweep.runs for v in _way(run, field)[1])])
    axes.set_ylabel(_unit(field))
    name_lines(axes, _levels(sweep, field))
    return figure


@styled
def live_curves(sweep: Sweep, field: str = "live") -> Figure:
    """The share of characters at which the loss reaches the cutter, over training sentences."""
    figure, axes = _curves(sweep, field, f"{_side(field)}characters at which the loss reaches the cutter")
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
    axes.set_ylabel(f"share of {_side(field)}characters")
    name_lines(axes, _levels(sweep, field))
    return figure


def _curves(sweep: Sweep, field: str, title: str, positive: bool = False) -> tuple[Figure, Axes]:
    """A figure of a field over training sentences; the caller sets its vertical axis."""
    (figure, axes), seen = blank(WIDTH, HEIGHT, title), looks(sweep)
    _lines(axes, sweep, seen, field, positive)
    _sentences(axes, sweep, field)
    legend(axes, seen, dashes=True, extra=_ends(sweep, field))
    return figure, axes


@styled
def start_and_end(sweep: Sweep, field: str = "segment_length") -> Figure:
    """Where runs start and end: one arrow per run, side by side above their value of the first key."""
    title, seen = f"{_side(field)}segment length, from the start to the end of training", looks(sweep)
    figure, axes = blank(WIDTH, HEIGHT, title)
    ends = [(run, run.first(field), run.last(field)) for run in members(sweep)]
    drawn = [(run, a, b) for run, a, b in ends if a and b]
    values = {run.name: seen.value(sweep, run) for run, _, _ in drawn}
    ordered = [value for value in seen.colours if value in values.values()]
    groups = list(dict.fromkeys([*ordered, *values.values()]))
    lines = _levels(sweep, field)
    every = [value for _, a, b in drawn for value in (a, b)]
    low, high = 0.9, max([2.0, *every, *lines.values()]) * 1.2
    for i, group in enumerate(groups):
        rows = [row for row in drawn if values[row[0].name] == group]
        rows.sort(key=lambda row: (seen.place(sweep, row[0]), row[0].seed))
        for j, (run, start, end) in enumerate(rows):
            x = i + 0.8 * ((j + 0.5) / len(rows) - 0.5)
            colour, place = seen.colour(sweep, run), seen.place(sweep, run)
            if abs(math.log(end / start)) > STILL * math.log(high / low):
                axes.annotate(
                    "", xy=(x, end), xytext=(x, start),
                    arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.0, "alpha": 0.7,
                                "shrinkA": 3.5, "shrinkB": 2.5, "mutation_scale": 7},
                )  # fmt: skip
            axes.plot(x, start, color=colour, **RING)
            dot(axes, x, end, colour, place, area=32.0)
    for y in lines.values():
        axes.axhline(y, color=INK, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    axes.axhline(1.0, color=AXIS, linewidth=0.9, zorder=0)
    log_lengths(axes.yaxis, [1.0, *every])
    axes.set_ylim(low, high)
    axes.set_ylabel(_unit(field))
    axes.set_xlim(-0.6, max(len(groups), 1) - 0.4)
    many = len(groups) > MANY
    axes.set_xticks(range(len(groups)), [group or "all" for group in groups], rotation=90 if many else 0)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(seen.title)
    name_lines(axes, lines)
    ended = heading("end: marker as above") if len(seen.places) > 1 else mark("o", "end")
    legend(axes, seen, dashes=False, colours=False, extra=[mark("o", "start", hollow=True), ended])
    return figure


@styled
def score_and_length(sweep: Sweep, field: str = "segment_length") -> Figure:
    """BLEU against segment length at the last validation; the dot's area is the time of an update.

    Where the best model came earlier, a thin line leads to where that one was. A baseline that does not cut
    this side is a line at its BLEU.
    """
    figure, axes = blank(WIDTH, HEIGHT, f"BLEU and {_side(field)}segment length at the end of training")
    seen = looks(sweep)
    times = [run.milliseconds for run in sweep.runs if run.milliseconds]
    largest = LARGEST if len(members(sweep)) <= MANY else LARGEST / 2
    scale = largest / max(times, default=1.0)
    every = []
    for run in sweep.runs:
        x, y = run.last(field), run.last("bleu")
        if x is None or y is None or not x > 0:
            continue
        every.append(x)
        colour = INK if run.beside else seen.colour(sweep, run)
        area = scale * run.milliseconds if run.milliseconds else SMALLEST
        best = run.at_best(field), run.at_best("bleu")
        if best[0] and best[1] is not None and best != (x, y):
            every.append(best[0])
            axes.plot([x, best[0]], [y, best[1]], color=colour, linewidth=0.7, alpha=0.6)
            axes.plot(best[0], best[1], marker=".", markersize=3, color=colour)
        dot(axes, x, y, colour, 0 if run.beside else seen.place(sweep, run), max(area, SMALLEST), run.beside)
    label = "line to the best validation"
    lead = Line2D([], [], color=INK, linewidth=0.7, marker=".", markersize=3, label=label)
    marks = [lead] if axes.lines else []
    placed, scored = (_baselines(sweep, x, "bleu") for x in (field, "sentences"))
    for name, place in placed.items():
        _name(axes, name, place)
    lines = {name: y for name, (_, y) in scored.items() if name not in placed}
    for y in lines.values():
        axes.axhline(y, color=INK, linestyle=(0, (1, 2)), linewidth=1.1, zorder=0)
    log_lengths(axes.xaxis, every)
    axes.margins(x=0.12, y=0.12)
    name_lines(axes, lines)
    axes.set_xlabel(_unit(field))
    axes.set_ylabel("BLEU on dev, greedy")
    sizes = [size(ms, scale) for ms in _round_times(times)]
    if sizes and (most := max(run.parallel for run in sweep.runs)) > 1:
        sizes.append(heading(f"(up to {most} side by side)"))
    marks += [mark("X", "baseline")] if placed else []
    legend(axes, seen, dashes=False, extra=[*marks, *sizes])
    return figure


@styled
def loss_curves(sweep: Sweep) -> Figure:
    """The cross-entropy of training text over training sentences, from where runs begin to differ."""
    figure, axes = blank(WIDTH, HEIGHT, "cross-entropy of training text through training")
    seen, field = looks(sweep), "cross_entropy"
    alike, others = _one_alphabet(sweep)
    _lines(axes, alike, seen, field)
    _sentences(axes, alike, field)
    first = _early(alike)
    later = [y for run in alike.runs for x, y in run.logged(field) if x >= first]
    margin = 0.04 * (max(later) - min(later)) or 0.1
    axes.set_ylim(min(later) - margin, max(later) + margin)
    axes.set_xlim(left=0.95 * first)
    axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.set_ylabel(NATS)
    name_lines(axes, _levels(alike, field))
    legend(axes, seen, dashes=True, extra=others)
    return figure


@styled
def loss_and_length(sweep: Sweep, field: str = "segment_length") -> Figure:
    """The way of each run through segment length and cross-entropy, both of training text, with its end."""
    figure, axes = blank(WIDTH, HEIGHT, f"cross-entropy on the way through {_side(field)}segment lengths")
    seen = looks(sweep)
    alike, others = _one_alphabet(sweep)
    first, every, few = _early(alike), [], len(members(sweep)) <= MANY
    for run in alike.runs:
        losses = dict(run.logged("cross_entropy"))
        way = [(y, losses[x]) for x, y in run.logged(field) if x >= first and x in losses and y > 0]
        if not way:
            continue
        every += [x for x, _ in way]
        colour = INK if run.beside else seen.colour(sweep, run)
        dashes = (0, (1, 2)) if run.beside else DASHES[seen.place(sweep, run) % len(DASHES)]
        axes.plot(*zip(*way, strict=True), color=colour, linestyle=dashes, linewidth=1.4 if few else 1.0)
        if not run.beside:
            axes.plot(*way[-1], marker="o", markersize=4, color=colour)
    for name, place in _baselines(alike, field, "cross_entropy").items():
        every.append(place[0])
        dot(axes, *place, INK, 0, beside=True)
        _name(axes, name, place, below=True)  # the runs that cut end above it
    log_lengths(axes.xaxis, every)
    axes.set_xlabel(_unit(field))
    axes.set_ylabel(NATS)
    legend(axes, seen, dashes=True, extra=[mark("o", "end"), *others])
    return figure


FIGURES: Mapping[str, Callable[[Sweep], Figure]] = {
    "trajectories": length_curves,
    "start-and-end": start_and_end,
    "bleu": score_and_length,
    "gradient": live_curves,
    "loss-and-length": loss_and_length,
    "output-trajectories": lambda sweep: length_curves(sweep, "output_segment_length"),
    "output-start-and-end": lambda sweep: start_and_end(sweep, "output_segment_length"),
    "output-bleu": lambda sweep: score_and_length(sweep, "output_segment_length"),
    "output-gradient": lambda sweep: live_curves(sweep, "output_live"),
    "output-loss-and-length": lambda sweep: loss_and_length(sweep, "output_segment_length"),
}


def figures(sweep: Sweep) -> dict[str, Figure]:
    """Every figure that is not empty: for sides on which some run learns or moves."""
    drawn, logged = {}, [run for run in _grid(sweep) if run.logged("cross_entropy")]
    for name, draw in FIGURES.items():
        side = "output_" if name.startswith("output") else ""
        field = f"{side}live" if name.endswith("gradient") else f"{side}segment_length"
        if name.endswith("loss-and-length") and not any(run.logged(field) for run in logged):
            continue
        if any(run.last(field) is not None for run in sweep.runs) and _moves(sweep, side):
            drawn[name] = draw(sweep)
    if logged:
        drawn["loss"] = loss_curves(sweep)
    if searched(sweep) and any(run.at_best("bleu") is not None for run in _grid(sweep)):
        drawn["by-value"] = by_value(sweep)
    return drawn


def _moves(sweep: Sweep, side: str) -> bool:
    """Whether a run of the grid learns where to cut a side, or in any case does not always cut it alike.

    Where none does, as on the source of a sweep of decoders, all would stand on one spot.
    """
    runs = _grid(sweep)
    if any(run.last(f"{side}live") is not None for run in runs):
        return True
    lengths = {value for run in runs for value in run.curve.get(f"{side}segment_length", ())}
    other = "" if side else "output_"
    return len(lengths - {None}) > 1 or not any(run.last(f"{other}live") is not None for run in runs)


def _grid(sweep: Sweep) -> list[SweepRun]:
    return members(sweep) or sweep.runs


def _side(field: str) -> str:
    return "output " if field.startswith("output") else ""


def _unit(field: str) -> str:
    return f"characters in {'an output' if _side(field) else 'a'} segment"


def _way(run: SweepRun, field: str) -> tuple[list[float], list[float]]:
    """The line of a run: its start and the training log; without a log of this field, its validations."""
    logged = run.training.get(field)
    if logged is None:
        return run.column("sentences"), run.column(field)
    pairs = zip([0, *run.training["sentences"]], [run.first(field), *logged], strict=True)
    points = [(x, y) for x, y in pairs if x is not None and y is not None]
    return [x for x, _ in points], [y for _, y in points]


def _lines(axes: Axes, sweep: Sweep, seen: Looks, field: str, positive: bool = False) -> None:
    """One line per run with its ends; `positive`: without numbers of 0 and below."""

    def clean(value: float) -> float:
        return value if value > 0 or not positive else math.nan

    few = len(members(sweep)) <= MANY
    for run in sweep.runs:
        x, y = _way(run, field)
        y = [clean(value) for value in y]
        if not any(map(math.isfinite, y)):
            continue
        if run.beside:
            axes.plot(x, y, color=INK, linestyle=(0, (1, 2)), linewidth=1.1)
            continue
        colour = seen.colour(sweep, run)
        dashes = DASHES[seen.place(sweep, run) % len(DASHES)]
        axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6 if few else 1.1, alpha=0.9)
        if run.first(field) is not None:
            axes.plot(x[:1], y[:1], marker="o", markersize=5, markerfacecolor="white", color=colour)
        seen_by, ended = run.last("sentences"), run.last(field)
        if seen_by is not None and ended is not None and math.isfinite(clean(ended)):
            axes.plot(seen_by, ended, marker="o", markersize=3.5, color=colour)


def _baselines(sweep: Sweep, x: str, y: str) -> dict[str, tuple[float, float]]:
    """Where the name of each baseline stands: at the last validation of its last seed, or at its last log.

    A beginning that all names share is left out.
    """
    ends = ((run, _end(run, x), _end(run, y)) for run in sweep.runs if run.beside)
    words = zip(*(run.config.split("-")[:-1] for run in sweep.runs), strict=False)
    shared = "".join(f"{word[0]}-" for word in takewhile(lambda word: len({*word}) == 1, words))
    return {run.group.removeprefix(shared): (a, b) for run, a, b in ends if a is not None and b is not None}


def _levels(sweep: Sweep, field: str) -> dict[str, float]:
    """The heights at which the baselines end, by name."""
    return {name: y for name, (_, y) in _baselines(sweep, "sentences", field).items()}


def _end(run: SweepRun, name: str) -> float | None:
    return run.last(name) if name in run.curve else run.last_logged(name)


def _name(axes: Axes, name: str, place: tuple[float, float], below: bool = False) -> None:
    axes.annotate(
        name, place, xytext=(8, -9 if below else 7), textcoords="offset points", fontsize=8.5, color=INK,
    )  # fmt: skip


def _one_alphabet(sweep: Sweep) -> tuple[Sweep, list[Line2D]]:
    """The runs whose cross-entropies can be compared: with the same target symbols as the first of the grid.

    The others are only named in the legend.
    """

    def kind(run: SweepRun) -> tuple[Any, ...]:
        return tuple(at(sweep.config(run), key) for key in SYMBOLS)

    first = next(kind(run) for run in _grid(sweep) if run.logged("cross_entropy"))
    others = [run for run in sweep.runs if run.logged("cross_entropy") and kind(run) != first]
    alike = replace(sweep, runs=[replace(r, training={}) if r in others else r for r in sweep.runs])
    named, kept = (_baselines(some, "sentences", "cross_entropy") for some in (sweep, alike))
    count = sum(not run.beside for run in others)
    names = [*(name for name in named if name not in kept), *([f"{count} runs"] if count else [])]
    return alike, [heading(f"without {', '.join(names)}:"), heading("other target symbols")] if names else []


def _early(sweep: Sweep) -> float:
    """The sentences seen by the first cross-entropy that is drawn."""
    seen = [x for run in sweep.runs for x, _ in run.logged("cross_entropy")]
    return min(x for x in seen if x >= max(seen) / EARLY)


def _sentences(axes: Axes, sweep: Sweep, field: str) -> None:
    """Logarithmic from the first hundred on, where training was logged: lengths may change early."""
    axes.set_xlabel("training sentences seen")
    if any(field in run.training for run in sweep.runs):
        most = max(x for run in sweep.runs for x in [1.0, *_way(run, field)[0], *run.column("sentences")])
        axes.set_xscale("symlog", linthresh=FIRST, linscale=0.5)
        powers = range(round(math.log10(FIRST)), math.ceil(math.log10(most)) + 1)
        axes.set_xticks([0, *(10**power for power in powers if 10**power <= most)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(-0.12 * FIRST, most * 1.12)
    else:
        axes.set_xlim(left=-0.015 * axes.get_xlim()[1])
    axes.xaxis.set_major_formatter(short)


def _ends(sweep: Sweep, field: str) -> list[Line2D]:
    names = "start", "end"
    if any(field in run.training for run in sweep.runs):  # the lines show training text
        names = "start (dev)", "end (dev)"
        if _side(field):
            names = "start (dev references)", "end (translations)"
    return [mark("o", names[0], hollow=True), mark("o", names[1])]


def _round_times(times: Sequence[float]) -> list[float]:
    """One or two plain numbers within the range, for the legend of sizes."""
    if not times:
        return []
    ends = [float(f"{value:.2g}") for value in (min(times), max(times))]
    return ends if ends[1] > 1.5 * ends[0] else ends[1:]
