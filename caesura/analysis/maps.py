"""Figures along one sentence: scores, flips, gates, attention; one column per symbol or segment."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from caesura.analysis.attention import AttentionMap
from caesura.analysis.characters import visible
from caesura.analysis.flips import Flips
from caesura.analysis.gates import GateMap
from caesura.analysis.halting import HaltingTrace
from caesura.analysis.plots import AXIS, COLOURS, INK, Figure, blank, styled

_DASHES = (0, (4, 2))
STEPS = 80  # of a sentence that are drawn, as in the paper
_CELL = 1.35  # inches: the width of one head's map among others
WIDEST = 11.5  # inches: as wide as the page

# Nothing where there is no attention, so that it can stand on any background.
_FADING = LinearSegmentedColormap.from_list("fading", [(0.11, 0.52, 0.80, 0.0), (0.11, 0.52, 0.80, 1.0)])
_SHARES = PowerNorm(0.5, vmin=0, vmax=1)


@styled
def halting_figure(trace: HaltingTrace) -> Figure:
    """Scores as bars, the running sum as steps where they are summed, a rule where a segment ends."""
    labels, n = trace.labels[:STEPS], min(len(trace.labels), STEPS)
    figure, axes = blank(_width(labels), 2.4)
    at = np.arange(n)
    halts = trace.halts[:n]
    colours = [COLOURS[0] if halt else COLOURS[1] for halt in halts]
    axes.bar(at, trace.scores[:n], 0.62, color=colours, alpha=0.85)
    handles: list[Artist] = [
        Patch(color=COLOURS[0], alpha=0.85, label="score, ends a segment"),
        Patch(color=COLOURS[1], alpha=0.85, label="score, goes on"),
    ]
    sums = trace.sums[:n] if trace.sums is not None else []
    start = 0
    for i, halt in enumerate(halts):
        if halt or i == n - 1:
            if sums:
                edges = [start - 0.5, *(j + 0.5 for j in range(start, i + 1))]
                axes.stairs(sums[start : i + 1], edges, color=AXIS, linewidth=1.1, baseline=None)
            if halt:
                axes.axvline(i + 0.5, color=AXIS, linewidth=0.8)
            start = i + 1
    if trace.threshold is not None:
        axes.axhline(trace.threshold, color=INK, linewidth=0.8, linestyle=_DASHES)
        handles += [
            Line2D([], [], color=AXIS, linewidth=1.1, label="running sum"),
            Line2D([], [], color=INK, linewidth=0.8, linestyle=_DASHES, label="threshold"),
        ]
    axes.set_ylim(0, max(1.05, 1.05 * max(sums, default=1)))
    axes.set_ylabel("score" if trace.sums is None else "score and sum")
    return _along(figure, labels, handles, turn=0)


@styled
def flips_figure(flips: Flips) -> Figure:
    """The change of the loss per flipped gap, as bars between symbols, and a rule where the model cuts.

    A gap that the segmenter keeps as it is has no bar.
    """
    labels = [visible(symbol) for symbol in flips.symbols[:STEPS]]
    n = len(labels)
    figure, axes = blank(_width(labels), 2.4)
    for gap in (gap for gap, cut in enumerate(flips.cuts[: n - 1]) if cut):
        axes.axvline(gap + 0.5, color=AXIS, linewidth=0.8, zorder=0)
    moves = [(gap + 0.5, change) for gap, change in enumerate(flips.changes[: n - 1]) if change is not None]
    colours = [COLOURS[2] if change < 0 else COLOURS[1] for _, change in moves]
    axes.bar([at for at, _ in moves], [change for _, change in moves], 0.62, color=colours, alpha=0.85)
    axes.axhline(0, color=INK, linewidth=0.8)
    handles: list[Artist] = [
        Patch(color=COLOURS[2], alpha=0.85, label="gains"),
        Patch(color=COLOURS[1], alpha=0.85, label="costs"),
        Line2D([], [], color=AXIS, linewidth=0.8, label="the model cuts"),
    ]
    axes.ticklabel_format(axis="y", scilimits=(-3, 3))
    axes.set_ylabel("change of the loss,\nnats per target symbol")
    return _along(figure, labels, handles, turn=_turn(labels))


def _along(figure: Figure, labels: Sequence[str], handles: list[Artist], turn: int) -> Figure:
    """The figure with symbols under its bars and a legend above them."""
    axes = figure.axes[0]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, frameon=False, fontsize=8.5)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.set_xticks(range(len(labels)), labels, fontsize=_size(labels), rotation=turn)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False)
    return figure


@styled
def gates_figure(gates: GateMap) -> Figure:
    """Mean activation of each gate at each step, dark low and bright high: the paper's Figures 3 and 4."""
    labels = gates.labels[:STEPS]
    order = [(g, d) for g in ("reset", "update") for d in ("forward", "backward")]
    layers = sorted({row.layer for row in gates.rows})
    rows: dict[tuple[int, str, str], list[float]] = {
        (row.layer, row.gate, row.direction): row.values[:STEPS] for row in gates.rows
    }
    lines = [(layer, gate, direction) for gate, direction in order for layer in layers]
    names = [
        f"{gate} {'→' if d == 'forward' else '←'}{f' {layer}' if len(layers) > 1 else ''}"
        for layer, gate, d in lines
    ]
    values = np.array([rows[line] for line in lines])
    figure, axes = blank(_width(labels), 0.24 * len(lines) + 0.75)
    image = axes.imshow(values, aspect="auto", cmap="viridis", interpolation="none")
    for edge in range(len(layers), len(lines), len(layers)):
        axes.axhline(edge - 0.5, color=AXIS, linewidth=1.2)
    axes.set_yticks(range(len(lines)), names)
    axes.spines[:].set_visible(False)
    return _mapped(figure, image, labels)


