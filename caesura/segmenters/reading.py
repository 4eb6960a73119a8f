"""A cutter's view of a batch, and the decisions made before it cuts. B sentences, T source symbols."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from caesura.layers.masks import positions_mask


@dataclass(frozen=True)
class Reading:
    """A cutter's view of a batch."""

    states: Tensor  # [B, T, D] the reader's state for each symbol; zero on padding
    symbols: Tensor  # [B, T]   ids
    lengths: Tensor  # [B]      symbols of each sentence, </s> included
    mask: Tensor  # [B, T]      bool: not padding
    begun: Tensor | None = None  # [B] symbols in front of these, where a sentence comes in pieces
    shift: Tensor | None = None  # [B, T] to be added to a cutter's logits; None: nothing

    @property
    def characters(self) -> Tensor:
        """[B]: symbols of text, </s> not counted."""
        return (self.lengths - 1).clamp(min=0)

    @property
    def text(self) -> Tensor:
        """[B, T] bool: a symbol of text, not </s> and not padding."""
        return positions_mask(self.lengths - 1, self.mask.shape[1])


@dataclass(frozen=True)
class Gaps:
    """Gaps that are already decided: at </s>, in front of it, and where cuts are given."""

    cut: Tensor  # [B, T] bool: a segment ends here
    keep: Tensor  # [B, T] bool: no segment ends here; padding included
    given: Tensor | None = None  # [B, 1] bool: cuts are given for this sentence; None: for no sentence

    def settle(self, ends: Tensor) -> Tensor:
        """Apply a cutter's `ends` [B, T] wherever nothing is decided yet."""
        return (ends & ~self.keep) | self.cut

    @classmethod
    def of(cls, lengths: Tensor, mask: Tensor, given: Tensor | None, final: bool = True) -> Gaps:
        """From the lengths and from `given` [B, T], 1 cut, -1 do not, 0 free.

        Where the sentence goes on after these symbols, the last one waits: </s> may come next.
        """
        left = lengths[:, None] - torch.arange(mask.shape[1], device=mask.device)
        cut, keep = left == 1, ~mask | (left == 2)
        if not final:
            cut, keep = torch.zeros_like(mask), ~mask | (left == 1)
        if given is None:
            return cls(cut, keep)
        free = mask & ~cut & ~keep
        cut, keep = cut | (free & (given > 0)), keep | (free & (given < 0))
        return cls(cut, keep, (free & (given != 0)).any(1, keepdim=True))
