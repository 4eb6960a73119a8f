"""What sweep.json brings from another machine is neither trained again nor lost."""

from dataclasses import replace

import pytest
from cli.program import contents
from experiments.fleets import Heard, member
from experiments.made import TAU, result, sweep
from experiments.sweeps import request_of, written
from wording import refuses

from caesura.errors import InputError
from caesura.experiments import engine
from caesura.experiments.engine import further
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import TEST, Outcome, read_outcome
from caesura.experiments.provenance import described, digest
from caesura.experiments.sweep import GridSweep, as_outcome, cuts_measure, run_sweep
from caesura.experiments.sweep_results import load, save
from caesura.training.checkpoint import Progress


@pytest.mark.usefixtures("undrawn")
def test_on_another_machine_the_json_alone_tells_what_is_done(configs, tmp_path):
    more = {"test": False, "limits": Limits(budget=60.0)}
    assert run_sweep(request_of(configs, tmp_path / "here", f"{TAU}=0", **more), Heard())
    folder = tmp_path / "there"
    folder.mkdir()
    brought = load(tmp_path / "here" / "sweep.json")
    save(replace(brought, made=["Made elsewhere."]), folder / "sweep.json")
    listener = Heard()
    assert run_sweep(request_of(configs, folder, f"{TAU}=0,1", **more), listener)
    assert {name for name, _ in listener.validations} == {"tau=1 seed=1"}
    assert any("tau=0 seed=1" in text and "not trained again" in text for text in listener.messages)
    results = load(folder / "sweep.json")
    one, other = results.runs
    assert one == brought.runs[0]
    assert results.made == ["Made elsewhere.", *brought.made]
    assert other.status == "finished"

    # As where a folder came back without its weights.
    for path in (tmp_path / "here").rglob("*.safetensors"):
        path.unlink()
    before, listener = contents(tmp_path / "here"), Heard()
    assert run_sweep(request_of(configs, tmp_path / "here", f"{TAU}=0", **more), listener)
    assert "not trained again" in listener.messages[0]
    assert contents(tmp_path / "here") == before


