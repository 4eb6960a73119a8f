"""Writes the golden folder of the format that this version writes; earlier ones must never change."""

import sys
from pathlib import Path

from helpers import tiny_model

from caesura.components import resolve
from caesura.model_folder import FORMAT

PARTS = {
    "reader": {"type": "bigru", "embedding_dim": 4, "size": 3},
    "cutter": {"type": "act"},
    "pooling": "weighted",
    "output_dim": 5,
    "rate": {"target": {"start": 4.0, "end": 2.0, "updates": 10}, "by": "quantile"},
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) / f"format{FORMAT}"
    model = tiny_model(PARTS, seed=10, scale=2.0).float()
    model.segmenter.control.threshold.fill_(0.2)
    model.config = resolve(model.config)
    model.save_pretrained(folder)
    print(model.translate(["abc", "hgfedcba", ""]), model.segment(["abc", "hgfedcba", ""]))
