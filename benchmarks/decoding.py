"""Translation in the paper's sizes on a GPU, from source symbols to hypotheses: sentences a second.

    python benchmarks/decoding.py [--batches 512 1024 2048 4096] [--beam 5] [--rounds 5]

Sentences of 100 source characters; </s> is never written, so that each takes 100 steps; bfloat16 products.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import torch
from training_step import SYSTEMS, batch, model

from caesura.data.batching import Batch
from caesura.data.vocabulary import EOS
from caesura.model import Translator
from caesura.search.beam import beam_search
from caesura.search.graphs import VARIABLE
from caesura.search.greedy import greedy
from caesura.search.hypothesis import Hypothesis

STEPS = 100


def search(translator: Translator, data: Batch, beam: int) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence."""
    limits = torch.full_like(data.src_lengths, STEPS)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        memory = translator.encode(data.src, data.src_lengths)[1]
        if beam == 1:
            return [[h] for h in greedy(translator.decoder, memory, limits)]
        return beam_search(translator.decoder, memory, limits, beam)


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Median over rounds; the hypotheses are on the host when it ends."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def main() -> None:
    """Print the table, or why there is none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(1, "this benchmark needs a CUDA device\n")
    translator = model(next(iter(SYSTEMS))).eval()
    with torch.no_grad():
        translator.decoder.output.bias[EOS] = -1e9
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, median of {options.rounds}")
    print(f"{'':8}{'batch':>6}{'ms':>9}{'sent/s':>9}{'GiB':>7}{'agree':>8}")  # with no graphs, 20 symbols
    for beam in (1, options.beam):
        for size in options.batches:
            data = batch(size)
            os.environ[VARIABLE] = "0"
            plain = search(translator, data, beam)
            del os.environ[VARIABLE]
            for _ in range(2):
                found = search(translator, data, beam)
            pairs = zip(found, plain, strict=True)
            agree = sum(one[0].symbols[:20] == other[0].symbols[:20] for one, other in pairs) / size
            torch.cuda.reset_peak_memory_stats()
            ms = milliseconds(lambda data=data, beam=beam: search(translator, data, beam), options.rounds)
            peak = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"beam {beam:<3}{size:6}{ms:9.1f}{1000 * size / ms:9.0f}{peak:7.2f}  {agree:.1%}", flush=True
            )


if __name__ == "__main__":
    main()
