"""Which implementation of the kernels runs, and why.

Every kernel has a reference in plain autograd operations, the truth on every device, and Triton kernels for
GPUs. Most also have a fused form, whose gradient is written by hand.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from caesura.errors import InputError

VARIABLE = "CAESURA_KERNELS"
CHOICES = ("reference", "fused", "triton")
PLAIN = ("cif", "linear", "residual_norm", "rotation")  # kernels without a fused form


# By kernel, the implementation of its last call and why: the one picked, unless its arguments forbid it.
used: dict[str, tuple[str, str]] = {}


def pick(device: torch.device | str, kernel: str = "", *args: Any) -> tuple[str, str]:
    """Which implementation runs on `device`, and why: printed at start-up and kept in metrics.jsonl.

    A `kernel` is a module here; its Triton module says whether these arguments rule it out.
    """
    choice = _pick(torch.device(device).type, kernel, args)
    if kernel:
        used[kernel] = choice
    return choice


def _pick(kind: str, kernel: str, args: tuple[Any, ...]) -> tuple[str, str]:
    requested = os.environ.get(VARIABLE, "")
    if requested and requested not in CHOICES:
        raise InputError(f"{VARIABLE} is '{requested}'; allowed are {', '.join(CHOICES)}, or leave it unset")
    if requested == "triton" and not _has_triton():
        raise InputError(f"{VARIABLE} is 'triton', which is not installed; leave it unset, or install triton")
    reason = f"{VARIABLE} asks for it"
    if requested == "reference":
        return requested, reason
    against = None
    if requested == "triton" or (not requested and kind == "cuda" and _has_triton()):
        if kernel:  # imported here: Triton is not everywhere
            against = import_module(f"{__name__}.{kernel}_triton").unsupported(*args)
        if against is None:
            return "triton", reason if requested else "a CUDA device, and Triton is installed"
    if kernel in PLAIN:
        return "reference", against or "there is no fused form"
    if torch.is_autocast_enabled(kind):
        return "reference", against or "autocast is on: it chooses dtypes a single operation at a time"
    if requested == "fused":
        return requested, reason
    return "fused", against or "the gradient written by hand needs fewer and larger operations"


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
