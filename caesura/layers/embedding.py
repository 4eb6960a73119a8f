"""Embedding tables."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_sizes


def embedding_table(vocab_size: int, embedding_dim: int) -> nn.Embedding:
    """A new nn.Embedding; on the meta device not drawn, which would import half of torch for nothing."""
    check_sizes(vocab_size=vocab_size)
    weight = torch.empty(vocab_size, embedding_dim)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(vocab_size, embedding_dim, _weight=weight)


class ScaledEmbedding(nn.Embedding):
    """Rows times the root of their size, from a table of small weights, which Adam moves faster."""

    def forward(self, symbols: Tensor) -> Tensor:
        """[..., D]."""
        return super().forward(symbols) * math.sqrt(self.embedding_dim)


def scaled_table(vocab_size: int, embedding_dim: int) -> ScaledEmbedding:
    """A new table whose scaled rows are those of `embedding_table`."""
    weight = embedding_table(vocab_size, embedding_dim).weight.data
    if not weight.is_meta:
        weight /= math.sqrt(embedding_dim)
    return ScaledEmbedding(vocab_size, embedding_dim, _weight=weight)
