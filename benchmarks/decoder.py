"""The teacher-forced attention decoder at the paper's sizes on a GPU: forward + backward, medians.

python benchmarks/decoder.py [--batches 40 128 512] [--length 100] [--rounds 10]
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from caesura.kernels.attention_decoder import AttentionDecode, DecoderWeights, decode_reference
from caesura.kernels.graphs import VARIABLE, release

SIZE = 1000  # of the decoder, of the attention and of the encoder's states

Decode = Callable[..., tuple[Tensor, Tensor]]


def problem(B: int, length: int) -> list[Tensor]:
    """Arguments of `decode` for B full sentences: activations in bfloat16, weights in float32."""
    generator = torch.Generator("cuda").manual_seed(0)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, device="cuda")

    activations = [
        random(B, length, 3 * SIZE),
        random(B, SIZE),
        random(B, length, SIZE),
        random(B, length, SIZE),
    ]
    matrices = [
        random(rows, SIZE, scale=SIZE**-0.5).requires_grad_() for rows in (SIZE, 1, 3 * SIZE, 3 * SIZE)
    ]
    mask = torch.ones(B, length, dtype=torch.bool, device="cuda")
    bias = random(3 * SIZE, scale=0.1).requires_grad_()
    return [*(a.bfloat16().requires_grad_() for a in activations), mask, *matrices, bias]


def ways() -> dict[str, tuple[Decode, torch.dtype, str]]:
    """Function, dtype and CAESURA_GRAPHS of each row of the table."""
    from caesura.kernels.attention_decoder_triton import TritonDecode

    def reference(*args: Tensor) -> tuple[Tensor, Tensor]:
        return decode_reference(*args[:5], DecoderWeights(*args[5:]))

    return {
        "eager reference, bf16": (reference, torch.bfloat16, "0"),
        "fused torch, float32": (AttentionDecode.apply, torch.float32, "0"),
        "triton, float32": (TritonDecode.apply, torch.float32, "1"),
        "triton, bf16, no graphs": (TritonDecode.apply, torch.bfloat16, "0"),
        "triton, bf16": (TritonDecode.apply, torch.bfloat16, "1"),
    }


def training_step(decode: Decode, args: list[Tensor], dtype: torch.dtype) -> Callable[[], Tensor]:
    """One pass there and back; it returns the states."""
    if dtype == torch.float32:
        args = [a if a.dtype == torch.bool else a.detach().float().requires_grad_() for a in args]
    leaves = [a for a in args if a.requires_grad]
    (B, U, _), low = args[0].shape, dtype == torch.bfloat16
    direction = torch.randn(B, U, SIZE, device="cuda").to(dtype)

    def step() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=low):
            states = decode(*args)[0]
        torch.autograd.grad([states], leaves, [direction])
        return states.detach()

    return step


def milliseconds(step: Callable[[], object], rounds: int) -> float:
    """Median over rounds, between events on the device."""
    for _ in range(3):
        step()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    """Print the table, or why there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[40, 128, 512])
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks/decoder.py measures a GPU, and PyTorch sees none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.length} segments and symbols")
    print(f"{'':26s}{'batch':>6s}{'ms':>9s}{'GiB':>7s}")
    for B in options.batches:
        args, truth = problem(B, options.length), None
        for name, (decode, dtype, graphs) in ways().items():
            os.environ[VARIABLE] = graphs
            release()
            step = training_step(decode, args, dtype)
            found = step()
            truth = found if truth is None else truth
            if (error := (found.float() - truth.float()).norm() / truth.float().norm()) > 0.02:
                sys.exit(f"{name}: its states are {error:.1%} off the reference's; no times of wrong results")
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            ms = milliseconds(step, options.rounds)
            print(f"{name:26s}{B:6d}{ms:9.2f}{torch.cuda.max_memory_allocated() / 2**30:7.2f}", flush=True)


if __name__ == "__main__":
    main()
