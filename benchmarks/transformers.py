"""Transformers of 6 + 6 layers of 512: Caesura, the same in PyTorch's modules, and JoeyNMT 2.3, in one run.

    python benchmarks/transformers.py [--only training decoding] [--rounds 10] [--joeynmt] [--eager]
    python benchmarks/transformers.py --cpu --joeynmt-python PYTHON [--sentences 8] [--rounds 3]

On a GPU: a training step on 320 sentences of 100 characters, which are 8,000 BPE symbols or 32,000
characters per side; and beam 5 over such sentences, with translations as long as the source. Weights are
random, products are in bfloat16. PyTorch's modules are compiled, in both of the compiler's usual modes;
JoeyNMT runs in TF32 and in bfloat16; the faster of each two counts. On a CPU: beam 5 in float32, and the two
take turns. transformer_rows.py has the models and says how to install JoeyNMT. Medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from systems import vocabulary
from timing import fresh, milliseconds
from transformer_rows import (
    DROPOUT,
    EOS,
    HEADS,
    INNER,
    LAYERS,
    SMOOTHING,
    WIDTH,
    joeynmt_search,
    joeynmt_step,
    pytorch_step,
)

from caesura.config import Config
from caesura.data.batching import Batch, collate
from caesura.data.vocabulary import EOS as OUR_EOS
from caesura.data.vocabulary import SPECIALS
from caesura.inference import Translator
from caesura.search.beam import beam_search
from caesura.training.step import Step

SENTENCES, BEAM = 320, 5
ROWS = Path(__file__).with_name("transformer_rows.py")


@dataclass(frozen=True)
class Text:
    """How many symbols of a vocabulary 100 characters are."""

    name: str
    symbols: int
    vocabulary: int

    def ids(self, sentences: int, times: int = 1) -> torch.Tensor:
        """[2, B, T] random symbols of both sides, the last of them </s> as transformer_rows.py numbers it."""
        ids = torch.randint(len(SPECIALS), self.vocabulary, (2, sentences, times * self.symbols))
        ids[:, :, -1] = EOS
        return ids

    def batch(self, sentences: int, times: int = 1) -> Batch:
        """The same sentences as batches of Caesura."""
        source, target = self.ids(sentences, times)[:, :, :-1].tolist()
        return collate(list(zip(source, target, strict=True)))

    def model(self, precision: str = "bfloat16") -> Translator:
        """Caesura's model, on the GPU where there is one."""
        blocks = {"type": "transformer", "size": WIDTH, "heads": HEADS, "feed_forward": INNER}
        blocks |= {"num_layers": LAYERS, "dropout": DROPOUT, "positions": "sinusoidal"}
        side = {"lang": "xx", "level": "char"}
        config = Config.model_validate(
            {
                "name": "benchmark",
                "training": {"precision": precision, "label_smoothing": SMOOTHING},
                "testing": {"precision": precision},
                "data": {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side},
                "model": {
                    "segmenter": {"type": "lookup", "embedding_dim": WIDTH},
                    "encoder": blocks,
                    "decoder": blocks | {"tied": True},
                },
            }
        )
        torch.manual_seed(1)
        model = Translator.build(config, vocabulary(self.vocabulary), vocabulary(self.vocabulary))
        return model.cuda() if torch.cuda.is_available() else model

    def flop(self, sentences: int) -> float:
        """Operations of a training step's products: forward, and twice as many backward."""
        T, D = self.symbols, WIDTH
        encoder = T * (8 * D * D + 4 * D * INNER) + 4 * T * T * D
        decoder = T * (16 * D * D + 4 * D * INNER) + 2 * T * T * D + 4 * T * T * D
        return 3.0 * sentences * (LAYERS * (encoder + decoder) + 2 * T * D * self.vocabulary)


TEXTS = Text("BPE symbols", 25, 10_000), Text("characters", 100, 100)


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables: dict[str, Callable[[argparse.Namespace], None]] = {"training": training, "decoding": decoding}
    parser.add_argument("--only", nargs="*", choices=tables, default=list(tables))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sentences", type=int, default=8, help="of a batch on a CPU")
    parser.add_argument("--joeynmt", action="store_true", help="rows of JoeyNMT 2.3, which must be installed")
    parser.add_argument("--eager", action="store_true", help="PyTorch's modules without its compiler")
    parser.add_argument("--cpu", action="store_true", help="beam 5 on a CPU")
    parser.add_argument("--joeynmt-python", default=sys.executable, help="an interpreter that has JoeyNMT")
    options = parser.parse_args()
    if options.cpu:
        on_cpu(options)
        return
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here; --cpu measures a CPU")
    torch.set_default_device("cpu")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in options.only:
        tables[name](options)


