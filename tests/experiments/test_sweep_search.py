"""A search draws what it was allowed to, learns from what it has seen, and is taken up again where it was."""

import json
import sys

import pytest
from cli.program import write_config
from experiments.fleets import QUICK, Heard, write_text
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.experiments import sweep
from caesura.experiments import sweep_search as search
from caesura.experiments.fleet import Limits
from caesura.experiments.sweep import Request, run_sweep
from caesura.experiments.sweep_results import load
from caesura.experiments.sweep_search import Choice, Range, parse_dimension, propose

TAU = "model.segmenter.tau"


@pytest.fixture
def optuna():
    return pytest.importorskip(
        "optuna", reason="optuna is not installed: .venv/bin/pip install -e '.[search]'"
    )


def test_dimensions_are_ranges_or_choices():
    assert parse_dimension("a.b=0.01:1:log") == Range("a.b", 0.01, 1.0, True, False)
    assert parse_dimension("a=-2:3") == Range("a", -2.0, 3.0, False, True)
    assert parse_dimension("a=-1e-3:.5") == Range("a", -0.001, 0.5, False, False)
    assert parse_dimension("a=x,y") == Choice("a", ("x", "y"))


@pytest.mark.parametrize("text", ["a=1:0", "a=1:1", "a=0:1:log", "a=1:2:lin", "a=:2", "a", "a="])
def test_bad_dimensions_are_named(text):
    with refuses(InputError, f"--over {text}: "):
        parse_dimension(text)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with refuses(InputError, "--search ", "'.[search]'"):
        propose([parse_dimension("a=0.0:1")], [], [], 1)


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.floats(0, 1))
def test_drawn_numbers_are_short_and_inside(one, other, share):
    low, high = sorted((one, other))
    value = min(high, low + share * (high - low))  # rounding must not take it outside
    text = search._text(Range("a", low, high, False, False), value)
    assert low <= float(text) <= high


def test_a_search_finds_the_better_end(optuna):
    dimensions = [parse_dimension("a=0.001:10:log"), parse_dimension("b=1:9"), parse_dimension("c=x,y")]
    trials: list[search.Trial] = []
    scores: list[float | None] = []
    while len(trials) < 40:
        drawn = propose(dimensions, trials, scores, 4)
        assert drawn == propose(dimensions, trials, scores, 4)
        for trial in drawn:
            assert 0.001 <= float(trial["a"]) <= 10
            assert int(trial["b"]) in range(1, 10)
            assert trial["c"] in "xy"
            scores.append(None if trial["b"] == "9" else float(trial["a"]) + (trial["c"] == "x"))
        trials += drawn
    assert len({json.dumps(trial) for trial in trials}) == 40
    rewards = [score or 0 for score in scores]
    assert sum(rewards[20:]) > 1.5 * sum(rewards[:20])  # it has learnt where to look


def test_a_small_space_is_drawn_once(optuna):
    assert len(propose([parse_dimension("a=1:3")], [{"a": "2"}], [1.0], 9)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_search_is_a_sweep_that_goes_on(optuna, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "figures", lambda results: {})
    write_text(tmp_path)
    config, out = write_config(tmp_path / "act.yaml", "act"), tmp_path / "out"

    def asked(trials, *over):
        more = {"common": QUICK, "limits": Limits(parallel=2), "test": False}
        return Request(config, out=out, over=over or (f"{TAU}=0.01:1:log",), trials=trials, **more)

    assert run_sweep(asked(2), Heard())
    first = [run.name for run in load(out / "sweep.json").runs]
    assert len(first) == 2
    listener = Heard()
    assert run_sweep(asked(3), listener)
    runs = load(out / "sweep.json").runs
    assert [run.name for run in runs][:2] == first
    assert {name for name, _ in listener.validations} == {runs[2].name}
    assert all(run.best is not None and 0.01 <= run.settings[TAU] <= 1 for run in runs)
    with refuses(InputError, "", f"({TAU}: 0.01:1:log -> 0.01:2:log)"):
        run_sweep(asked(3, f"{TAU}=0.01:2:log"), Heard())
    with refuses(InputError, f"--over {TAU}z=0.1: "):
        run_sweep(asked(3, f"{TAU}z=0.1:1.0"), Heard())
