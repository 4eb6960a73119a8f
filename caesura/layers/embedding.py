"""Embedding tables."""

from __future__ import annotations

import torch
from torch import nn

from caesura.layers.checks import check_sizes


def embedding_table(vocab_size: int, embedding_dim: int) -> nn.Embedding:
    """A new nn.Embedding; on the meta device not drawn, which would import half of torch for nothing."""
    check_sizes(vocab_size=vocab_size)
    weight = torch.empty(vocab_size, embedding_dim)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(vocab_size, embedding_dim, _weight=weight)
