"""The figure shows what it was given, with equal bytes for equal input, and leaves matplotlib as it was."""

import logging
import math
import subprocess
import sys
from itertools import pairwise

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis import plots
from caesura.analysis.plots import Trajectory, plot_trajectories, trajectory_figure
from caesura.errors import InputError

ACT = Trajectory([8000, 16000, 24000], [1.0, 1.6, 1.9], [0.1, 0.5, 0.7], [1.0, 0.6, 0.2])
CHARACTER = Trajectory([8000, 16000], [1.0, 1.0], [0.2, 0.6])
RUNS = {"ACT-ENC": ACT, "character": CHARACTER}


def lines(axes):
    """The data of each line longer than the dot that marks its end."""
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    return [(x, y) for x, y in drawn if len(x) > 1]


def test_each_panel_shows_its_values():
    length, share, score = trajectory_figure(RUNS, "BLEU").axes
    assert lines(length) == [
        (ACT.sentences, ACT.segment_length),
        (CHARACTER.sentences, CHARACTER.segment_length),
    ]
    assert lines(share) == [(ACT.sentences, ACT.gradient_share)]
    assert lines(score) == [(ACT.sentences, ACT.score), (CHARACTER.sentences, CHARACTER.score)]
    assert score.get_ylabel() == "BLEU"
    assert [t.get_text() for t in length.texts] == [t.get_text() for t in score.texts] == list(RUNS)


def test_a_run_has_one_colour_in_all_panels():
    figure = trajectory_figure({"character": CHARACTER, "ACT-ENC": ACT})
    length, share, score = figure.axes
    colours = {line.get_color() for axes in (length, score) for line in axes.lines[2:]}
    assert colours == {line.get_color() for line in share.lines}
    assert len(colours) == 1
    assert {t.get_color() for t in length.texts if t.get_text() == "ACT-ENC"} == colours


def test_no_gradients_no_strip():
    assert len(trajectory_figure({"character": CHARACTER}).axes) == 2


def test_more_runs_than_colours_still_differ():
    figure = trajectory_figure({f"run {i}": CHARACTER for i in range(21)})
    lines = figure.axes[0].lines
    drawn, ends = ([line for line in lines if (len(line.get_xdata()) > 1) == way] for way in (True, False))
    assert len({(line.get_color(), str(line._unscaled_dash_pattern)) for line in drawn}) == 21
    assert len({(line.get_color(), line.get_marker()) for line in ends}) == 21


def test_a_missing_value_is_a_gap_and_the_label_goes_to_the_last_known():
    run = Trajectory([1, 2, 3], [1.0, 2.0, math.nan], [math.nan] * 3)
    length, score = trajectory_figure({"x": run}).axes
    assert length.texts[0].xy == (2, 2.0)
    assert not score.texts


def test_equal_input_gives_equal_bytes_whatever_the_users_settings(tmp_path):
    one, changed = plot_trajectories(RUNS, tmp_path / "a"), plot_trajectories(RUNS, tmp_path / "b", "BLEU")
    with matplotlib.rc_context({"font.size": 20, "lines.linestyle": ":", "figure.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        again = plot_trajectories(RUNS, tmp_path / "c")
        assert dict(matplotlib.rcParams) == before
    for first, second, different in zip(one, again, changed, strict=True):
        assert first.read_bytes() == second.read_bytes() != different.read_bytes()
    assert "<dc:date>" not in one[1].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["figure.png", "figure.v1"])
def test_both_files_are_written_where_asked(tmp_path, name):
    stem = name.removesuffix(".png").removesuffix(".svg")
    paths = plot_trajectories({"x": CHARACTER}, tmp_path / "new" / name)
    assert paths == (tmp_path / "new" / f"{stem}.png", tmp_path / "new" / f"{stem}.svg")
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in paths[1].read_text(encoding="utf-8")


def test_names_are_shown_as_they_are_without_a_warning(tmp_path, monkeypatch, caplog):
    """Warnings are errors in these tests; a font that is not installed would be logged."""
    monkeypatch.setattr(plots, "FONTS", ("A font that nobody has", "DejaVu Sans"))
    with caplog.at_level(logging.WARNING):
        _, svg = plot_trajectories({"東京 $x_1$ <&": ACT}, tmp_path / "figure", score_name="50% $")
    assert not caplog.records
    text = svg.read_text(encoding="utf-8")
    assert "東京 $x_1$ &lt;&amp;</text>" in text
    assert "50% $</text>" in text


def test_pyplot_is_not_needed(tmp_path):
    program = (
        "import sys; from caesura.analysis.plots import *\n"
        f"plot_trajectories({{'x': Trajectory([1, 2], [1, 2], [1, 2])}}, {str(tmp_path / 'figure')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_bad_runs_are_named(tmp_path):
    with pytest.raises(InputError, match="no runs"):
        plot_trajectories({}, tmp_path / "figure")
    with pytest.raises(InputError, match="'x' has no validations"):
        plot_trajectories({"x": Trajectory([], [], [])}, tmp_path / "figure")
    with pytest.raises(ValueError, match="'x': the lists"):
        plot_trajectories({"x": Trajectory([1, 2], [1, 2], [1])}, tmp_path / "figure")
    with pytest.raises(ValueError, match="'x': the lists"):
        plot_trajectories({"x": Trajectory([1, 2], [1, 2], [1, 2], [1])}, tmp_path / "figure")


def test_labels_move_no_more_than_needed():
    assert plots.spread([0.2, 0.8], 0.1) == pytest.approx([0.2, 0.8])
    assert plots.spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert plots.spread([0.52, 0.9, 0.5], 0.1) == pytest.approx([0.56, 0.9, 0.46])
    assert plots.spread([0.98, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert plots.spread([], 0.1) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_labels_keep_their_order_and_distance(wanted, gap):
    placed = plots.spread(wanted, gap)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(sorted(placed)))
    for i, j in pairwise(sorted(range(len(wanted)), key=wanted.__getitem__)):
        assert placed[i] < placed[j]
    if gap * (len(wanted) - 1) <= 1:
        assert all(-1e-9 <= p <= 1 + 1e-9 for p in placed)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (250, "250"), (8000, "8k"), (12500, "12.5k"), (1.2e6, "1.2M"), (3e9, "3G")],
)
def test_counts_are_short(number, shown):
    assert plots.short(number) == shown
