"""The ACT-ENC layer alone on a GPU, forward + backward: the implementations against each other, medians.

python benchmarks/act_scan.py [--batch 40 128 512] [--length 100] [--act 50] [--float32] [--only triton]
The last column replays the Triton layer from two CUDA graphs, between them the synchronisation that tells how
many segments there are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from caesura.kernels import CHOICES, VARIABLE
from caesura.segmenters.act import ActSegmenter

EMBEDDING, OUTPUT, VOCABULARY = 620, 620, 117
Step = Callable[[], None]


class Layer:
    """The layer, a batch of nearly equally long sentences, and a gradient for what comes out."""

    def __init__(self, act: int, B: int, T: int, bf16: bool) -> None:
        torch.manual_seed(1)
        self.module, self.bf16 = ActSegmenter(VOCABULARY, EMBEDDING, act, OUTPUT).cuda(), bf16
        self.symbols = torch.randint(VOCABULARY, (B, T), device="cuda")
        self.lengths = torch.randint(T * 9 // 10, T + 1, (B,), device="cuda")
        self.gradients: dict[int, Tensor] = {}
        self.of_penalty = torch.full((B,), 0.1 / B, device="cuda")

    def autocast(self) -> torch.autocast:
        return torch.autocast("cuda", torch.bfloat16, enabled=self.bf16, cache_enabled=False)

    def back(self, vectors: Tensor, penalty: Tensor, keep: bool = False) -> None:
        S = vectors.shape[1]
        if S not in self.gradients:
            self.gradients[S] = torch.randn_like(vectors)
        torch.autograd.backward((vectors, penalty), (self.gradients[S], self.of_penalty), retain_graph=keep)

    def step(self) -> None:
        with self.autocast():
            segments = self.module(self.symbols, self.lengths)
        self.back(segments.vectors, segments.penalty)

    def graphed(self) -> Step:
        """The same as two graphs: up to the number of segments, and the rest for a multiple of 8 of them."""
        first, rest = torch.cuda.CUDAGraph(), {}
        with torch.cuda.graph(first), self.autocast():
            scan, after = self.module.scan(self.symbols, self.lengths, None, True)
            longest = scan.lengths.max()

        def capture(S: int) -> torch.cuda.CUDAGraph:
            with self.autocast():  # allocates the gradient outside of the graph
                self.gradients.setdefault(S, torch.randn_like(self.module.emit(scan, S)))
            self.module.zero_grad()
            with torch.cuda.graph(graph := torch.cuda.CUDAGraph(), pool=first.pool()):
                with self.autocast():
                    vectors, penalty = self.module.emit(scan, S), self.module.penalty(after)
                self.back(vectors, penalty, keep=True)
            return graph

        def step() -> None:
            first.replay()
            S = -(-int(longest) // 8) * 8
            if S not in rest:
                rest[S] = capture(S)
            rest[S].replay()

        return step


def milliseconds(step: Step, weights: list[Tensor] | None) -> float:
    from triton.testing import do_bench

    return do_bench(step, warmup=50, rep=200, grad_to_none=weights, return_mode="median")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[40, 128, 512])
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--act", type=int, default=50)
    parser.add_argument("--float32", action="store_true", help="instead of bfloat16 autocast")
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=CHOICES)
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/act_scan.py needs a CUDA device; benchmarks/cpu_step.py is for CPUs")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    precision = "float32" if chosen.float32 else "bfloat16 autocast"
    print(f"ACT-ENC layer, forward + backward, {precision}, act {chosen.act}, {chosen.length} symbols")
    columns = [*chosen.only, "graphs"] if "triton" in chosen.only else chosen.only
    print(" batch" + "".join(f"{name + ' ms':>15}{'ratio':>8}" for name in columns))
    for B in chosen.batch:
        layer, row, first = Layer(chosen.act, B, chosen.length, not chosen.float32), f"{B:6d}", 0.0
        for name in columns:
            os.environ[VARIABLE] = "triton" if name == "graphs" else name
            if name == "graphs":
                took = milliseconds(layer.graphed(), None)
            else:
                took = milliseconds(layer.step, list(layer.module.parameters()))
            first = first or took
            row += f"{took:15.3f}{first / took:8.1f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
