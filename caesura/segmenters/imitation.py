"""A loss that pulls a segmenter's own cuts towards other cuts, which the segmenter does not read."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from caesura.layers.masks import positions_mask

NAME = "imitation"  # of the loss, of its weight in a config, and in logs


def imitation(logits: Tensor, wanted: Tensor, lengths: Tensor) -> Tensor:
    """[B]: binary cross-entropy of cuts `wanted` [B, T] under `logits` [B, T], mean over a sentence's gaps.

    A gap is cut where `wanted` is above 0; a sentence in which it is below 0 has no loss. The gap before
    </s>, the last of `lengths` [B], does not count.
    """
    inner = positions_mask(lengths - 2, logits.shape[1]) & (wanted >= 0).all(1, keepdim=True)
    logits = logits.masked_fill(~inner, 0)  # they may be anything there
    each = F.binary_cross_entropy_with_logits(logits, (wanted > 0).to(logits.dtype), reduction="none")
    return (each * inner).sum(1) / inner.sum(1).clamp(min=1)