@styled
def attention_figure(attention: AttentionMap) -> Figure:
    """Where each target symbol looked: one row per target symbol, one column per step of the encoder.

    Colours follow the square root of a weight, so that little attention is seen too. They run to the largest
    weight or, if the decoder has heads, to 1, so that all heads can be compared.
    """
    source, target = attention.source[:STEPS], attention.target[:STEPS]
    weights = np.array([row[:STEPS] for row in attention.weights[:STEPS]])
    figure, axes = blank(_width(source), 0.15 * len(target) + 0.9)
    norm = PowerNorm(0.5, vmin=0, vmax=None if attention.layer is None else 1)
    image = axes.imshow(weights, aspect="auto", norm=norm, cmap=_FADING, interpolation="none")
    axes.set_yticks(range(len(target)), target, fontsize=8)
    axes.xaxis.tick_top()
    axes.spines[:].set(visible=True, linewidth=0.5)
    return _mapped(figure, image, source)


@styled
def heads_figure(attention: AttentionMap) -> Figure:
    """The maps of all heads, small: one row per layer, one column per head, in the colours of 0 to 1."""
    heads = attention.heads
    assert heads is not None
    layers, count = heads.shape[:2]
    width = min(_CELL, WIDEST / count)
    height = width * min(max(min(heads.shape[2], STEPS) / min(heads.shape[3], STEPS), 0.6), 1.6)
    size = max(width * count + 0.3, 3.0), height * layers + 0.3
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(layers, count, sharex=True, sharey=True, squeeze=False)
    for layer, row in enumerate(grid, 1):
        row[0].set_ylabel(f"layer {layer}", fontsize=9)
        for head, axes in enumerate(row, 1):
            if layer == 1:
                axes.set_title(f"head {head}", fontsize=9, color=INK)
            axes.imshow(
                attention.of(layer, head)[:STEPS, :STEPS],
                aspect="auto", norm=_SHARES, cmap=_FADING, interpolation="none",
            )  # fmt: skip
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(visible=True, linewidth=0.5)
    return figure


def pixels(weights: NDArray[np.float32]) -> bytes:
    """A map as a PNG of one pixel per weight, in the colours of `heads_figure`."""
    buffer = BytesIO()
    Image.fromarray(_FADING(_SHARES(weights[:STEPS, :STEPS]), bytes=True)).save(buffer, "PNG")
    return buffer.getvalue()


def _mapped(figure: Figure, image: AxesImage, labels: Sequence[str]) -> Figure:
    """The figure with a colour bar, and the encoder's steps as labels of columns."""
    axes = figure.axes[0]
    bar = figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01, ticks=MaxNLocator(3))
    bar.outline.set_visible(False)
    axes.set_xticks(range(len(labels)), labels, fontsize=_size(labels), rotation=_turn(labels))
    axes.tick_params(length=0)
    axes.grid(visible=False)
    return figure


def _width(labels: Sequence[str]) -> float:
    """Inches: enough for the labels, and never less than makes a picture."""
    turned = _turn(labels)
    each = 0.17 if turned else 0.095 * max(map(len, labels), default=1) + 0.08
    return min(max(each * len(labels) + 1.2, 4.2), WIDEST)


def _turn(labels: Sequence[str]) -> int:
    """Long labels stand upright."""
    return 90 if max(map(len, labels), default=1) > 3 else 0


def _size(labels: Sequence[str]) -> float:
    return 8.5 if len(labels) <= 60 else 7.5
