"""Numbers gone wrong on a GPU: fused Adam skips the update by itself, and the host learns of it later."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import write_corpus
from safetensors.torch import load_file
from torch import Tensor
from training.outcomes import Listener, configured

from caesura.errors import Interrupted
from caesura.training.checkpoint import list_checkpoints, read_progress
from caesura.training.loop import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights and Adam's state, and the counters, of the last checkpoint."""
    path = list_checkpoints(folder / "checkpoints")[-1]
    values = {name: value for name, value in load_file(path).items() if not name.startswith("random.")}
    assert any(name.endswith(".exp_avg") for name in values)
    assert any(name.endswith(".step") for name in values)
    return values, vars(read_progress(path))


@pytest.mark.parametrize("clipping", ["null", "1.0"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_poisoned_update_leaves_weights_moments_and_counts_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, clipping: str
) -> None:
    monkeypatch.setenv("CAESURA_KERNELS", "reference")  # nothing to compile
    write_corpus(tmp_path, train=45, dev=5)
    settings = ("training.device=cuda", f"training.precision={precision}", "training.validation_freq=1000")
    poison = ("training.poison=[3, 4]", f"training.clip_grad_norm={clipping}")
    config, folder = configured(tmp_path, "word", *settings, *poison), tmp_path / "out"
    found = []
    for stop in (3, 5, 6):
        with pytest.raises(Interrupted):
            train(config, folder, Listener(stop))
        found.append(state(folder))
    (before, counts), (after, later), (beyond, _) = found
    assert before.keys() == after.keys() == beyond.keys()
    for name, value in before.items():
        assert value.equal(after[name]), name
        assert value.isfinite().all(), name
    steps = {float(value) for name, value in before.items() if name.endswith(".step")}
    assert steps == {3.0}
    assert later["window"] == counts["window"]
    assert (counts["window"]["updates"], counts["skipped"], later["skipped"]) == (3, 0, 2)
    assert (counts["update"], later["update"]) == (3, 5), "they are not made up for"
    skipped = [json.loads(path.read_text()) for path in sorted((folder / "skipped").iterdir())]
    assert [batch["update"] for batch in skipped] == [3, 4]
    assert any(not value.equal(beyond[name]) for name, value in after.items() if name.startswith("model."))
