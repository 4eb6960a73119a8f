"""A sweep trains, measures and draws; it goes on where it was, grows, and outlives a run that fails."""

import json
import shutil
from dataclasses import replace

import pytest
from cli.program import caesura, contents, refusal
from experiments.fleets import QUICK, Heard, member
from experiments.made import BIAS, TAU, baseline, grid, result, sweep
from experiments.sweeps import request_of, written
from wording import refuses, wording

from caesura.config import load_config
from caesura.errors import InputError, Interrupted, TrainingError
from caesura.experiments import engine
from caesura.experiments import sweep as module
from caesura.experiments.cuts import measure
from caesura.experiments.fleet import Limits
from caesura.experiments.sweep import GridSweep, run_sweep
from caesura.experiments.sweep_results import load, save
from caesura.inference import Translator
from caesura.training.lock import hold


def test_runs_that_an_earlier_version_has_kept_are_known_again(configs, tmp_path):
    made = written(request_of(configs, tmp_path / "sweep", f"{TAU}=0,0.5"))
    path = tmp_path / "sweep" / "sweep.json"
    tree = json.loads(path.read_bytes())
    for at, run in enumerate(tree["runs"]):
        run |= {"digest": f"{at}23456789abc", "alike": "a", "base": "old", "sentences": 100}
    [config] = tree["configs"].values()
    del config["model"]["segmenter"]["cut_after"], config["data"]["cuts"]  # which it did not know yet
    path.write_text(json.dumps(tree | {"configs": {"old": config}}), encoding="utf-8")
    read = load(path)
    assert [(run.digest, run.alike, run.base) for run in read.runs] == [
        (run.digest, run.alike, run.base) for run in made.runs
    ]
    assert {*read.configs} == {*made.configs}
    GridSweep(request_of(configs, tmp_path / "sweep", f"{TAU}=0,0.5"))
    other = request_of(configs, tmp_path / "sweep", f"{TAU}=0", common=["model.encoder.num_layers=2"])
    with refuses(InputError, "", "model.encoder.num_layers"):
        GridSweep(other)


