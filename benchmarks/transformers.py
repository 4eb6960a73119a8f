"""Transformers of 6 + 6 layers of 512: Caesura, the same in PyTorch's modules, and JoeyNMT 2.3, in one run.

    python benchmarks/transformers.py [--only training length decoding] [--joeynmt] [--eager] [--rounds 10]
    python benchmarks/transformers.py --cpu --joeynmt-python PYTHON [--sentences 8] [--rounds 3]

On a GPU: a training step on 320 sentences of 100 characters, which are 8,000 BPE symbols or 32,000
characters per side; the cost of a character by the length of its sentence; and beam 5 over such sentences,
with translations as long as the source. Weights are random, products are in bfloat16. PyTorch's modules are
compiled, in both of the compiler's usual modes, or not; JoeyNMT, where it is installed, runs in TF32 and in
bfloat16. Medians. What matters most comes first, and no row begins that may last beyond --seconds. Each is
printed and written to --json at once. Ratios are to Caesura's row of the same text and batch; of its steps
and searches, the kernels that take longest are listed. With CAESURA_KERNELS=reference, Caesura's Transformers
run without Triton kernels.

On a CPU: beam 5 in float32, and the two programs take turns. transformer_rows.py has the models and says how
to install JoeyNMT.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from systems import vocabulary
from timing import fresh, milliseconds
from torch.profiler import ProfilerActivity, profile
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

SENTENCES, BEAM, LONGER = 320, 5, 64  # of a training step; hypotheses; sentences where lengths are compared
Table = Literal["training", "length", "decoding", "kernels"]
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

    def model(self, precision: str = "bfloat16", positions: str = "sinusoidal") -> Translator:
        """Caesura's model, on the GPU where there is one."""
        blocks = {"type": "transformer", "size": WIDTH, "heads": HEADS, "feed_forward": INNER}
        blocks |= {"num_layers": LAYERS, "dropout": DROPOUT, "positions": positions}
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


@dataclass(frozen=True)
class Row:
    """One number to be measured."""

    table: Table
    text: Text
    system: str
    make: Callable[[Text, int], Callable[[], Any]]  # of text and batch: what is timed, ready to be called
    batch: int
    times: int = 1  # as long as 100 characters
    lasts: float = 15  # seconds, at most about
    rounds: int | None = None  # None: as many as are asked for
    tf32: bool = False
    kernels: bool = False  # whether its kernels are listed


@dataclass
class Results:
    """Prints each row and writes all so far, so that a run which is cut short has lost nothing."""

    path: Path
    seconds: float
    facts: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def measure(self, row: Row, rounds: int) -> None:
        """Measure a row, if there is time for it; one that fails does not end the run."""
        if time.monotonic() - self.began + row.lasts > self.seconds:
            self._add(row, {"left out": f"may last beyond {self.seconds:g} s"})
            return
        fresh()
        torch.compiler.reset()
        torch.backends.cuda.matmul.allow_tf32 = row.tf32
        try:
            rounds, work = row.rounds or rounds, row.make(row.text, row.batch)
            ms = milliseconds(work, rounds, warm=min(4, rounds))
            self._add(row, self._figures(row, ms))
            if row.kernels:
                row = replace(row, table="kernels")
                self._add(row, kernels(work))
        except Exception as problem:
            self._add(row, {"failed": f"{type(problem).__name__}: {problem}"[:300].replace("\n", " ")})
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    def _figures(self, row: Row, ms: float) -> dict[str, float]:
        """The milliseconds with what they mean."""
        figures = {"ms": ms}
        if row.table == "training":
            figures["of the peak"] = row.text.flop(row.batch) / ms * 1e3 / self.facts["peak"]
            figures["GiB"] = torch.cuda.max_memory_reserved() / 2**30
        else:
            figures["sentences/s"] = 1e3 * row.batch / ms
        if row.table == "length":
            figures["us/symbol"] = 1e3 * ms / (row.batch * row.times * row.text.symbols)
            return figures | self._beside(row, figures, "us/symbol", times=1)
        return figures | self._beside(row, figures, "ms", times=row.times)

    def _beside(self, row: Row, figures: dict[str, float], name: str, times: int) -> dict[str, float]:
        """How many times that of Caesura a figure is."""
        same = {"table": row.table, "text": row.text.name, "batch": row.batch, "times": times}
        for other in self.rows:
            if other["system"] == "Caesura" and same.items() <= other.items() and name in other:
                return {"ratio": figures[name] / other[name]}
        return {"ratio": 1.0} if row.system == "Caesura" and row.times == times else {}

    def _add(self, row: Row, figures: dict[str, Any]) -> None:
        named = {"table": row.table, "text": row.text.name, "system": row.system}
        self.rows.append(named | {"batch": row.batch, "times": row.times} | figures)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.facts | {"rows": self.rows}, indent=1))
        own = figures.get("kernels", [])
        shown = "  ".join(
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items() if v is not own
        )
        size = f"{row.batch} x {row.times * row.text.symbols}"
        print(f"{row.table:9} {row.text.name:12} {size:10} {row.system:26} {shown}", flush=True)
        for kernel in own[:12]:
            print(f"{kernel['ms']:26.3f} ms {kernel['calls']:6} calls  {kernel['name'][:70]}", flush=True)