def training(options: argparse.Namespace) -> None:
    """A step: forward, backward, Adam."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peak = 2e3 * 8192**3 / milliseconds(lambda: a @ b, 10)
    print(f"\nA training step on {SENTENCES} sentences; a product of 8192 x 8192: {peak / 1e12:.0f} TFLOP/s")
    print(f"{'':12}{'':24}{'ms':>9}{'ratio':>7}{'of the peak':>13}{'GiB':>7}")
    for text in TEXTS:
        flop = text.flop(SENTENCES)
        ids = text.ids(SENTENCES).cuda()
        rows: dict[str, Callable[[], Any]] = {"Caesura": lambda text=text: our_step(text)}
        modes = [None] if options.eager else ["default", "reduce-overhead"]
        for mode in modes:
            name = f"torch.nn, {mode or 'not compiled'}"
            rows[name] = lambda text=text, ids=ids, mode=mode: pytorch_step(ids, text.vocabulary, mode)
        for half in (False, True) if options.joeynmt else ():
            name = f"JoeyNMT, {'bfloat16' if half else 'TF32'}"
            rows[name] = lambda text=text, ids=ids, half=half: joeynmt_step(ids, text.vocabulary, half)
        ours = 0.0
        for name, make in rows.items():
            fresh()
            torch.backends.cuda.matmul.allow_tf32 = "TF32" in name
            ms = milliseconds(make(), options.rounds)
            ours = ours or ms
            used, memory = flop / ms * 1e3 / peak, torch.cuda.max_memory_reserved() / 2**30
            print(f"{text.name:12}{name:24}{ms:9.2f}{ms / ours:7.2f}{used:13.0%}{memory:7.2f}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False


def our_step(text: Text) -> Callable[[], None]:
    """Caesura's step, from captured graphs."""
    model, batch = text.model(), text.batch(SENTENCES).pin()
    gradients = Step(model, model.config.training)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        gradients(batch)
        optimizer.step()

    return step


def decoding(options: argparse.Namespace) -> None:
    """Beam 5, from source symbols to hypotheses."""
    print(f"\nBeam {BEAM}, sentences of 100 characters, translations as long, bfloat16")
    print(f"{'':12}{'':24}{'batch':>6}{'sent/s':>9}{'ratio':>7}")
    for text in TEXTS:
        for B in (64, 512):
            ms = milliseconds(our_search(text, B), max(2, options.rounds // 4))
            print(f"{text.name:12}{'Caesura':24}{B:6}{1000 * B / ms:9.0f}{1.0:7.2f}", flush=True)
            for half in (False, True) if options.joeynmt else ():
                fresh()
                torch.backends.cuda.matmul.allow_tf32 = not half
                ids, size = text.ids(B).cuda(), text.vocabulary
                theirs = milliseconds(joeynmt_search(ids, size, BEAM, text.symbols, half), 1, warm=1)
                name = f"JoeyNMT, {'bfloat16' if half else 'TF32'}"
                print(f"{text.name:12}{name:24}{B:6}{1000 * B / theirs:9.0f}{theirs / ms:7.2f}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    print("\nThe cost of a character by length, batch 64")
    costs = {}
    for times in (1, 2, 4):
        fresh()
        ms = milliseconds(our_search(TEXTS[1], 64, times), max(2, options.rounds // 4))
        costs[times] = 1000 * ms / (64 * 100 * times)
        print(f"{100 * times:5} characters: {costs[times]:6.2f} us, {costs[times] / costs[1]:.2f} times")


def our_search(text: Text, B: int, times: int = 1, precision: str = "bfloat16") -> Callable[[], None]:
    """Encoder and search; </s> is never chosen."""
    model, batch = text.model(precision).eval(), text.batch(B, times).to("cpu")
    batch = batch.to(model.device)
    limits = torch.full((B,), times * text.symbols, device=model.device)
    with torch.no_grad():
        model.decoder.output.bias[OUR_EOS] = -1e4

    @torch.no_grad()
    def search() -> None:
        with model.precision():
            _, encoded = model.encode(batch.src, batch.src_lengths)
            hypotheses = beam_search(model.decoder, encoded, limits, BEAM)
        assert all(len(best[0].symbols) == times * text.symbols for best in hypotheses)

    return search


def on_cpu(options: argparse.Namespace) -> None:
    """Beam 5 on a CPU beside JoeyNMT's, in turns."""
    threads, B = torch.get_num_threads(), options.sentences
    print(f"Beam {BEAM} on a CPU, {threads} threads, batches of {B}; torch {torch.__version__}")
    for text in TEXTS:
        sizes = [str(number) for number in (BEAM, text.symbols, text.vocabulary)]
        command = [options.joeynmt_python, "-W", "ignore", str(ROWS), *sizes]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            if process.stdout.readline().strip() != "ready":
                sys.exit(f"{command[0]} cannot run JoeyNMT; {ROWS.name} says how to install it")
            ours, theirs, search = [], [], our_search(text, B, precision="float32")
            for _ in range(1 + options.rounds):
                began = time.perf_counter()
                search()
                ours.append(time.perf_counter() - began)
                print(threads, B, file=process.stdin, flush=True)
                theirs.append(float(process.stdout.readline()))
        ratio = statistics.median(t / o for o, t in zip(ours[1:], theirs[1:], strict=True))
        seconds = (statistics.median(times[1:]) for times in (ours, theirs))
        shown = " s, JoeyNMT ".join(f"{number:.2f}" for number in seconds)
        print(f"{text.name:12} Caesura {shown} s, {ratio:.1f} times", flush=True)


if __name__ == "__main__":
    main()
