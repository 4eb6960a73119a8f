"""The figure of a search for one number, such as the paper's for tau."""

from dataclasses import replace

import pytest
from experiments.made import BIAS, TAU, baseline, grid, sweep

from caesura.experiments.sweep_figures import figures
from caesura.experiments.sweep_values import by_value, searched

TAUS = [1.0, -0.5, 0, 0.3]


def test_every_value_has_its_runs_and_a_mean() -> None:
    runs = grid(TAUS, [1.0], seeds=2)
    made = sweep([*runs, baseline("char", 1.0, 20.0)], [TAU])
    assert searched(made) == [-0.5, 0, 0.3, 1.0]
    upper, lower = by_value(made).axes
    assert [label.get_text() for label in lower.get_xticklabels()] == ["-0.5", "0", "0.3", "1"]
    dots, means, level = upper.lines
    best = {(run.settings[TAU], run.seed): run.at_best("bleu") for run in runs}
    assert sorted(zip(*dots.get_data(), strict=True)) == sorted(
        (i, best[tau, seed]) for i, tau in enumerate(sorted(TAUS)) for seed in (1, 2)
    )
    assert means.get_ydata()[3] == pytest.approx((best[1.0, 1] + best[1.0, 2]) / 2)
    assert {*level.get_ydata()} == {20.0}
    assert [text.get_text() for text in upper.texts] == ["char"]
    assert "by-value" in figures(made)


def test_it_is_for_one_key_with_several_numbers() -> None:
    runs = grid(TAUS, [1.0])
    assert "by-value" not in figures(sweep(runs, [TAU, BIAS]))
    assert not searched(sweep(grid(TAUS[:3], [1.0]), [TAU]))
    other = [replace(run, settings=run.settings | {TAU: {"type": "linear"}}) for run in runs[:1]]
    assert not searched(sweep(other, [TAU]))


def test_runs_that_came_to_nothing_are_left_out() -> None:
    runs = grid(TAUS, [1.0])
    empty = replace(runs[0], curve={}, best=None)
    upper, _ = by_value(sweep([empty, *runs[1:]], [TAU])).axes
    assert len(upper.lines[0].get_xdata()) == 3
