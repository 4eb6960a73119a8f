"""A rate that is asked for, from a config to what is trained, resumed, saved and loaded."""

from pathlib import Path

import pytest
import torch
from cli.program import caesura, refusal, write_config
from training.outcomes import DROPOUT, check_resumed, configured, records, run
from wording import refuses, wording

from caesura.analysis.models import describe
from caesura.components import resolve
from caesura.config import Config, load_config
from caesura.data.tensors import load_tensors
from caesura.errors import InputError
from caesura.evaluation.boundaries import segment_length
from caesura.inference import Translator
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Weighted
from caesura.segmenters.rate import Rate
from caesura.segmenters.readers.lookup import Lookup
from caesura.training.checkpoint import list_checkpoints

pytestmark = pytest.mark.usefixtures("frequent_log")
READER = "{type: gru, embedding_dim: 6, size: 8}"
KINDS = {
    "scaling": "cif",
    **dict.fromkeys(("pi", "ratio", "quantile"), "act"),
    **dict.fromkeys(("logits", "prior"), "bernoulli, gradient: straight-through"),
}


def kept(corpus: Path, by: str, target: str = "3.0", *settings: str) -> Config:
    """A segmenter of parts that keeps a rate in one way."""
    options = ["type=parts", f"reader={READER}", f"cutter={{type: {KINDS[by]}}}", "pooling=weighted"]
    options += ["output_dim=6", f"rate={{target: {target}, by: {by}}}"]
    return configured(corpus, "char", *(f"model.segmenter.{setting}" for setting in options), *settings)


MOVING = "{start: 4.0, end: 2.0, updates: 12, shape: cosine}"


@pytest.mark.parametrize(
    "by", [pytest.param(by, marks=() if by in ("pi", "quantile") else pytest.mark.slow) for by in KINDS]
)
def test_a_resumed_run_equals_an_uninterrupted_one(by: str, corpus: Path, tmp_path: Path) -> None:
    heat = "model.segmenter.cutter.temperature={start: 2.0, end: 1.0, updates: 9, shape: step}"
    config = kept(corpus, by, MOVING, heat, "training.validation_freq=70", *DROPOUT)
    logged = records(check_resumed(config, tmp_path, 3, 10), "train")
    targets = [record["target_length"] for record in logged]
    assert targets == sorted(targets, reverse=True)
    assert 4.0 == targets[0] > targets[-1] > 2.0
    assert {record["temperature"] for record in logged} == {2.0, 1.0}


DRAWN = f"reader: {READER}, pooling: mean, rate: {{target: 3.0}}, cutter: {{type: bernoulli, gradient: "
CONV = "{type: conv, embedding_dim: 6, filters: [3, 3, 2], highway_layers: 1, dropout: 0.2}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        *(DRAWN + gradient + "}" for gradient in ("score, cuttings: 3", "disarm", "self-critical")),
        f"reader: {CONV}, cutter: routing, pooling: {{type: attention, size: 4}}, "
        "rate: {target: 3.0, by: quantile}",
    ],
    ids=["score", "disarm", "self-critical", "routing"],
)
def test_a_resumed_run_of_other_parts_equals_an_uninterrupted_one(
    parts: str, corpus: Path, tmp_path: Path
) -> None:
    segmenter = f"model.segmenter={{type: parts, {parts}, output_dim: 6}}"
    check_resumed(configured(corpus, "char", segmenter, *DROPOUT), tmp_path, 3, 10)


@pytest.mark.slow
def test_a_resumed_run_of_hmrnn_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path) -> None:
    segmenter = "type: hmrnn, embedding_dim: 6, size: 8, output_dim: 6, rate: {target: 3.0}"
    slope = "slope: {start: 1.0, end: 5.0, updates: 12}"
    config = configured(corpus, "act", f"model.segmenter={{{segmenter}, {slope}}}", *DROPOUT)
    logged = records(check_resumed(config, tmp_path, 3, 10), "train")
    slopes = [record["slope"] for record in logged]
    assert slopes == sorted(slopes)
    assert slopes[0] < slopes[-1] < 5
    assert len({record["threshold"] for record in logged}) > 5


def test_a_schedule_of_tau_is_followed_and_logged(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "act", "model.segmenter.tau={start: 0.0, end: 1.0, updates: 8}")
    run(config, tmp_path)
    taus = {record["update"]: record["tau"] for record in records(tmp_path, "train")}
    assert all(tau == min(1.0, (update - 1) / 8) for update, tau in taus.items())
    assert "tau 0 to 1 (linear, 8 updates)" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("by", ["quantile", "logits"])
def test_the_threshold_is_set_on_training_text_and_kept(by: str, corpus: Path, tmp_path: Path) -> None:
    run(kept(corpus, by), tmp_path)
    model = Translator.from_pretrained(tmp_path)
    text = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    pieces = model.segment(text)
    length = segment_length(map(len, line) for line in pieces).mean
    assert length == pytest.approx(3.0, rel=0.02)  # as a best model, not as of the last update
    weights, _ = load_tensors(tmp_path / "model.safetensors")
    if by == "logits":  # drawn cuts have no threshold in training
        assert weights["segmenter.cutter.evaluation_threshold"] != pytest.approx(1 / 3)
        return
    control = "segmenter.cutter.rate_control"
    assert weights[f"{control}.threshold"] != weights[f"{control}.training_threshold.value"]
    assert len({record["threshold"] for record in records(tmp_path, "train")}) > 1


