"""Numbers gone wrong: an update that is not finite is skipped, its batch kept; too many end training."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from numbered import corpus_of
from safetensors.torch import load_file
from torch import Tensor
from training.outcomes import Listener, configured, outcome, records, run, stopped
from training.poison import poison
from wording import refuses

from caesura.data.batching import BatchPlan
from caesura.errors import TrainingError
from caesura.kernels.adam import Adam
from caesura.training.checkpoint import list_checkpoints, read_progress
from caesura.training.guard import Guard, Seen
from caesura.training.loop import train
from caesura.training.step import SUMS, Step

pytestmark = pytest.mark.usefixtures("frequent_log")
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
)
CLIPPING = pytest.mark.parametrize("clipping", ["null", "1.0"])


def state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and Adam's state, and the counters, of the last checkpoint."""
    path = list_checkpoints(folder / "checkpoints")[-1]
    values = {name: value for name, value in load_file(path).items() if not name.startswith("random.")}
    assert any(name.endswith(".exp_avg") for name in values)
    assert any(name.endswith(".step") for name in values)
    return values, vars(read_progress(path))


@CLIPPING
def test_a_poisoned_batch_is_named_and_kept_and_training_goes_on(
    corpus: Path, tmp_path: Path, clipping: str
) -> None:
    config = configured(corpus, "word", f"training.clip_grad_norm={clipping}")
    with poison(3, 8):
        listener = run(config, tmp_path)
    assert [r["update"] for r in records(tmp_path, "skipped")] == [3, 8]
    assert [line.split(":")[0] for line in listener.messages if "skipped" in line] == [
        "update 3 skipped",
        "update 8 skipped",
    ]
    numbered = corpus_of(tmp_path)
    plan = BatchPlan(numbered.lengths, 10, seed=config.training.seed)
    for update in (3, 8):
        kept = json.loads((tmp_path / "skipped" / f"{update:09d}.json").read_text())
        assert kept["sentences"] == plan.epoch(update // 5)[update % 5].tolist()
        lines = [(corpus / f"train.{language}").read_text().split("\n") for language in ("de", "en")]
        assert kept["source"] == [lines[0][row] for row in kept["sentences"]]
        assert kept["target"] == [lines[1][row] for row in kept["sentences"]]
    for path in (tmp_path / "model.safetensors", *list_checkpoints(tmp_path / "checkpoints")):
        assert all(value.isfinite().all() for value in load_file(path).values() if value.is_floating_point())
    assert all(math.isfinite(r["loss"]) for r in records(tmp_path, "train"))


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@CLIPPING
def test_a_skipped_update_leaves_weights_moments_and_counts_as_they_were(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clipping: str, precision: str, device: str
) -> None:
    """Fused Adam skips by itself; on a GPU the host learns of it later."""
    monkeypatch.setenv("CAESURA_KERNELS", "reference")  # nothing to compile
    monkeypatch.setattr("caesura.training.loop.LOG_EVERY", 1000)  # a line of the log starts the counts anew
    monkeypatch.setattr("caesura.training.loop.LOG_EARLY", ())
    numbers = (f"training.device={device}", f"training.precision={precision}")
    rest = (f"training.clip_grad_norm={clipping}", "training.validation_freq=1000")
    config = configured(corpus, "word", *numbers, *rest)
    outcomes = []
    for stop in (3, 5, 6):
        with poison(3, 4):
            stopped(config, tmp_path, stop)
        outcomes.append(state(tmp_path))
    (before, counts), (after, later), (beyond, _) = outcomes
    assert before.keys() == after.keys() == beyond.keys()
    for name, value in before.items():
        assert value.equal(after[name]), name
        assert value.isfinite().all(), name
    steps = {float(value) for name, value in before.items() if name.endswith(".step")}
    assert steps == {3.0}
    assert later["window"] == counts["window"]
    assert (counts["window"]["updates"], counts["skipped"], later["skipped"]) == (3, 0, 2)
    assert (counts["update"], later["update"]) == (3, 5), "they are not made up for"
    skipped = [json.loads(path.read_text()) for path in sorted((tmp_path / "skipped").iterdir())]
    assert [batch["update"] for batch in skipped] == [3, 4]
    assert any(not value.equal(beyond[name]) for name, value in after.items() if name.startswith("model."))


def test_an_interrupted_run_skips_as_an_uninterrupted_one(corpus: Path, tmp_path: Path) -> None:
    outcomes = []
    for stops in ((), (3, 4), (4, 5, 6), range(1, 15)):
        with poison(3, 4, 5, 11):
            run(configured(corpus), tmp_path / f"{stops}", *stops)
        outcomes.append(outcome(tmp_path / f"{stops}"))
    assert all(stopped == outcomes[0] for stopped in outcomes[1:])


@pytest.mark.parametrize("at_once", [True, False], ids=["as on a CPU", "as on a GPU"])
def test_too_many_in_a_row_end_training_with_the_last_good_state(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    if not at_once:
        later(monkeypatch)
    config = configured(corpus, "word", "training.max_skipped=3", "training.validation_freq=30")
    with poison(5, 6, 7), refuses(TrainingError, "", "update 7, 3 times"):
        train(config, tmp_path, Listener())
    assert sorted(path.name for path in (tmp_path / "skipped").iterdir()) == [
        f"00000000{n}.json" for n in (5, 6, 7)
    ]
    last = list_checkpoints(tmp_path / "checkpoints")[-1]
    assert read_progress(last).update == 7, (
        "of the validation amid the three; what was skipped changed nothing"
    )
    assert all(value.isfinite().all() for value in load_file(last).values() if value.is_floating_point())
    with poison(5, 6, 7), pytest.raises(TrainingError):  # the same again
        train(config, tmp_path, Listener())


def test_in_a_row_counts_across_interruptions(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "word", "training.max_skipped=3")
    for stop in (6, 7):
        with poison(5, 6, 7):
            stopped(config, tmp_path, stop)
    with poison(5, 6, 7), refuses(TrainingError, "", "update 7, 3 times"):
        train(config, tmp_path, Listener())


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the host looks only when it writes something down."""

    def note(self: Guard, rows: Any, wrong: Tensor) -> None:
        self.seen.append(Seen(self.progress.update, self.progress.epoch, self.progress.batch, rows, wrong))

    monkeypatch.setattr(Guard, "note", note)


def test_looking_later_finds_the_same(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(corpus)
    with poison(1, 2, 3, 12):
        run(config, tmp_path / "at once")
        later(monkeypatch)
        run(config, tmp_path / "later")
    delayed, expected = outcome(tmp_path / "later"), outcome(tmp_path / "at once")
    for result in (delayed, expected):  # the log names a skipped update when it is looked at
        result["metrics"].sort(key=lambda record: (record["kind"], record["update"]))
    assert delayed == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_skipped_too(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    compute = Step.__call__

    def computed(self: Step, batch: Any, update: int = 0) -> Tensor:
        sums = compute(self, batch, update)
        sums[SUMS.index("loss")] = bad if update == 6 else sums[SUMS.index("loss")]
        return sums

    monkeypatch.setattr(Step, "__call__", computed)
    run(configured(corpus), tmp_path)
    assert [r["update"] for r in records(tmp_path, "skipped")] == [6]
    assert all(math.isfinite(r["loss"]) for r in records(tmp_path, "train"))


def test_without_trouble_guarded_updates_are_adams(corpus: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    kinds = (torch.optim.Adam, Adam)
    optimizers = [k(m.parameters(), lr=0.01, fused=True) for k, m in zip(kinds, models, strict=True)]
    optimizers[1].found_inf = torch.zeros(())  # type: ignore[attr-defined]
    for _ in range(5):
        inputs = torch.randn(6, 4)
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(inputs).square().sum().backward()
            optimizer.step()
    assert models[0].weight.equal(models[1].weight)
    moments, ours = (optimizer.state_dict()["state"] for optimizer in optimizers)
    for name in ("exp_avg", "exp_avg_sq", "step"):
        assert all(ours[index][name].equal(moments[index][name]) for index in (0, 1)), name