LISTED = """\
- name: act
  settings: {model.segmenter: {reader: &gru {type: gru, embedding_dim: 8, size: 8}, cutter: act, \
pooling: weighted}}
- name: cif
  settings: {model.segmenter: {reader: GRU, cutter: cif, pooling: weighted, rate: {target: 3.0}}}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn", "forked")
def test_a_sweep_over_cutters_has_the_figures_of_each(configs, tmp_path):
    listed = tmp_path / "list.yaml"
    listed.write_text(LISTED.replace("GRU", "{type: gru, embedding_dim: 8, size: 8}"), encoding="utf-8")
    out, more = tmp_path / "sweep", {"limits": Limits(parallel=2), "test": False, "listed": listed}
    assert run_sweep(request_of(configs, out, **more), Heard())
    results = load(out / "sweep.json")
    act, cif = results.runs
    assert (act.name, cif.name) == ("act seed=1", "cif seed=1")
    assert {*results.shown} == {"live", "penalty", "remainder", "spill"}
    assert {*act.curve} & {*results.shown} == {"live", "penalty", "remainder"}
    assert {*cif.curve} & {*results.shown} == {"live", "spill"}
    assert len(act.curve["penalty"]) == len(cif.curve["spill"]) == 3
    assert {"live", "spill"} <= {*cif.training}
    assert cif.first("segment_length") == pytest.approx(3.0, abs=0.5)
    written = (out / "table.md").read_text(encoding="utf-8")
    assert "| live: start | live: end | penalty: start | penalty: end |" in written
    assert results.figures["spill"].definition in written
    before = (out / "sweep.json").read_bytes()
    assert run_sweep(request_of(configs, out, **more), Heard())  # known again, and not trained twice
    assert (out / "sweep.json").read_bytes() == before


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_from_one_end_to_the_other_and_on(configs, tmp_path):
    out, listener = tmp_path / "sweep", Heard()
    more = {"beside": [configs["word"]], "limits": Limits(parallel=2)}
    shutil.rmtree(cache := configs["act"].parent / "caesura-cache", ignore_errors=True)
    assert run_sweep(request_of(configs, out, f"{TAU}=0", **more), listener)
    numbered = {path: path.stat().st_mtime_ns for path in cache.glob("*.idx")}
    assert len(numbered) == 2  # in characters and in words
    results = load(out / "sweep.json")
    assert [run.name for run in results.runs] == ["tau=0 seed=1", "word seed=1"]
    run, word = results.runs[0], results.runs[-1]
    assert (run.status, run.reason, run.updates) == ("finished", "12 updates", 12)
    assert run.settings == {TAU: 0.0}
    assert run.curve["sentences"] == [0, 100, 120]
    assert len(run.curve["segment_length"]) == len(run.curve["live"]) == 3
    assert run.curve["bleu"][0] is None
    columns = ("sentences", "segment_length", "live", "cross_entropy", "loss", "penalty", "remainder")
    assert {*run.training} == {*columns}
    assert {*word.training} == {"sentences", "cross_entropy", "loss"}
    assert run.training["sentences"] == word.training["sentences"]
    assert run.test is not None
    assert set(run.boundaries) == {"white space", "white space, either side"}
    assert run.boundaries["white space"]["f1"] >= 0
    assert run.coordination["source"]["overhead"] >= 1
    assert run.coordination["target"] is None
    assert word.beside
    assert word.coordination == {"source": None, "target": None}
    assert word.boundaries["white space"]["f1"] == 1.0  # words are what white space cuts
    assert results.signatures[0].startswith("BLEU|")
    assert str(tmp_path) not in (out / "sweep.json").read_text()
    assert [text.startswith("Made by `caesura") for text in results.made] == [True]
    table = (out / "table.md").read_text()
    assert "| tau=0 seed=1 |" in table
    assert results.made[0] in table

    # The same request again trains nothing; one with another value trains that alone, and keeps the others.
    before = contents(out)
    for test in (True, False):  # what was tested stays
        assert run_sweep(request_of(configs, out, f"{TAU}=0", **more | {"test": test}), Heard())
        assert contents(out) == before
    grown = Heard()
    assert run_sweep(request_of(configs, out, f"{TAU}=0.5"), grown)
    assert {name for name, _ in grown.validations} == {"tau=0.5 seed=1"}
    assert grown.messages[0].startswith("sweep.json has tau=0 seed=1, word seed=1 from another grid")
    assert grown.messages[1:3] == ["tau=0.5 seed=1: testing", "tau=0.5 seed=1: measuring its cuts"]
    assert {k: v for k, v in before.items() if k.startswith("runs/")}.items() <= contents(out).items()
    names = [run.name for run in load(out / "sweep.json").runs]
    assert names == ["tau=0.5 seed=1", "tau=0 seed=1", "word seed=1"]
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.idx")} == numbered


def test_runs_of_another_request_keep_their_own_values(configs, tmp_path):
    over = "training.learning_rate"
    for request in (f"{TAU}=0,0.5", f"{BIAS}=-2,3", f"{over}=0.02"):
        more = {"test": False, "common": ["model.segmenter.epsilon=0.02"] if request.startswith(over) else []}
        results = written(request_of(configs, tmp_path, request, **more))
    values = {run.group: [results.value(run, key) for key in (TAU, BIAS, over)] for run in results.runs}
    assert values == {
        "tau=0": [0.0, 1.0, 0.01],
        "tau=0.5": [0.5, 1.0, 0.01],
        "b_h=-2": [0.1, -2.0, 0.01],
        "b_h=3": [0.1, 3.0, 0.01],
        "learning_rate=0.02": [0.1, 1.0, 0.02],
    }
    assert len({run.alike for run in results.runs}) == len({run.digest for run in results.runs}) == 5
    last = results.runs[0]
    assert results.value(last, "model.segmenter.epsilon") == 0.02
    assert last.digest == module.digest(results.config(last))  # all of it can be told


def test_another_grid_or_other_settings_in_a_folder_are_told(configs, tmp_path):
    def differences(*over, **more):
        listener = Heard()
        GridSweep(request_of(configs, tmp_path, *over, test=False, **more)).begin(listener.say)
        return listener.messages

    written(request_of(configs, tmp_path, f"{TAU}=0,0.5"))
    assert differences(f"{TAU}=0,0.5") == differences(f"{TAU}=0,0.5,0.7") == []
    [grid] = differences(f"{BIAS}=2")
    assert "tau=0 seed=1, tau=0.5 seed=1" in grid
    [grid, settings] = differences(
        f"{TAU}=0.7", common=["training.learning_rate=0.02", "training.patience=7"]
    )
    assert "tau=0 seed=1, tau=0.5 seed=1" in grid
    assert "training.learning_rate: 0.01 -> 0.02; training.patience: 3 -> 7" in settings
    assert TAU not in settings
    [grid] = differences(f"{TAU}=0.5", seeds=(1, 2))
    assert "tau=0 seed=1" in grid
    assert "tau=0.5" not in grid


def test_seeds_are_alike_and_other_settings_are_not(configs, tmp_path):
    more = {"test": False, "seeds": [1, 2]}
    runs = written(request_of(configs, tmp_path / "a", f"{TAU}=0", **more)).runs
    runs += written(request_of(configs, tmp_path / "b", f"{TAU}=0", common=[f"{BIAS}=2"], **more)).runs
    assert runs[0].alike == runs[1].alike != runs[2].alike == runs[3].alike
    assert len({run.digest for run in runs}) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.usefixtures("drawn")
def test_what_is_drawn_again_from_the_json_is_what_was_drawn(tmp_path):
    made = sweep([*grid([-0.5, 0.0, 1.0], [1.0], seeds=2), baseline("char", 1.0, 20.0)])
    parts = sweep(made.runs[:4]), sweep(made.runs[4:])
    for name, part in zip(("one", "other"), parts, strict=True):
        save(part, tmp_path / f"{name}.json")
    module.draw(made, tmp_path / "drawn")
    files = tmp_path / "one.json", tmp_path / "other.json"
    done = caesura("sweep", "--draw", *files, "--out", tmp_path / "again")
    assert done.status == 0, done.err
    again = contents(tmp_path / "again")
    assert again == contents(tmp_path / "drawn")
    assert len(done.lines) == len(again) == 15
    words = ("--over", f"{TAU}=0", "--out", tmp_path / "some")
    assert caesura("sweep", "--draw", *files, *words).status == 0
    assert "## 3 runs, " in (tmp_path / "some" / "table.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_failing_run_is_in_the_table_and_is_tried_again(configs, tmp_path):
    out = tmp_path / "sweep"
    # A learning rate that breaks the weights, and one that does not.
    asked = request_of(configs, out, "training.learning_rate=1e-2,1e30", test=False)
    assert not run_sweep(asked, Heard())
    good, bad = load(out / "sweep.json").runs
    assert (good.status, bad.status) == ("finished", "failed")
    assert "not finite" in bad.reason
    assert f"failed: {bad.reason}" in (out / "table.md").read_text()
    again = Heard()
    assert not run_sweep(asked, again)
    assert any("learning_rate=1e+30" in text and "failed" in text for text in again.messages)
    assert not [name for name, _ in again.validations if name == good.name]


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_that_is_stopped_has_a_table_and_goes_on(configs, tmp_path, monkeypatch):
    out = tmp_path / "sweep"
    asked = request_of(configs, out, f"{TAU}=0,1", test=False)
    fleet = engine.run_fleet

    def stopped(members, *arguments):
        fleet(members[:1], *arguments)
        kept = load(out / "sweep.json")  # already, whatever comes now
        assert [run.status for run in kept.runs] == ["finished", "not run"]
        raise Interrupted(2)

    monkeypatch.setattr(engine, "run_fleet", stopped)
    with pytest.raises(Interrupted):
        run_sweep(asked, Heard())
    assert [run.status for run in load(out / "sweep.json").runs] == ["finished", "not run"]
    assert "not run" in (out / "table.md").read_text()
    monkeypatch.setattr(engine, "run_fleet", fleet)
    assert run_sweep(asked, Heard())
    assert [run.status for run in load(out / "sweep.json").runs] == ["finished", "finished"]


@pytest.mark.usefixtures("undrawn")
def test_a_decoder_that_segments_is_followed_and_measured(configs, tmp_path):
    asked = request_of(configs, tmp_path, "model.decoder.tau=0", config=configs["act-act"], test=False)
    assert run_sweep(asked, Heard())
    results = load(tmp_path / "sweep.json")
    (run,) = results.runs
    assert run.name == "decoder.tau=0 seed=1"
    assert run.test is None
    assert len(run.curve["output_segment_length"]) == 3
    assert run.coordination["target"]["overhead"] >= 1


@pytest.mark.usefixtures("undrawn")
def test_gold_is_measured_and_measured_anew_when_it_changes(configs, tmp_path):
    gold = tmp_path / "gold.tsv"
    gold.write_text("sieben\tsieb en\nvier\tvi er\n", encoding="utf-8")
    for text in (None, "sieben\tsie ben\nvier\tv ier\n"):
        if text:
            gold.write_text(text, encoding="utf-8")
        assert run_sweep(request_of(configs, tmp_path, f"{TAU}=1", gold=str(gold), test=False), Heard())
        (run,) = load(tmp_path / "sweep.json").runs
        assert set(run.boundaries) >= {"gold.tsv", "gold.tsv, alone"}
        assert run.boundaries["gold.tsv, alone"]["gold"] == 2
    assert len([*(tmp_path / "runs" / "tau=1__seed=1").glob("cuts-*.json")]) == 2


def test_chance_is_that_of_as_many_cuts(configs, tmp_path):
    made = member(tmp_path, "m", *QUICK, system="act")
    done = caesura(
        "train", made.config, "--out", made.folder, *(w for s in made.settings for w in ("--set", s))
    )
    assert done.status == 0, done.err
    model = Translator.from_pretrained(made.folder)
    row = measure(model)["boundaries"]["white space"]
    cut, gold, places = 0, 0, 0
    for text in (tmp_path / "test.de").read_text(encoding="utf-8").splitlines():
        cut += len(model.segment([text])[0]) - 1
        gold += text.count(" ")
        places += len(text) - 1
    assert row["chance"] == pytest.approx(2 * cut * gold / places / (cut + gold))
    assert row["characters"] == pytest.approx(2 * gold / (places + gold))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], "act.yaml: "),
        (["--seeds", "3"], "act.yaml: "),
        (["--over", "model.segmenter.tua=1"], "--over model.segmenter.tua=1: "),
        (["--over", f"{TAU}=1", "--list", "x.yaml"], "--list"),
        (["--list", "nowhere.yaml"], "nowhere.yaml: "),
        (["--gold", "nowhere.tsv"], "--gold nowhere.tsv: "),
        (["--beside", "nowhere.yaml"], "nowhere.yaml: "),
        (["--budget", "long"], "--budget long"),
        (["--seeds", "one"], "--seeds one"),
        (["--draw"], "--out"),
        (["other.yaml"], "other.yaml: "),
        (["--search", "3"], "--search"),
        (["--over", "data.dev.src=nowhere.de"], "data.dev.src"),
    ],
)
def test_bad_requests_are_refused_before_anything_starts(configs, tmp_path, monkeypatch, words, place):
    monkeypatch.chdir(tmp_path)
    assert place in wording(refusal(caesura("sweep", configs["act"], *words)))
    assert not [*tmp_path.rglob("*")]


@pytest.mark.parametrize("words", [(), ("--out", "out"), ("--over", f"{TAU}=1"), ("other.json",)])
def test_results_in_place_of_a_config_are_known_as_such(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    save(sweep([result()]), tmp_path / "telling.json")
    message = wording(refusal(caesura("sweep", "telling.json", *words)))
    assert "telling.json: " in message
    assert "--draw" in message


def test_a_config_may_be_json(configs, tmp_path):
    config = tmp_path / "act.json"
    config.write_text(json.dumps(load_config(configs["act"]).model_dump(mode="json")))
    assert "act.json: " in wording(refusal(caesura("sweep", config)))


def test_text_and_device_are_given_as_for_reproduce(configs, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "run_sweep", lambda request, _: asked.append(request) or True)
    save(sweep([result()]), tmp_path / "sweep.json")
    words = ("--data", configs["act"].parent, "--device", "cpu", "--set", "training.updates=3")
    done = caesura("sweep", configs["act"], *words, "--out", tmp_path)
    assert done.status == 0, done.err
    (request,) = asked
    assert request.common == ("training.updates=3", "training.device=cpu")
    experiment = GridSweep(replace(request, seeds=(1, 2)))
    point = next(iter(experiment.points.values()))
    assert point.config.data.test.src == configs["act"].parent / "test.de"


def test_a_folder_that_cannot_be_written_is_bad_input(configs, tmp_path):
    done = caesura("sweep", configs["act"], "--over", f"{TAU}=0", "--out", "/proc/x")
    assert "/proc/x: " in wording(refusal(done))
    save(sweep([result()]), tmp_path / "sweep.json")
    done = caesura("sweep", "--draw", tmp_path / "sweep.json", "--out", "/proc/x")
    assert "/proc/x: " in wording(refusal(done))


@pytest.mark.parametrize("trials", [None, 2])
def test_two_sweeps_are_not_run_in_one_folder(configs, tmp_path, monkeypatch, trials):
    if trials:
        pytest.importorskip("optuna")
    monkeypatch.setattr(engine, "run_fleet", lambda *_: pytest.fail("begun"))
    over = f"{TAU}=0.1:1.0" if trials else f"{TAU}=0"
    with hold(tmp_path / "out", print), pytest.raises(InputError, match=f"^{tmp_path}/out: "):
        run_sweep(request_of(configs, tmp_path / "out", over, trials=trials), Heard())
    assert not (tmp_path / "out" / "sweep.json").exists()


@pytest.mark.usefixtures("undrawn")
def test_one_that_is_interrupted_says_where_things_are(configs, tmp_path, monkeypatch):
    def interrupted(*_):
        raise Interrupted(2)

    monkeypatch.setattr(engine, "run_fleet", interrupted)
    done = caesura("sweep", configs["act"], "--over", f"{TAU}=0", "--no-test", "--out", tmp_path / "out")
    assert done.status == 130
    assert f"{tmp_path / 'out'}; the same command goes on" in done.out
    assert (tmp_path / "out" / "table.md").read_text().startswith("## 1 run\n")


@pytest.mark.slow
def test_the_program_sweeps_as_users_start_it(configs, tmp_path):
    folder = configs["act"].parent
    out = tmp_path / "sweep"
    words = ["sweep", configs["act"], "--over", f"{TAU}=0,1", "--over", f"{BIAS}=-2", "--parallel", "2"]
    words += ["--set", "training.updates=12", "--set", "training.validation_freq=100", "--out", out]
    words += ["--set", f"data.test.src={folder}/test.de", "--set", f"data.test.trg={folder}/test.en"]
    done = caesura(*words, "--time-limit", "1s")
    assert done.status == 0, done.err
    assert "stopped by the time limit" in done.out
    done = caesura(*words)
    assert done.status == 0, done.err
    runs = load(out / "sweep.json").runs
    assert {run.status for run in runs} == {"finished"}
    assert {path.stem for path in (out / "figures").glob("*.png")} == {
        *("trajectories", "start-and-end", "bleu", "gradient", "loss", "loss-and-length")
    }
    assert json.loads((out / "runs" / "tau=0__b_h=-2__seed=1" / "cuts.json").read_text())["boundaries"]


@pytest.mark.usefixtures("undrawn")
def test_a_sweep_whose_folder_is_removed_ends_and_does_not_make_it_anew(configs, tmp_path):
    out = tmp_path / "sweep"

    class Removing(Heard):
        def validation(self, name, record):
            shutil.rmtree(out, ignore_errors=True)

    more = {"limits": Limits(parallel=2), "test": False, "common": ["training.updates=100000"]}
    with pytest.raises(TrainingError) as caught:
        run_sweep(request_of(configs, out, f"{TAU}=0,0.5", **more), Removing())
    assert str(caught.value).startswith(f"{out}: ")
    assert not out.exists()
