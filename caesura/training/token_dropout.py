"""Token dropout: some symbols that training reads are replaced by <unk>; what is to be written stays."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from caesura.data.vocabulary import SPECIALS, UNK


def dropped(symbols: Tensor, share: float, spared: Collection[int] = ()) -> Tensor:
    """`symbols` [B, T], each replaced by <unk> with probability `share`; never a special nor one `spared`.

    Shapes stay, and nothing waits for the device, so that a captured step draws anew at each replay. Where
    nothing is dropped nothing is drawn.
    """
    if not share:
        return symbols
    chosen = torch.rand(symbols.shape, device=symbols.device) < share
    chosen &= symbols >= len(SPECIALS)
    for symbol in spared:
        chosen &= symbols != symbol
    return symbols.masked_fill(chosen, UNK)