def test_a_run_of_another_config_is_not_replaced(configs, tmp_path):
    request = request_of(configs, tmp_path, f"{TAU}=0", test=False)
    changed = replace(request, common=(*request.common, "training.learning_rate=2e-2"))
    made = written(request)
    GridSweep(changed)  # there is nothing to lose
    save(replace(made, runs=[replace(made.runs[0], sentences=100)]), tmp_path / "sweep.json")
    before = contents(tmp_path)
    with refuses(InputError, "", "tau=0 seed=1 ", "(training.learning_rate: 0.01 -> 0.02)"):
        run_sweep(changed, Heard())
    assert contents(tmp_path) == before


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.usefixtures("undrawn")
def test_what_was_found_elsewhere_stays_until_there_is_more(configs, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    request = request_of(configs, elsewhere, f"{TAU}=0")
    assert run_sweep(replace(request, test=False), Heard())
    out = tmp_path / "here"
    out.mkdir()
    (out / "sweep.json").write_bytes((elsewhere / "sweep.json").read_bytes())
    (run,) = load(out / "sweep.json").runs
    here = replace(request, out=out)
    fleet = engine.run_fleet

    def failing(members, *_):
        (member,) = members
        member.failure.parent.mkdir()
        member.failure.write_text("no room")
        return True

    monkeypatch.setattr(engine, "run_fleet", failing)
    assert not run_sweep(here, Heard())
    assert load(out / "sweep.json").runs == [run]
    monkeypatch.setattr(engine, "run_fleet", fleet)
    assert run_sweep(here, Heard())
    (again,) = load(out / "sweep.json").runs
    assert again.test is not None
    assert again.curve["bleu"] == run.curve["bleu"]


@pytest.mark.parametrize(
    ("fields", "status", "updates", "measured", "kept"),
    [
        ({}, "not run", 0, [], True),
        ({}, "stopped", 299, [], True),
        ({}, "failed", 299, [], True),
        ({}, "stopped", 300, [], False),
        ({"status": "failed"}, "stopped", 299, [], True),
        ({"status": "failed"}, "not run", 0, [], True),
        ({"status": "failed", "updates": 0}, "not run", 0, [], False),  # before it had begun
        ({"status": "failed"}, "finished", 299, [], False),
        ({"measured": ["cuts"]}, "budget", 299, [], True),  # on a slower machine
        ({"measured": ["cuts"]}, "budget", 299, ["cuts", "test"], False),
        ({"measured": ["cuts"]}, "finished", 300, [], True),  # and not measured yet
        ({"measured": ["cuts"]}, "finished", 301, [], False),
        ({"measured": ["cuts-of-other-gold"]}, "budget", 299, ["cuts"], False),
    ],
)
def test_the_further_one_of_two_is_kept(tmp_path, fields, status, updates, measured, kept):
    made, measures = member(tmp_path, "m"), (TEST, cuts_measure(None))
    run = result(**{"updates": 300} | fields)
    outcome = Outcome(made, status, "", Progress(updates), 1, None, [], {name: {} for name in measured})
    assert further(as_outcome(run, made, sweep([run])), outcome, measures) == kept


def left_to_train(request, measures, monkeypatch):
    """Those that a call trains, and what it says first."""
    trained, listener = [], Heard()
    monkeypatch.setattr(engine, "run_fleet", lambda members, *_: trained.extend(m.name for m in members))
    experiment = GridSweep(request)
    monkeypatch.setattr(experiment, "measures", measures)
    monkeypatch.setattr(experiment, "write", lambda **_: None)
    experiment.run([*experiment.points], request.limits, listener)
    return trained, listener.messages


def test_a_budget_is_spent_where_it_was_not_raised(configs, tmp_path, monkeypatch):
    request = request_of(configs, tmp_path, f"{TAU}=0", limits=Limits(budget=30.0))
    (point,) = GridSweep(request).points.values()
    spent = replace(result("tau=0"), digest=digest(described(point.config)), status="budget", seconds=30.0)
    spent = replace(spent, measured=["test", "cuts"])
    measures = TEST, cuts_measure(None)
    gone = f"{point.name}: its checkpoints are gone, sweep.json has it"
    for run, budget, message in (
        (spent, 30.0, f"{gone}: not trained again"),
        (replace(spent, seconds=29.9), 30.0, f"{gone}: not trained again"),  # which is rounded
        (spent, 31.0, f"{gone} without the larger budget: trained again"),
        (spent, None, f"{gone}: not trained again"),
        (replace(spent, status="finished"), 31.0, f"{gone}: not trained again"),
        (replace(spent, status="stopped"), 30.0, f"{gone} without its end: trained again"),
        (replace(spent, status="failed"), 30.0, f"{gone} without its end: trained again"),
        (replace(spent, status="stopped", updates=0), 30.0, None),
        (replace(spent, seconds=39.6, budget=30.0), 31.0, f"{gone} without the larger budget: trained again"),
    ):
        save(sweep([run]), tmp_path / "sweep.json")
        asked = replace(request, limits=Limits(budget=budget))
        reused = message is not None and "not trained" in message
        names = [] if reused else [point.name]
        assert left_to_train(asked, measures, monkeypatch) == (names, [] if message is None else [message])


@pytest.mark.parametrize(
    ("status", "budget", "given"),
    [("budget", None, 30.1), ("budget", 25.0, 25.0), ("stopped", 60.0, 60.0), ("finished", None, None)],
)
def test_what_is_trained_again_has_the_budget_that_it_had(
    configs, tmp_path, monkeypatch, status, budget, given
):
    request = request_of(configs, tmp_path, f"{TAU}=0")
    (point,) = GridSweep(request).points.values()
    run = replace(result("tau=0"), digest=digest(described(point.config)), seconds=30.0)
    save(sweep([replace(run, status=status, budget=budget)]), tmp_path / "sweep.json")
    assert left_to_train(request, (TEST,), monkeypatch)[0] == [point.name]
    (made,) = GridSweep(request).points
    assert read_outcome(made).budget == given


def test_a_run_that_was_not_measured_is_not_through(configs, tmp_path, monkeypatch):
    request = request_of(configs, tmp_path, f"{TAU}=0")
    (point,) = GridSweep(request).points.values()
    mark = digest(described(point.config))
    gold = tmp_path / "gold.tsv"
    gold.write_text("ab\ta b\n")
    plain, golden = cuts_measure(None), cuts_measure(str(gold))
    for run, measures, lacking in (
        (result("tau=0", measured=[]), (TEST, plain), "without its test and its cuts: trained"),
        (result("tau=0", measured=["cuts"]), (TEST, plain), "without its test: trained"),
        (result("tau=0", measured=["cuts"]), (plain,), ""),
        (result("tau=0", measured=["cuts"]), (golden,), "without its cuts: trained"),
        (result("tau=0", measured=[], best=None), (TEST, plain), ""),
    ):
        save(sweep([replace(run, status="finished", digest=mark)]), tmp_path / "sweep.json")
        names, (message,) = left_to_train(request, measures, monkeypatch)
        assert names == ([point.name] if lacking else [])
        assert (lacking or "not trained") in message
        (kept,) = written(request).runs
        assert kept.curve == run.curve  # until it is trained again
    text = (tmp_path / "sweep.json").read_text().replace('"format": 2', '"format": 1')
    (tmp_path / "sweep.json").write_text(text)
    assert load(tmp_path / "sweep.json").runs[0].measured == ["test", "cuts"]


@pytest.mark.usefixtures("undrawn")
def test_what_was_not_measured_elsewhere_is_trained_again(configs, tmp_path, monkeypatch):
    request = request_of(configs, tmp_path, f"{TAU}=0", test=False)
    (point,) = GridSweep(request).points.values()
    mark = digest(described(point.config))
    ended = replace(result("tau=0"), status="finished", digest=mark)
    trained = []
    monkeypatch.setattr(engine, "run_fleet", lambda members, *_: trained.append([m.name for m in members]))
    for measured in ([], ["cuts"]):
        save(sweep([replace(ended, measured=measured)]), tmp_path / "sweep.json")
        listener = Heard()
        assert run_sweep(request, listener)
        assert ("without its cuts" in listener.messages[0]) == (not measured)
    assert trained == [["tau=0 seed=1"], []]
