"""A whole training step (forward, backward, Adam) of the paper's systems on a GPU.

    python benchmarks/training_step.py [--rounds N] [--reference]

Batches of 40, 128 and 512 sentences of 100 source and 100 target characters; bfloat16 with float32 weights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch

from caesura.config import Config
from caesura.data.batching import Batch, collate
from caesura.data.vocabulary import SPECIALS, CharVocabulary
from caesura.kernels import VARIABLE
from caesura.model import Translator
from caesura.training.step import Step

BATCHES = (40, 128, 512)
SYSTEMS = {
    "char, 1 layer": ({"type": "lookup", "embedding_dim": 620}, 1),
    "ACT-ENC 50, 1 layer": (
        {"type": "act", "embedding_dim": 620, "act_size": 50, "output_dim": 620, "tau": 1.0},
        1,
    ),
    "char, 5 layers": ({"type": "lookup", "embedding_dim": 620}, 5),
}


def model(system: str) -> Translator:
    """A fresh model in the paper's sizes, 117 source and 97 target characters, on the GPU."""
    segmenter, layers = SYSTEMS[system]
    side = {"lang": "xx", "level": "char"}
    config = Config.model_validate(
        {
            "name": "benchmark",
            "training": {"precision": "bfloat16"},
            "data": {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side},
            "model": {
                "segmenter": segmenter,
                "encoder": {"type": "recurrent", "hidden_size": 500, "num_layers": layers},
                "decoder": {
                    "type": "recurrent",
                    "embedding_dim": 620,
                    "hidden_size": 1000,
                    "attention_size": 1000,
                },
            },
        }
    )
    sizes = (117, 97)
    vocabularies = (CharVocabulary([chr(0x4E00 + i) for i in range(size - len(SPECIALS))]) for size in sizes)
    torch.manual_seed(1)
    return Translator.build(config, *vocabularies).cuda()


def batch(size: int) -> Batch:
    """Random sentences of 100 symbols, </s> included."""
    rows = torch.randint(4, 97, (size, 2, 99)).tolist()
    return collate([(source, target) for source, target in rows]).pin()


def measure(translator: Translator, data: Batch, rounds: int) -> tuple[float, float, float]:
    """Median milliseconds of a step, peak GiB, and the mean segment length that was timed."""
    optimizer = torch.optim.Adam(translator.parameters(), lr=1e-5, fused=True)
    gradients = Step(translator, translator.config.training)

    def step() -> None:
        gradients(data)
        optimizer.step()

    for _ in range(4):
        step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
    with torch.no_grad():
        segments = translator.segmenter(data.src.cuda(), data.src_lengths.cuda())
    mean = float(data.src_lengths.sum() / segments.lengths.sum())
    return statistics.median(times), torch.cuda.max_memory_reserved() / 2**30, mean


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--reference", action="store_true", help="time the reference as well, and the ratio")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "this benchmark needs a CUDA device\n")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, median of {options.rounds} steps")
    print(
        f"{'system':22} {'batch':>5} {'ms':>8} {'sent/s':>8} {'GiB':>6} {'segment':>8}  reference ms (ratio)"
    )
    for system in SYSTEMS:
        for size in BATCHES:
            ms, peak, mean = measure(model(system), batch(size), options.rounds)
            line = f"{system:22} {size:5} {ms:8.2f} {1000 * size / ms:8.0f} {peak:6.2f} {mean:8.2f}"
            if options.reference:
                os.environ[VARIABLE] = "reference"
                slow, _, _ = measure(model(system), batch(size), 3)
                del os.environ[VARIABLE]
                line += f"  {slow:8.1f} ({slow / ms:.1f})"
            print(line, flush=True)


if __name__ == "__main__":
    main()
