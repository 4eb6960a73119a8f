"""Checks of the arguments of layers."""

from __future__ import annotations

import math

from torch import Tensor

LARGEST = 2**30  # size allowed; a few times its square still fits into 64 bits


def check_batch(
    symbols: Tensor, lengths: Tensor, names: tuple[str, str, str] = ("symbols", "lengths", "T")
) -> None:
    """Require symbols [B, T] with lengths [B], before anything is broadcast, without waiting for a GPU."""
    what, sizes, axis = names
    if symbols.dim() != 2:
        raise ValueError(f"{what} should be [B, {axis}], not {list(symbols.shape)}")
    if symbols.is_floating_point():
        raise ValueError(f"{what} should be whole numbers")
    if lengths.shape != symbols.shape[:1]:
        rows = f"B = {len(symbols)}, one for each row of {what}"
        raise ValueError(f"{sizes} should be [B] with {rows}, not {list(lengths.shape)}")
    if lengths.is_floating_point() and len(lengths):  # an empty list has no other type
        raise ValueError(f"{sizes} should be whole numbers")
    # On a GPU, asking would make it wait.
    on_host = lengths.long() if lengths.device.type == "cpu" else None
    if on_host is not None and bool(((on_host < 0) | (on_host > symbols.shape[1])).any()):
        raise ValueError(f"{sizes} should be from 0 to {axis} = {symbols.shape[1]}")


def check_ids(symbols: Tensor, vocab_size: int) -> None:
    """Require ids of a table; waits for a GPU."""
    for extreme in (symbols.min(), symbols.max()) if symbols.numel() else ():
        if not 0 <= extreme < vocab_size:
            raise ValueError(f"symbols should be from 0 to vocab_size - 1 = {vocab_size - 1}, not {extreme}")


def check_sizes(**sizes: float) -> None:
    """Require sizes of at least 1 and at most LARGEST, named as in the config."""
    for name, value in sizes.items():
        if not value >= 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
        if value > LARGEST:
            raise ValueError(f"{name} must be at most {LARGEST}, not {value}")


def check_shares(**shares: float) -> None:
    """Require 0 <= share < 1."""
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and less than 1, not {value}")


def check_finite(**numbers: float) -> None:
    """Require finite numbers."""
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, not {value}")
