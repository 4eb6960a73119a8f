"""Writes the golden folders of the format that this version writes; earlier ones must never change."""

import sys
from pathlib import Path
from typing import Any

import torch
from helpers import RECURRENT, make_config, tiny_model, vocabulary

from caesura.components import resolve
from caesura.data.entropy import NgramCuts
from caesura.data.entropy_gru import GruCuts
from caesura.inference import Translator
from caesura.model_folder import FORMAT

PARTS = {
    "reader": {"type": "bigru", "embedding_dim": 4, "size": 3},
    "cutter": {"type": "act"},
    "pooling": "weighted",
    "output_dim": 5,
    "rate": {"target": {"start": 4.0, "end": 2.0, "updates": 10}, "by": "quantile"},
}

TEXT = ["abc", "hgfedcba", ""]


def by_entropy(**options: Any) -> Translator:
    """A model whose folder has n-grams, or a GRU."""
    cuts = {"type": "entropy", "target": 2.3, **options}
    side = {"lang": "xx", "level": "char"}
    data = {"train": "t.tsv", "dev": "d.tsv", "src": side, "trg": side, "cuts": cuts}
    segmenter = PARTS | {"cutter": "given", "pooling": "mean", "rate": None}
    config = resolve(make_config(segmenter, {"hidden_size": 3}, RECURRENT, data=data))
    kind = GruCuts if options.get("model") == "gru" else NgramCuts
    learnt = kind.learn(["abcabd", "hgfhge", "abhge", "dcbadc"], config.data.cuts)
    torch.manual_seed(10)
    return Translator.build(config, vocabulary(12), vocabulary(9), learnt).eval()


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / f"format{FORMAT}"
    model = tiny_model(PARTS, seed=10, scale=2.0).float()
    model.segmenter.control.threshold.fill_(0.2)
    model.config = resolve(model.config)
    model.save_pretrained(folder)
    print(model.translate(TEXT), model.segment(TEXT))
    for name, options in {"entropy": {"order": 3}, "gru": {"model": "gru", "size": 4, "updates": 50}}.items():
        model = by_entropy(**options)
        model.save_pretrained(f"{folder}-{name}")
        print(model.translate(TEXT), model.segment(TEXT))
