"""Trainings of Transformers: a run that was stopped goes on as if it had not been."""

from pathlib import Path

import pytest
from training.outcomes import check_resumed, configured

BLOCKS = "type: transformer, size: 8, heads: 2, feed_forward: 8, num_layers: 2, dropout: 0.2"
SETTINGS = (
    *("training.decay=inverse-sqrt", "training.warmup=4", "training.adam_betas=[0.9, 0.98]"),
    *("training.weight_decay=1e-2", "training.label_smoothing=0.1", "training.src_token_dropout=0.1"),
    *("training.batch_type=characters", "training.batch_size=300", "training.accumulate=2"),
    *("training.keep_best=2", "testing.max_output_extra=5", f"model.encoder={{{BLOCKS}, places: symbols}}"),
)
SYSTEMS = {
    "bytes, one table": (
        "char",
        "model.segmenter={type: lookup, embedding_dim: 8}",
        f"model.decoder={{{BLOCKS}, tied: true, share: true}}",
        *("data.src.level=byte", "data.trg.level=byte"),
    ),
    "cif behind a transformer": (
        "char",
        "model.segmenter={reader: {type: transformer, size: 8, heads: 2, feed_forward: 8, window: 3}, "
        "cutter: cif, pooling: weighted, rate: {target: 3.0}}",
        f"model.decoder={{{BLOCKS}}}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path, system: str) -> None:
    name, *parts = SYSTEMS[system]
    check_resumed(configured(corpus, name, *parts, *SETTINGS), tmp_path, 3, 8)
