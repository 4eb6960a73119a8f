"""How long fidelity and flips take for 100 characters, with untrained models of the demo's sizes.

python benchmarks/moving_cuts.py [--device cuda] [--threads 1]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch

from caesura import Translator, fidelity, flips
from caesura.config import load_config
from caesura.data.vocabulary import CharVocabulary
from caesura.experiments.demo import CONFIG, SYSTEMS

LETTERS, LENGTH = "abcdefghijklmnopqrstuvwxyz ", 100
READER = "{type: bigru, embedding_dim: 32, size: 32}"
PARTS = f"{{reader: {READER}, cutter: cif, pooling: weighted, rate: {{target: 4.0}}}}"


def model_of(segmenter: str, device: str) -> Translator:
    """A fresh model with this segmenter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(CONFIG.format(system="x", seed=1, segmenter=segmenter, updates=1), encoding="utf-8")
        config = load_config(path)
    torch.manual_seed(1)
    letters = CharVocabulary([*LETTERS])
    return Translator.build(config, letters, letters).to(device).eval()


def main() -> None:
    """Print seconds, the second of two calls each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    draw = random.Random(1)
    source, target = ("".join(draw.choices(LETTERS, k=LENGTH)) for _ in range(2))
    for name, segmenter in {"ACT-ENC": SYSTEMS["act"], "cif at 4": PARTS}.items():
        model = model_of(segmenter, asked.device)
        seconds = {}
        for _ in range(2):
            began = time.perf_counter()
            flips(model, source, target)
            flipped = time.perf_counter()
            fidelity(model, model.batch([source], [target]))
            seconds = {"flips": flipped - began, "fidelity": time.perf_counter() - flipped}
        print(name, *(f"{what} {taken:.2f} s" for what, taken in seconds.items()), sep="  ")


if __name__ == "__main__":
    main()
