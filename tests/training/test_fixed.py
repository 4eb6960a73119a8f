"""Training with a halting unit that does not learn: it stays, bit for bit, and everything else goes on."""

from pathlib import Path

import pytest
import torch
from helpers import ACT, sentences, tiny_model
from torch import Tensor
from training.outcomes import DROPOUT, Listener, check_resumed, configured, outcome, records, run, stopped
from training.test_step import Keys
from wording import refuses

from caesura.components import resolve
from caesura.config import Config
from caesura.data.batching import collate
from caesura.data.tensors import load_tensors
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.training import step as steps
from caesura.training.checkpoint import list_checkpoints
from caesura.training.loop import train
from caesura.training.step import Step

pytestmark = pytest.mark.usefixtures("frequent_log")
HALTING = {"segmenter.halting.weight", "segmenter.halting.bias"}


def fixed(corpus: Path, *settings: str, learns: bool = False) -> Config:
    """Segments of 4 characters; gradients are clipped, for that reads all of them."""
    options = (f"learn_halting={str(learns).lower()}", "tau=0", "halting_bias=-1.0986")
    clipped = "training.clip_grad_norm=1.0"
    return configured(
        corpus, "act", *(f"model.segmenter.{setting}" for setting in options), clipped, *settings
    )


def checkpoint(folder: Path) -> dict[str, Tensor]:
    return load_tensors(list_checkpoints(folder / "checkpoints")[-1])[0]


def test_the_unit_stays_as_it_is_while_all_else_learns(corpus: Path, tmp_path: Path) -> None:
    train(fixed(corpus), tmp_path / "start", Listener(), time_limit=0)
    run(fixed(corpus), tmp_path / "run")
    start, end = checkpoint(tmp_path / "start"), checkpoint(tmp_path / "run")
    names = [name.removeprefix("model.") for name in start if name.startswith("model.")]
    moved = {name for name in names if not start[f"model.{name}"].equal(end[f"model.{name}"])}
    assert moved == {*names} - HALTING
    assert not end["model.segmenter.halting.weight"].any()
    assert end["model.segmenter.halting.bias"].equal(torch.tensor([-1.0986]))
    model = Translator.from_pretrained(tmp_path / "run")
    assert model.segment(["einszwei"]) == [["eins", "zwei"]]
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == HALTING


def test_no_character_is_said_to_be_live(corpus: Path, tmp_path: Path) -> None:
    listener = run(fixed(corpus), tmp_path)
    assert not any("live" in validation.figures for validation in listener.validations)
    logged = records(tmp_path, "start", "train", "validation")
    assert all("remainder" in record for record in logged)
    assert all(2 < record["segment_length"] <= 4 for record in logged)
    assert not any("live" in record for record in logged)
    assert "model.segmenter.learn_halting is false: where segments end will not change" in listener.messages
    assert not any("a lower model.segmenter.halting_bias" in line for line in listener.messages)
    card = (tmp_path / "README.md").read_text()
    assert "remainder:" in card
    assert "live:" not in card


def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path) -> None:
    check_resumed(fixed(corpus, *DROPOUT), tmp_path, 3, 4, 14)


def test_where_every_character_halts_learning_makes_no_difference(corpus: Path, tmp_path: Path) -> None:
    # A unit that learns has no gradient there: what is left of it is the same model.
    for learns in (True, False):
        run(fixed(corpus, "model.segmenter.halting_bias=20", learns=learns), tmp_path / str(learns))
    learnt, kept = (load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("True", "False"))
    assert {name for name in learnt if not learnt[name].equal(kept[name])} == {"segmenter.halting.weight"}


def test_a_run_begun_before_there_was_the_option_goes_on(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "act")
    run(config, tmp_path / "whole")
    stopped(config, tmp_path / "old", 3)
    path = tmp_path / "old" / "config.yaml"
    before, line, after = path.read_text().partition("    learn_halting: true\n")
    assert line
    path.write_text(before + after)
    run(config, tmp_path / "old")
    assert outcome(tmp_path / "old") == outcome(tmp_path / "whole")


def test_gradients_that_stay_in_place_are_of_what_learns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = collate([*zip(sentences(5, 1), sentences(5, 2, 9), strict=True)])
    losses = []
    for captured in (False, True):
        monkeypatch.setattr(steps, "wanted", lambda device, captured=captured: captured)
        monkeypatch.setattr(steps, "Graphs", Keys)
        model = tiny_model(ACT | {"learn_halting": False, "tau": 0.0})
        step = Step(model, model.config.training)
        for _ in range(2):  # nothing is left of the step before
            step(batch)
        losses.append({name: p.grad for name, p in model.named_parameters()})
    plain, placed = losses
    assert {name for name, gradient in plain.items() if gradient is None} == HALTING
    assert {name for name, gradient in placed.items() if gradient is None} == HALTING
    for name in plain.keys() - HALTING:
        torch.testing.assert_close(placed[name], plain[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (["tau=-0.5", "learn_halting=false"], "tau=-0.5"),
        (["tau=0", "learn_halting=0"], "learn_halting=0"),
        (["type=lookup", "embedding_dim=3", "learn_halting=false"], "learn_halting=false"),
    ],
)
def test_what_cannot_be_is_refused(corpus: Path, settings: list[str], wrong: str) -> None:
    with refuses(InputError, f"--set model.segmenter.{wrong}: "):
        resolve(configured(corpus, "act", *(f"model.segmenter.{setting}" for setting in settings)))


def test_a_tau_of_the_file_is_refused_with_its_line_and_a_remedy(corpus: Path) -> None:
    config = configured(corpus, "act", "model.segmenter.learn_halting=false")
    with refuses(InputError, "", "act.yaml:8: model.segmenter.tau: "):
        resolve(config)
