"""Translating on a CPU, beam 5, in the paper's sizes for characters: Caesura against JoeyNMT 2.3.

python benchmarks/cpu_decoding.py [--joeynmt PYTHON] [--sentences 16] [--rounds 5] [--threads 1 2]

Both models have random weights: embeddings of 620, an encoder of 2 x 500, a decoder and an attention of 1000,
117 source and 97 target characters. Both read sentences of 100 characters and write 100: </s> is forbidden.
The two take turns, so that a busy machine slows both; each has the batch size that is best for it. Printed
are medians over rounds, and the median of the rounds' ratios. Where other programs run, set
OMP_WAIT_POLICY=PASSIVE: threads that wait for one another would take what little there is.

JoeyNMT wants packages of its own, so it runs in an interpreter of its own: joeynmt_rows.py says which.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from caesura.data.vocabulary import EOS, SPECIALS
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.base import Encoded
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.search.beam import beam_search
from caesura.segmenters.lookup import LookupSegmenter

SOURCE, TARGET, EMBEDDING, ENCODER, DECODER, LENGTH, BEAM = 117, 97, 620, 500, 1000, 100, 5

# (threads, sentences per batch, batches) -> seconds
Run = Callable[[int, int, int], float]

JOEYNMT = Path(__file__).with_name("joeynmt_rows.py")


@contextmanager
def joeynmt(python: str) -> Iterator[Run]:
    """JoeyNMT's own search, by the interpreter that has it."""
    command = [python, "-W", "ignore", str(JOEYNMT), str(BEAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        asked, answers = process.stdin, iter(process.stdout)
        if next(answers, "").strip() != "ready":
            sys.exit(f"{python} cannot run JoeyNMT; --help says how to install it")

        def run(threads: int, size: int, count: int) -> float:
            print(threads, size, count, file=asked, flush=True)
            return float(next(answers))

        yield run


@torch.no_grad()
def caesura() -> Run:
    """Segmenter, encoder and beam search, as `Translator.translate` runs them."""
    torch.manual_seed(1)
    memory = 2 * ENCODER
    segmenter, encoder = LookupSegmenter(SOURCE, EMBEDDING), RecurrentEncoder(EMBEDDING, ENCODER)
    decoder = RecurrentDecoder(TARGET, memory, memory, EMBEDDING, DECODER, attention_size=DECODER)
    check(decoder, memory)
    decoder.output.bias[EOS] = -1e9

    @torch.no_grad()
    def run(threads: int, size: int, count: int) -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        for _ in range(count):
            symbols, lengths = (
                torch.randint(len(SPECIALS), SOURCE, (size, LENGTH)),
                torch.full((size,), LENGTH),
            )
            segments = segmenter(symbols, lengths)
            hypotheses = beam_search(decoder, encoder(segments.vectors, segments.lengths), lengths, BEAM)
            assert all(len(best.symbols) == LENGTH for best, *_ in hypotheses)
        return time.perf_counter() - start

    return run


def check(decoder: RecurrentDecoder, memory: int) -> None:
    """No times of wrong results: fast steps must be those in plain operations, which a gradient asks for."""
    encoded = Encoded(torch.randn(2, LENGTH, memory), torch.tensor([LENGTH, 7]), torch.randn(2, memory))
    logits = []
    for plain in (True, False):
        with torch.set_grad_enabled(plain):
            state = decoder.reorder(decoder.start(encoded), None, torch.zeros(2, BEAM, dtype=torch.long))
            for symbols in torch.arange(2 * BEAM * 5).view(5, 2, BEAM):
                step, state = decoder.step(state, symbols)
            logits.append(step.logits.detach())
    if (error := (logits[1] - logits[0]).norm() / logits[0].norm()) > 1e-5:
        sys.exit(f"the fast steps are {error:.1e} off the plain ones")


def measure(runs: dict[str, Run], threads: int, sizes: list[int], sentences: int, rounds: int) -> None:
    """Print a line for each program: its best batch size, sentences per second, and how that compares."""
    best = {}
    for name, run in runs.items():
        run(threads, 1, 1)
        best[name] = min(sizes, key=lambda size: run(threads, size, 1) / size)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            count = max(1, sentences // best[name])
            seconds[name].append(run(threads, best[name], count) / (count * best[name]))
    for name, times in seconds.items():
        rate, theirs = 1 / statistics.median(times), seconds.get("JoeyNMT", [])
        ratio = (
            f"{statistics.median(b / a for a, b in zip(times, theirs, strict=True)):.1f}" if theirs else "?"
        )
        print(f"{threads:<10}{name:10}{best[name]:>6}{rate:>20.2f}{ratio:>18}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--joeynmt", metavar="PYTHON", help="an interpreter that can import joeynmt")
    parser.add_argument("--sentences", type=int, default=16, help="a round, of each program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16])
    options = parser.parse_args()
    print(f"torch {torch.__version__}, beam {BEAM}, {LENGTH} characters to {LENGTH}, {options.rounds} rounds")
    print(f"{'threads':10}{'':10}{'batch':>6}{'sentences/s':>20}{'times JoeyNMT':>18}")
    with joeynmt(options.joeynmt) if options.joeynmt else nullcontext() as theirs:
        runs = {"Caesura": caesura()} | ({"JoeyNMT": theirs} if theirs else {})
        for threads in options.threads:
            measure(runs, threads, options.batches, options.sentences, options.rounds)


if __name__ == "__main__":
    main()
