"""It learns: held-out numbers are read right after a minute of training."""

import json
from pathlib import Path

import pytest
from cli.program import caesura

from caesura.data.numerals import write_corpus
from caesura.data.numerals.corpus import HeldOut

RECURRENT = "{type: recurrent, embedding_dim: 32, hidden_size: 96, attention_size: 48}"
BLOCKS = "{type: transformer, size: 64, heads: 4, feed_forward: 128, num_layers: 2, dropout: 0.0}"
SHARED = {
    "segmenter": "{type: lookup, embedding_dim: 48}",
    "encoder": "{type: recurrent, hidden_size: 48}",
    "decoder": RECURRENT,
    "learning_rate": "5e-3",
    "warmup": 0,
    "decay": "none",
    "updates": 625,
}
SYSTEMS = {
    "char": {"updates": 400},
    "act": {"segmenter": "{type: act, tau: 0.1, embedding_dim: 32, act_size: 48, output_dim: 48}"},
    "act-dec": {"decoder": RECURRENT.replace("recurrent", "act, tau: 3.0, epsilon: 0.3, act_size: 96")},
    "transformer": {
        "segmenter": "{type: lookup, embedding_dim: 64}",
        "encoder": BLOCKS,
        "decoder": BLOCKS,
        "learning_rate": "3e-3",
        "warmup": 60,
        "decay": "inverse-sqrt",
        "updates": 500,
    },
}
LENGTHS = {"char": "soak", "act": "slow", "act-dec": "soak", "transformer": "slow"}
CONFIG = """\
name: {system}
data:
  train: corpus/train.tsv
  dev: corpus/dev.tsv
  src: {{lang: de, level: char}}
  trg: {{lang: en, level: char}}
model:
  segmenter: {segmenter}
  encoder: {encoder}
  decoder: {decoder}
training:
  batch_size: 32
  learning_rate: {learning_rate}
  warmup: {warmup}
  decay: {decay}
  clip_grad_norm: 1.0
  validation_freq: 4000
  updates: {updates}
  device: cpu
  threads: 1
"""


# ACT-ENC has all that the model of characters has; ACT-DEC takes as long as the other two together.
@pytest.mark.parametrize(
    "system",
    [pytest.param(name, marks=getattr(pytest.mark, mark)) for name, mark in LENGTHS.items()],
)
def test_numbers_that_were_held_out_are_translated_right(system: str, tmp_path: Path) -> None:
    sizes = HeldOut(dev=50, test=150, long=1, typo=1)
    paths = write_corpus(tmp_path / "corpus", "de", size=2000, largest=2_999, held_out=sizes)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(system=system, **SHARED | SYSTEMS[system]))
    trained = caesura("train", config, "--out", tmp_path / "model")
    assert trained.status == 0, trained.err
    done = caesura("evaluate", tmp_path / "model", "--src", paths["test"], "--beam", 1, "--json")
    scores = json.loads(done.out)
    assert scores["scores"]["sentences"] == 150
    assert scores["scores"]["exact"] > 0.9, trained.out
