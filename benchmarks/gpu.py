"""How fast Caesura is on a GPU, beside its own reference, beside what the GPU could do, and beside JoeyNMT.

    python benchmarks/gpu.py [--only training layers ...] [--rounds 10] [--joeynmt]

Sentences of 100 characters on both sides, the paper's sizes, bfloat16 with float32 weights; medians. The
kernel tests run first, and nothing is printed unless they pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import layers as alone
import numpy as np
import torch
import triton
import triton.language as tl
from systems import ACT_DEC_SIZE, ACT_SIZE, CUTTINGS, ENCODER, PARTS, SYSTEMS, Ceilings, System, Work
from timing import environment, fresh, milliseconds

from caesura.data.batching import Batch
from caesura.data.vocabulary import EOS
from caesura.inference import Translator
from caesura.kernels.triton_math import tanh
from caesura.search.beam import beam_search
from caesura.search.greedy import greedy
from caesura.training.feed import padded
from caesura.training.step import Step

BATCHES = (40, 128, 512)
TESTS = ("tests/kernels", "tests/training/test_step.py", "tests/search", "tests/decoders")
GIB = 2**30


def main() -> None:
    """Test, then print the tables that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables: dict[str, Callable[[int, bool], None]] = {
        "training": training,
        "cuttings": cuttings,
        "layers": layers,
        "decoding": decoding,
        "scaling": scaling,
        "memory": memory,
    }
    parser.add_argument("--only", nargs="*", choices=tables, default=list(tables))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--joeynmt", action="store_true", help="rows of JoeyNMT 2.3, which must be installed")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(
            "benchmarks/gpu.py measures a GPU, and PyTorch sees none here; benchmarks/cpu_step.py is for CPUs"
        )
    refuse_while_tests_fail()
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    for name in options.only:
        tables[name](options.rounds, options.joeynmt)


def refuse_while_tests_fail() -> None:
    """Run the kernel tests, unless they have passed for these very files."""
    root = Path(__file__).parents[1]
    files = sorted(path for part in ("caesura", "tests") for path in (root / part).rglob("*.py"))
    place = f"{torch.cuda.get_device_name()} {torch.__version__} {triton.__version__}".encode()
    digest = sha256(b"".join([place, *(path.read_bytes() for path in files)])).hexdigest()
    stamp = root / "runs" / f"tested-{digest[:16]}"
    if not stamp.exists():
        spread = ["-n", "8"] if find_spec("xdist") else []
        if subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", *spread, *TESTS], cwd=root).returncode:
            sys.exit("the kernel tests fail: no times of wrong results")
        stamp.parent.mkdir(exist_ok=True)
        stamp.touch()


def training(rounds: int, joeynmt: bool) -> None:
    """A whole step: forward, backward, Adam."""
    ceilings = measure_ceilings()
    print(
        f"ceilings: {ceilings.flops / 1e12:.0f} TFLOP/s, {ceilings.bandwidth / 1e12:.2f} TB/s, "
        f"{ceilings.tanh / 1e12:.2f} T tanh/s"
    )
    print("\nA training step (forward, backward, Adam)")
    print(f"{'':29}{'batch':>6}{'ms':>9}{'sent/s':>9}{'GiB':>7}{'segment':>9}", end="")
    print(f"{'reference ms':>14}{'ratio':>7}{'floor ms':>10}{'ratio':>7}")
    for system in (*SYSTEMS, *PARTS.values()):
        for B in BATCHES:
            fresh()
            model = system.model()
            ms, S = training_step(model, system, B, rounds)
            peak = torch.cuda.max_memory_reserved() / GIB
            with environment(CAESURA_KERNELS="reference", CAESURA_GRAPHS="0"):
                slow, _ = training_step(system.model(), system, B, 2, warm=1)
            floor = ceilings.floor(Work.of(system, B, S, system.symbols))
            row = f"{system.name:29}{B:6}{ms:9.2f}{1000 * B / ms:9.0f}{peak:7.2f}{system.symbols / S:9.2f}"
            print(f"{row}{slow:14.1f}{slow / ms:7.1f}{floor:10.2f}{ms / floor:7.2f}", flush=True)
            del model
    if joeynmt:
        from joeynmt_rows import training_step as theirs

        for B in BATCHES:
            fresh()
            ms = theirs(B, rounds, milliseconds)
            peak = torch.cuda.max_memory_reserved() / GIB
            print(
                f"{'JoeyNMT 2.3 char, 1 layer':29}{B:6}{ms:9.2f}{1000 * B / ms:9.0f}{peak:7.2f}", flush=True
            )


