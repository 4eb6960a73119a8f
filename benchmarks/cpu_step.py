"""A training step on a CPU (forward, backward, Adam): reference against fused, interleaved, medians.

python benchmarks/cpu_step.py [--paper] [--rounds 15] [--threads 1 2]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.kernels import VARIABLE
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.lookup import LookupSegmenter


@dataclass(frozen=True)
class Sizes:
    """Of a model and its batches: B sentences, T source and U target symbols, V symbols per vocabulary."""

    act: int
    embedding: int
    segment: int
    encoder: int
    decoder: int
    attention: int
    B: int
    T: int
    U: int
    V: int


DEMO = Sizes(act=48, embedding=32, segment=64, encoder=64, decoder=128, attention=64, B=64, T=38, U=42, V=30)
PAPER = Sizes(
    act=50, embedding=620, segment=620, encoder=500, decoder=1000, attention=1000, B=8, T=100, U=100, V=100
)


def training_step(kind: str, sizes: Sizes) -> Callable[[], None]:
    """One step of a fresh model on a fixed ragged batch; ACT-ENC's segments start out two characters long."""
    torch.manual_seed(1)
    segmenter: BaseSegmenter
    if kind == "act":
        segmenter = ActSegmenter(sizes.V, sizes.embedding, sizes.act, sizes.segment)
    else:
        segmenter = LookupSegmenter(sizes.V, sizes.segment)
    encoder = RecurrentEncoder(segmenter.output_dim, sizes.encoder)
    memory = 2 * sizes.encoder
    decoder = RecurrentDecoder(sizes.V, memory, memory, sizes.embedding, sizes.decoder, sizes.attention)
    optimizer = torch.optim.Adam(nn.ModuleList((segmenter, encoder, decoder)).parameters(), lr=1e-5)
    source, target = (
        torch.randint(4, sizes.V, (sizes.B, sizes.T)),
        torch.randint(4, sizes.V, (sizes.B, sizes.U)),
    )
    lengths = torch.linspace(0.7 * sizes.T, sizes.T, sizes.B).long()

    def step() -> None:
        segments = segmenter(source, lengths)
        encoded = encoder(segments.vectors, segments.lengths)
        logits = decoder(encoded, target, torch.full((sizes.B,), sizes.U)).logits
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten()) + 0.1 * segments.penalty.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure(step: Callable[[], None], rounds: int) -> dict[str, float]:
    """Median milliseconds of each implementation, taken in turns so that a busy machine slows both."""
    times: dict[str, list[float]] = {choice: [] for choice in ("reference", "fused")}
    for round_number in range(rounds + 1):
        for choice in ("reference", "fused"):
            os.environ[VARIABLE] = choice
            start = time.perf_counter()
            step()
            if round_number:  # the first one warms up
                times[choice].append(1000 * (time.perf_counter() - start))
    return {choice: statistics.median(values) for choice, values in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paper", action="store_true", help="the paper's sizes as well, with batches of 8")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each implementation")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(f"torch {torch.__version__}, median of {options.rounds} steps, ms")
    print(f"{'sizes':7}{'model':7}{'threads':>8}{'reference':>11}{'fused':>9}{'ratio':>8}")
    for name, sizes in (("demo", DEMO), ("paper", PAPER))[: 2 if options.paper else 1]:
        for kind in ("char", "act"):
            for threads in options.threads:
                torch.set_num_threads(threads)
                ms = measure(training_step(kind, sizes), options.rounds)
                ratio = ms["reference"] / ms["fused"]
                row = f"{ms['reference']:11.1f}{ms['fused']:9.1f}{ratio:8.2f}"
                print(f"{name:7}{kind:7}{threads:8}{row}", flush=True)


if __name__ == "__main__":
    main()
