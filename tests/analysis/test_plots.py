"""Figures are written with equal bytes for equal input, and leave matplotlib as it was."""

import logging
import subprocess
import sys
from itertools import islice, pairwise
from pathlib import Path

import matplotlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis import plots
from caesura.analysis.figures import history_figure
from caesura.analysis.halting import History

RUN = History([0, 8], [1.0, 1.6], [1.0, 9.0], [0.0, 0.5], [1.0, 0.6], [8], [0.2])


def test_both_files_are_where_asked_and_equal_for_equal_input_whatever_the_users_settings(
    tmp_path: Path,
) -> None:
    runs = {"x": RUN, "y": RUN}
    one = plots.save(history_figure(runs), tmp_path / "new" / "figure.v1")
    assert one == (tmp_path / "new" / "figure.v1.png", tmp_path / "new" / "figure.v1.svg")
    assert one[0].read_bytes().startswith(b"\x89PNG")
    changed = plots.save(history_figure(runs, "exact"), tmp_path / "b")
    with matplotlib.rc_context({"font.size": 20, "lines.linestyle": ":", "figure.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        again = plots.save(history_figure(runs), tmp_path / "c")
        assert dict(matplotlib.rcParams) == before
    for first, second, different in zip(one, again, changed, strict=True):
        assert first.read_bytes() == second.read_bytes() != different.read_bytes()
    svg = one[1].read_text(encoding="utf-8")
    assert "</svg>" in svg
    assert "<dc:date>" not in svg


def test_a_notebook_shows_a_figure_in_the_house_style() -> None:
    with matplotlib.rc_context({"font.size": 20, "figure.facecolor": "red"}):
        shown = history_figure({"x": RUN})._repr_png_()
    assert shown == plots.png_of(history_figure({"x": RUN}))


def test_names_are_shown_as_they_are_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings are errors in these tests; a font that is not installed would be logged."""
    monkeypatch.setattr(plots, "FONTS", ("A font that nobody has", "DejaVu Sans"))
    with caplog.at_level(logging.WARNING):
        figure = history_figure({"東京 $x_1$ <&": RUN, "50% $": RUN})
        _, svg = plots.save(figure, tmp_path / "figure")
    assert not caplog.records
    text = svg.read_text(encoding="utf-8")
    assert "東京 $x_1$ &lt;&amp;</text>" in text
    assert "50% $</text>" in text


@pytest.mark.slow
def test_pyplot_is_not_needed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from caesura.analysis.figures import history_figure\n"
        "from caesura.analysis.halting import History; from caesura.analysis.plots import save\n"
        f"save(history_figure({{'x': {RUN}}}), Path({str(tmp_path / 'figure')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


def test_more_runs_than_colours_still_differ() -> None:
    looks = [*islice(plots.looks(), 21)]
    assert len({(look.colour, look.dashes) for look in looks}) == 21
    assert len({(look.colour, look.marker) for look in looks}) == 21


def test_labels_move_no_more_than_needed():
    assert plots.spread([0.2, 0.8], 0.1) == pytest.approx([0.2, 0.8])
    assert plots.spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert plots.spread([0.52, 0.9, 0.5], 0.1) == pytest.approx([0.56, 0.9, 0.46])
    assert plots.spread([0.98, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert plots.spread([], 0.1) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.2))
def test_labels_keep_their_order_and_distance(places, gap):
    placed = plots.spread(places, gap)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(sorted(placed)))
    for i, j in pairwise(sorted(range(len(places)), key=places.__getitem__)):
        assert placed[i] < placed[j]
    if gap * (len(places) - 1) <= 1:
        assert all(-1e-9 <= p <= 1 + 1e-9 for p in placed)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (250, "250"), (8000, "8k"), (12500, "12.5k"), (1.2e6, "1.2M"), (3e9, "3G")],
)
def test_counts_are_short(number, shown):
    assert plots.short(number) == shown