def cuttings(rounds: int, _: bool) -> None:
    """A step with several cuttings of each sentence, beside one with one; two should cost 1.9 at most."""
    print("\nSeveral cuttings of each sentence in one step")
    print(f"{'':33}{'batch':>6}{'ms':>9}{'ratio':>7}")
    for B in BATCHES:
        alone_ms = 0.0
        for number, system in CUTTINGS.items():
            fresh()
            ms, _ = training_step(
                system.model(), system, B, rounds, warm=12
            )  # draws need graphs of more sizes
            alone_ms = ms if number == 1 else alone_ms
            print(f"{system.name:33}{B:6}{ms:9.2f}{ms / alone_ms:7.2f}", flush=True)


def training_step(
    model: Translator, system: System, B: int, rounds: int, length: int | None = None, warm: int = 4
) -> tuple[float, float]:
    """Milliseconds, and the mean number of segments of a sentence."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    gradients, batch = Step(model, model.config.training), system.batch(B, length)

    def step() -> None:
        gradients(batch)
        optimizer.step()

    ms = milliseconds(step, rounds, warm)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        segments = model.segmenter(batch.src.cuda(), batch.src_lengths.cuda())
    return ms, float(segments.lengths.double().mean())


def measure_ceilings() -> Ceilings:
    """A large product, a long copy, and tanh on registers."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = milliseconds(lambda: a @ b, 10)
    memory = torch.empty(2, 1 << 30, device="cuda", dtype=torch.uint8)
    copy = milliseconds(lambda: memory[0].copy_(memory[1]), 10)
    out = torch.empty(132 * 16 * 1024, device="cuda")
    grid, count = (132 * 16,), 4096
    kernel = milliseconds(lambda: many_tanh[grid](out, count, BLOCK=1024), 10)
    return Ceilings(2e3 * 8192**3 / product, 2e3 * (1 << 30) / copy, 1e3 * out.numel() * count * 4 / kernel)


