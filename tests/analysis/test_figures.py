"""Pictures of several models: each looks like no other, and what names them lies on nothing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from caesura.analysis import figures as draw
from caesura.analysis.attention import AttentionStatistics
from caesura.analysis.cost import Cost
from caesura.analysis.errors import Bucket
from caesura.analysis.halting import History
from caesura.analysis.means import Means
from caesura.analysis.plots import style
from caesura.analysis.segments import SegmentStatistics
from caesura.analysis.typos import Robustness

MANY = [f"system {i}, {i % 5 + 1} layers" for i in range(16)]


def segments(i: int) -> SegmentStatistics:
    histogram = {length: 100 // (abs(length - 1 - i % 7) + 1) for length in range(1, 24)}
    characters = sum(length * count for length, count in histogram.items())
    count = sum(histogram.values())
    return SegmentStatistics(9, characters, count, characters / count, 3, 23, histogram, 9, 0, {}, [], [])


def history(i: int) -> History:
    at = [0.0, 8000.0, 16000.0, 24000.0]
    return History(
        at,
        [1.0 + i % 4] * 4,
        [0, 10 + i, 20, 20 + i / 3],
        [0, 0.1, 0.2, i / 20],
        [1.0, 0.5, 0.2, 0.1],
        at,
        [2.0, 1.5, 1, 1],
    )


def attention(i: int) -> AttentionStatistics:
    return AttentionStatistics(9, "references", *[0.1] * 6, Means([2 - i / 20, 1, 0.9], [99] * 3), *[0.1] * 4)


def typos(i: int) -> Robustness:
    return Robustness(
        9, "references", [0, 0.2], {}, {}, {kind: [45, 40 - i / 4] for kind in ("drop", "swap")}
    )


def price(i: int) -> tuple[float, Cost]:
    cost = Cost(10**7 * (i + 1), {}, None, "cpu", None, None, {"all": 1e9 * (1 + i % 5)}, {})
    return 20 + i / 9, cost


DRAWN: dict[str, Callable[[Sequence[str]], Figure]] = {
    "lengths": lambda names: draw.length_figure({n: segments(i) for i, n in enumerate(names)}),
    "history": lambda names: draw.history_figure({n: history(i) for i, n in enumerate(names)}),
    "attention": lambda names: draw.attention_place_figure({n: attention(i) for i, n in enumerate(names)}),
    "buckets": lambda names: draw.buckets_figure(
        {n: [Bucket(f"to {k}", 9, 20 - k / 9 + i, 40, 0.1) for k in (20, 40)] for i, n in enumerate(names)},
        "x",
    ),
    "typos": lambda names: draw.robustness_figure({n: typos(i) for i, n in enumerate(names)}),
    "price": lambda names: draw.cost_figure({n: price(i) for i, n in enumerate(names)}),
}


def drawn(figure: Figure) -> Figure:
    with style():
        FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("name", DRAWN)
def test_sixteen_models_look_different_and_their_names_lie_beside_the_axes(name: str) -> None:
    figure = drawn(DRAWN[name](MANY))
    axes = figure.axes[0]
    if name == "price":
        looks = [(str(dot.get_facecolor()), str(dot.get_paths()[0].vertices)) for dot in axes.collections]
        labels = axes.texts
    else:
        [legend] = figure.legends
        looks = [
            (h.get_color(), h.get_marker(), str(h._unscaled_dash_pattern)) for h in legend.legend_handles
        ]
        labels = legend.get_texts()
        lines = {
            (line.get_color(), str(line._unscaled_dash_pattern))
            for line in axes.lines
            if len(line.get_xdata()) > 1
        }
        assert {(colour, dashes) for colour, _, dashes in looks} <= lines
    assert len({*looks}) == len(MANY)
    assert [label.get_text() for label in labels] == MANY
    boxes = [Text.get_window_extent(label) for label in labels]  # without the line that leads to it
    assert all(figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert not any(box.overlaps(axes.get_window_extent()) for box in boxes for axes in figure.axes)
    assert not any(a.overlaps(b) for a, b in combinations([box.padded(-1) for box in boxes], 2))


@pytest.mark.parametrize("name", [name for name in DRAWN if name not in ("price", "history")])
def test_a_legend_of_a_few_is_inside_and_takes_no_room(name: str) -> None:
    few, more = (DRAWN[name](MANY[:n]) for n in (draw.FEW, draw.FEW + 1))
    assert not few.legends
    assert sum(axes.get_legend() is not None for axes in few.axes) == 1
    assert len(more.legends) == 1
    assert not any(axes.get_legend() for axes in more.axes)
    assert more.get_figheight() > few.get_figheight()


def test_a_history_names_lines_at_their_ends_while_the_names_fit() -> None:
    few, many = drawn(DRAWN["history"](MANY[:8])), DRAWN["history"](MANY[:12])
    assert [text.get_text() for text in few.axes[0].texts] == MANY[:8]
    assert not few.legends
    assert all(Text.get_window_extent(text).x1 <= few.bbox.x1 for text in few.axes[0].texts)
    assert len(many.legends) == 1
    assert not many.axes[0].texts


def lines(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """The data of each line longer than the dot that marks its end."""
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    return [(x, y) for x, y in drawn if len(x) > 1]


def test_each_panel_of_a_history_shows_its_values() -> None:
    halting = history(1)
    lookup = replace(history(2), live=None, penalty=[0.0] * 4)
    runs, at = {"char": lookup, "act": halting}, halting.sentences
    for score, values in (("bleu", [lookup.bleu, halting.bleu]), ("exact", [lookup.exact, halting.exact])):
        length, share, scored, penalty = draw.history_figure(runs, score).axes
        assert lines(length) == [(at, lookup.segment_length), (at, halting.segment_length)]
        assert lines(share) == [(at, halting.live)]
        assert lines(scored) == [(at, y) for y in values]
        assert lines(penalty) == [(at, halting.penalty)]
        assert [t.get_text() for t in length.texts] == [t.get_text() for t in scored.texts] == list(runs)
        colours = {line.get_color() for axes in (length, scored) for line in axes.lines[2:]}
        assert colours == {line.get_color() for axes in (share, penalty) for line in axes.lines}
        assert colours == {length.texts[1].get_color()}
    assert len(draw.history_figure({"char": lookup}).axes) == 2


def test_a_history_without_a_penalty_has_no_panel_for_one() -> None:
    """A cutter such as cif logs none: its values are nan."""
    cif, act = replace(history(1), penalty=[math.nan] * 4), history(2)
    assert len(draw.history_figure({"cif": cif}).axes) == 3
    *_, penalty = draw.history_figure({"cif": cif, "act": act}).axes
    assert lines(penalty) == [(act.penalty_at, act.penalty)]


def test_a_share_that_is_always_0_is_drawn() -> None:
    stuck = replace(history(1), live=[0.0] * 4)
    assert lines(draw.history_figure({"act": stuck}).axes[1]) == [(stuck.sentences, [0.0] * 4)]


def test_a_missing_value_is_a_gap_and_the_label_goes_to_the_last_known() -> None:
    torn = replace(history(1), segment_length=[1.0, 3.0, math.nan, math.nan], bleu=[math.nan] * 4)
    length, _, score, _ = drawn(draw.history_figure({"x": torn, "y": torn})).axes
    assert [text.xy for text in length.texts] == [(8000, 3.0)] * 2
    assert not score.texts


def test_a_model_keeps_its_colour_where_others_are_not_drawn() -> None:
    some = {name: segments(i) for i, name in enumerate(MANY) if i % 3}
    alone, all_of = draw.length_figure(some, MANY), draw.length_figure(dict.fromkeys(MANY, segments(1)))
    looks = {line.get_label(): (line.get_color(), line.get_marker()) for line in all_of.axes[0].lines}
    assert [(line.get_color(), line.get_marker()) for line in alone.axes[0].lines] == [looks[n] for n in some]


def test_bars_become_lines_where_there_are_too_many() -> None:
    few, many = (DRAWN["lengths"](MANY[:n]).axes[0] for n in (draw.FEW, draw.FEW + 1))
    assert (len(few.containers), len(few.lines)) == (draw.FEW, 0)
    assert (len(many.containers), len(many.lines)) == (0, draw.FEW + 1)
    heights = [bar.get_height() for bar in few.containers[0]]
    assert heights == list(many.lines[0].get_ydata())
