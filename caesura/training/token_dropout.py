"""Token dropout: <unk> replaces some symbols that training reads, but none that it should write."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from caesura.data.vocabulary import SPECIALS, UNK


def dropped(symbols: Tensor, share: float, spared: Collection[int] = ()) -> Tensor:
    """`symbols` [B, T], each replaced by <unk> with probability `share`, but no special or `spared` one.

    Shapes stay, and nothing waits for the device, so that a captured step draws anew at each replay. With a
    share of 0, nothing is drawn.
    """
    if not share:
        return symbols
    chosen = torch.rand(symbols.shape, device=symbols.device) < share
    chosen &= symbols >= len(SPECIALS)
    for symbol in spared:
        chosen &= symbols != symbol
    return symbols.masked_fill(chosen, UNK)