@triton.jit
def many_tanh(out_ptr, count, BLOCK: tl.constexpr):
    """Four chains of tanh per thread, so that one does not wait for the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b, c, d = at * 1e-7, at * 2e-7, at * 3e-7, at * 4e-7
    for _ in range(count):
        a, b, c, d = tanh(a, True), tanh(b, True), tanh(c, True), tanh(d, True)
    tl.store(out_ptr + at, a + b + c + d)


def layers(rounds: int, _: bool) -> None:
    """Each recurrence alone, forward and backward."""
    print("\nA layer alone, forward + backward, ms")
    print(f"{'':34}" + "".join(f"{f'batch {B}':>12}" for B in BATCHES))
    rows: dict[str, Callable[[int], float]] = {
        f"ACT-ENC {ACT_SIZE}, segments of 2": lambda B: alone.act_layer(B, rounds),
        "the same, reference": lambda B: alone.act_reference(B),
        "cif at 4": lambda B: alone.cutter_layer(B, rounds, "cif", pooled=False),
        "cif at 4 and pooling": lambda B: alone.cutter_layer(B, rounds, "cif", pooled=True),
        "fixed 4 and pooling": lambda B: alone.cutter_layer(B, rounds, "fixed", pooled=True),
        f"encoder layer 620 -> 2 x {ENCODER}": lambda B: alone.encoder_layer(B, rounds),
        "the same, cuDNN": lambda B: alone.cudnn_layer(B, rounds),
        "attention decoder": lambda B: alone.decoder_layer(B, rounds),
        f"ACT-DEC {ACT_DEC_SIZE}, segments of 2": lambda B: alone.act_decoder_layer(B, rounds),
    }
    for name, row in rows.items():
        print(f"{name:34}" + "".join(f"{row(B):12.2f}" for B in BATCHES), flush=True)


def decoding(rounds: int, joeynmt: bool) -> None:
    """Encoder and search over 100-character sentences, 100 symbols written whatever they are."""
    print("\nDecoding, sentences per second (100 characters in, 100 forced symbols out)")
    print(f"{'':34}" + "".join(f"{f'batch {B}':>12}" for B in (512, 1024, 2048, 4096)))
    for precision in ("bfloat16", "float32"):
        model = SYSTEMS[0].model(precision).eval()
        with torch.no_grad():
            model.decoder.output.bias[EOS] = -1e4  # never chosen
        for beam in (1, 5):
            name = f"{'greedy' if beam == 1 else f'beam {beam}'}, {precision}"
            print(f"{name:34}", end="")
            for B in (512, 1024, 2048, 4096):
                fresh()
                search = partial(forced, model, SYSTEMS[0].batch(B), beam, precision)
                ms = milliseconds(search, max(2, rounds // 4), warm=3)
                print(f"{1000 * B / ms:12.0f}", end="", flush=True)
            print()
    if joeynmt:
        from joeynmt_rows import decoding as theirs

        for beam in (1, 5):
            print(f"{f'JoeyNMT 2.3, beam {beam}':34}", end="")
            for B in (512, 1024):
                print(f"{1000 * B / theirs(B, beam, milliseconds):12.0f}", end="", flush=True)
            print()


@torch.no_grad()
def forced(model: Translator, batch: Batch, beam: int, precision: str) -> None:
    """Encode and search."""
    batch = batch.to("cuda")
    limits = torch.full((len(batch),), 100, device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
        _, encoded = model.encode(batch.src, batch.src_lengths)
        if beam == 1:
            hypotheses = greedy(model.decoder, encoded, limits)
        else:
            hypotheses = [best[0] for best in beam_search(model.decoder, encoded, limits, beam)]
    assert all(len(hypothesis.symbols) == 100 for hypothesis in hypotheses)


def scaling(rounds: int, _: bool) -> None:
    """A training step of the character model and of ACT-ENC over batch and length."""
    print("\nA training step over batch (100 characters) and over length (batch 128), ms")
    for title, cases in (
        ("batch", [(B, 100) for B in (16, 32, 64, 128, 256, 512, 1024)]),
        ("length", [(128, n) for n in (25, 50, 100, 200, 400)]),
    ):
        print(f"{title:29}" + "".join(f"{B if title == 'batch' else n:9}" for B, n in cases))
        for system in SYSTEMS[:2]:
            print(f"{system.name:29}", end="")
            for B, length in cases:
                fresh()
                ms, _ = training_step(system.model(), system, B, max(3, rounds // 2), length)
                print(f"{ms:9.2f}", end="", flush=True)
            print()


def memory(_: int, __: bool) -> None:
    """Of the GPU and of the host over 5,000 updates of ACT-ENC, batches of all lengths up to 200."""
    print("\nMemory over training on varying shapes (ACT-ENC, batch 64), GiB")
    print(f"{'updates':>9}{'GPU reserved':>14}{'host':>8}{'graphs':>8}{'ms per update':>14}")
    fresh()
    system, numbers = SYSTEMS[1], np.random.default_rng(1)
    model = system.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    step, began = Step(model, model.config.training), time.perf_counter()
    for update in range(1, 5001):
        length = int(numbers.integers(8, 180))
        sizes = np.minimum(199, numbers.integers(length, length + 20, (64, 2)))
        pairs = [tuple(numbers.integers(4, 97, size) for size in row) for row in sizes]
        step(padded(pairs, np.arange(64)).pin())
        optimizer.step()
        if update % 500 == 0:
            torch.cuda.synchronize()
            gpu, pages = (
                torch.cuda.memory_reserved() / GIB,
                int(Path("/proc/self/statm").read_text().split()[1]),
            )
            count, took = len(step.graphs), 1000 * (time.perf_counter() - began) / 500
            print(f"{update:9}{gpu:14.2f}{pages * 4096 / GIB:8.2f}{count:8}{took:14.1f}", flush=True)
            began = time.perf_counter()


if __name__ == "__main__":
    main()
