"""Which implementation of the recurrences runs, and why.

Every kernel has a reference in plain autograd operations, the truth on every device, and a fused form of the
same function whose gradient is written by hand.
"""

from __future__ import annotations

import os

import torch

VARIABLE = "CAESURA_KERNELS"
CHOICES = ("reference", "fused")


def pick(device: torch.device | str) -> tuple[str, str]:
    """Which implementation runs on `device`, and why: printed at start-up and kept in metrics.jsonl."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in CHOICES:
        raise ValueError(f"{VARIABLE} is '{wanted}'; allowed are {', '.join(CHOICES)}, or leave it unset")
    if wanted == "reference":
        return wanted, f"{VARIABLE} asks for it"
    if torch.is_autocast_enabled(torch.device(device).type):
        return (
            "reference",
            "autocast is on: it chooses dtypes a single operation at a time",
        )
    if wanted:
        return wanted, f"{VARIABLE} asks for it"
    return "fused", "the gradient written by hand needs fewer and larger operations"
