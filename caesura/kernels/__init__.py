"""Which implementation of the recurrences runs, and why.

Every kernel has a reference in plain autograd operations, the truth on every device; a fused form of the same
function whose gradient is written by hand; and, on a GPU, Triton kernels.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch

from caesura.errors import InputError

VARIABLE = "CAESURA_KERNELS"
CHOICES = ("reference", "fused", "triton")


def pick(device: torch.device | str) -> tuple[str, str]:
    """Which implementation runs on `device`, and why: printed at start-up and kept in metrics.jsonl."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in CHOICES:
        raise InputError(f"{VARIABLE} is '{wanted}'; allowed are {', '.join(CHOICES)}, or leave it unset")
    if wanted == "triton" and not _has_triton():
        raise InputError(f"{VARIABLE} is 'triton', which is not installed; leave it unset, or install triton")
    kind = torch.device(device).type
    if wanted == "reference":
        return wanted, f"{VARIABLE} asks for it"
    if wanted == "triton" or (not wanted and kind == "cuda" and _has_triton()):
        return "triton", f"{VARIABLE} asks for it" if wanted else "a CUDA device, and Triton is installed"
    if torch.is_autocast_enabled(kind):
        return "reference", "autocast is on: it chooses dtypes a single operation at a time"
    if wanted:
        return wanted, f"{VARIABLE} asks for it"
    return "fused", "the gradient written by hand needs fewer and larger operations"


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