def kernels(work: Callable[[], Any]) -> dict[str, Any]:
    """The kernels of one call, those that take longest first, and how long the GPU was busy."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = [(e.self_device_time_total / 1e3, e.count, e.key) for e in seen.key_averages()]
    busy, calls = (float(sum(event[i] for event in events if event[0])) for i in (0, 1))
    longest = [{"ms": ms, "calls": count, "name": name} for ms, count, name in sorted(events)[:-41:-1] if ms]
    return {"busy ms": busy, "calls": calls, "kernels": longest}


def planned(joeynmt: bool, compiled: bool) -> list[Row]:
    """All rows, the most important first; Caesura's come before those that are compared with them."""

    def training(system: str, make: Callable[[Text, int], Any], **how: Any) -> list[Row]:
        return [Row("training", text, system, make, SENTENCES, **how) for text in TEXTS]

    def decoding(system: str, make: Callable[[Text, int], Any], **how: Any) -> list[Row]:
        return [Row("decoding", text, system, make, B, **how) for B in (512, 64) for text in TEXTS]

    def length(times: int) -> Row:
        make = partial(our_search, times=times)
        return Row("length", TEXTS[1], "Caesura", make, LONGER, times, rounds=3)

    def pytorch(mode: str | None, lasts: float) -> list[Row]:
        def make(text: Text, B: int) -> Any:
            return pytorch_step(text.ids(B).cuda(), text.vocabulary, mode)

        return training(f"torch.nn, {mode or 'not compiled'}", make, lasts=lasts)

    def theirs(half: bool) -> list[Row]:
        def step(text: Text, B: int) -> Any:
            return joeynmt_step(text.ids(B).cuda(), text.vocabulary, half)

        def search(text: Text, B: int) -> Any:
            return joeynmt_search(text.ids(B).cuda(), text.vocabulary, BEAM, text.symbols, half)

        name = f"JoeyNMT, {'bfloat16' if half else 'TF32'}"
        rows = training(name, step, tf32=not half)
        return rows + decoding(name, search, tf32=not half, lasts=30, rounds=1)

    rows = [*training("Caesura", our_step, kernels=True), length(1), length(4)]
    rows += pytorch("default", lasts=120) if compiled else []
    rows += decoding("Caesura", our_search, rounds=3, kernels=True) + pytorch(None, lasts=15)
    rows += theirs(half=False) if joeynmt else []
    rows += pytorch("reduce-overhead", lasts=120) if compiled else []
    rows += theirs(half=True) if joeynmt else []
    return [
        *rows,
        length(2),
        *training("Caesura, rotary", partial(our_step, positions="rotary"), kernels=True),
    ]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ["training", "length", "decoding"]
    parser.add_argument("--only", nargs="*", choices=tables, default=tables)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=540, help="in all, on a GPU")
    parser.add_argument("--json", type=Path, default=Path("runs/transformers.json"), help="all results")
    parser.add_argument("--sentences", type=int, default=8, help="of a batch on a CPU")
    parser.add_argument("--joeynmt", action="store_true", help="JoeyNMT 2.3 must be installed")
    parser.add_argument("--eager", action="store_true", help="PyTorch's modules only without its compiler")
    parser.add_argument("--cpu", action="store_true", help="beam 5 on a CPU")
    parser.add_argument("--joeynmt-python", default=sys.executable, help="an interpreter that has JoeyNMT")
    options = parser.parse_args()
    if options.cpu:
        on_cpu(options)
        return
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here; --cpu measures a CPU")
    joeynmt = find_spec("joeynmt") is not None
    if options.joeynmt and not joeynmt:
        sys.exit(f"JoeyNMT is not installed; {ROWS.name} says how to install it")
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    peak = 2e3 * 8192**3 / milliseconds(lambda: a @ b, 10)
    facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "peak": peak}
    print(f"{facts['gpu']}, torch {facts['torch']}; a product of 8192 x 8192: {peak / 1e12:.0f} TFLOP/s")
    if not joeynmt:
        print("JoeyNMT is not installed: no rows of it")
    results = Results(options.json, options.seconds, facts)
    for row in planned(joeynmt, not options.eager):
        if row.table in options.only:
            results.measure(row, options.rounds)


def our_step(text: Text, B: int, positions: str = "sinusoidal") -> Callable[[], None]:
    """Caesura's step, from captured graphs."""
    model, batch = text.model(positions=positions), text.batch(B).pin()
    gradients = Step(model, model.config.training)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        gradients(batch)
        optimizer.step()

    return step


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