def test_act_enc_is_kept_at_its_rate_by_tau(corpus: Path, tmp_path: Path) -> None:
    rate = "model.segmenter.rate={target: 2.0, by: pi, gain: 20.0}"
    bounds = ("training.updates=60", "training.validation_freq=300")
    listener = run(configured(corpus, "act", "model.segmenter.tau=0", rate, *bounds), tmp_path, 5)
    assert listener.validations[-1].target_length == 2.0
    state = load_tensors(list_checkpoints(tmp_path / "checkpoints")[-1])[0]
    control = {name.rpartition(".")[2]: value for name, value in state.items() if "rate_control" in name}
    assert control["value"].dtype == torch.float64
    seen = float(control["characters"] / control["segments_seen"])
    assert seen == pytest.approx(2.0, rel=0.1)
    assert len({record["tau"] for record in records(tmp_path, "train")}) > 5


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("rate={target: 0.5}", "model.segmenter.rate.target: "),
        ("rate={target: 3.0, by: quantile}", "model.segmenter.rate.by: "),
        ("rate={target: 3.0, by: luck}", "model.segmenter.rate.by: "),
        ("rate=3", "rate=3: "),
        ("rate={target: {start: 3.0, end: 0.5, updates: 5}}", "rate.target: "),
        ("rate={target: {start: 3.0, end: 2.0}}", "updates"),
        ("rate={target: {start: 3.0, end: 2.0, updates: 5, shape: wavy}}", "shape"),
        ("rate=null", "rate=null: "),
        ("cutter={type: cif, temperature: 0.0}", "cutter.temperature: "),
        ("cutter={type: cif, zoom: 1}", "cutter.zoom: "),
        ("rate={target: 3.0, by: prior}", "model.segmenter.rate.by: "),
        ("tau=1.0", "tau=1.0: "),
        ("tau={start: 1.0, end: 2.0}", "tau.updates: "),
    ],
)
def test_what_cannot_be_is_refused_before_training(corpus: Path, setting: str, where: str) -> None:
    with refuses(InputError, "", where) as refused:
        resolve(kept(corpus, "scaling", "3.0", f"model.segmenter.{setting}"))
    assert "\n" not in str(refused.value)


def test_a_rate_is_of_characters(corpus: Path) -> None:
    for level in ("word", "byte"):
        with refuses(InputError, "", "rate", "data.src.level: char"):
            resolve(kept(corpus, "scaling", "3.0", f"data.src.level={level}"))


def test_no_advice_is_given_that_a_rate_rules_out() -> None:
    free, rated = (Segmenter(Lookup(9, 4), Act(4), Weighted(), rate=rate) for rate in (None, Rate(9.0)))
    assert "tau" in str(free.remark(0.99, 40.0, first=False))
    assert rated.remark(0.99, 40.0, first=False) is None


def test_schedules_are_shown_in_words(corpus: Path, tmp_path: Path) -> None:
    heat = "model.segmenter.cutter.temperature={start: 2.0, end: 1.0, updates: 9}"
    run(kept(corpus, "pi", MOVING, heat, "training.updates=2"), tmp_path)
    name = describe(Translator.from_pretrained(tmp_path))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "act (temperature 2 to 1 (linear, 9 updates))" in name
    assert " at 4 to 2 (cosine, 12 updates) by pi" in name
    assert "target 4 to 2 (cosine, 12 updates), by 'pi'" in card
    assert "segmenter: parts, tau set by the rate, " in card


def test_tau_is_the_controllers_alone(corpus: Path) -> None:
    with refuses(InputError, "", "model.segmenter.tau=0.5: "):
        resolve(kept(corpus, "pi", "3.0", "model.segmenter.tau=0.5"))


def test_scaling_needs_weights_and_a_target_has_to_fit_the_text(corpus: Path, tmp_path: Path) -> None:
    path = write_config(corpus / "bad.yaml", "char")
    text = path.read_text(encoding="utf-8")
    begin = text.index("  segmenter:")
    parts = f"  segmenter:\n    reader: {READER}\n    cutter: act\n    pooling: weighted\n"
    rest = text[begin:].split("\n  encoder", 1)[1]
    path.write_text(f"{text[:begin]}{parts}    rate: {{target: 3.0, by: scaling}}\n  encoder{rest}")
    line = 5 + text[:begin].count("\n")
    done = caesura("train", path, "--out", tmp_path / "out")
    assert wording(refusal(done)).startswith(f"{path}:{line}: ")
    assert "model.segmenter.rate.by: " in refusal(done)
    rising = "model.segmenter.rate={target: {start: 4.0, end: 50.0, updates: 9}, by: pi}"
    with refuses(InputError, "", "rate.target: ", "50", "40"):
        resolve(load_config(path, [rising, "data.max_chars=40"]))
    long = load_config(path, ["model.segmenter.rate={target: 50.0, by: pi}", "data.max_chars=40"])
    with refuses(InputError, "", "rate.target: ", "50", "40"):
        resolve(long)
    assert not (tmp_path / "out").exists()
