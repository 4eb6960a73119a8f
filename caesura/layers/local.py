"""Attention in which a symbol sees those near it. B sentences, T symbols, N heads, D features of a head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Local:
    """A `Core` for every layer of a batch: a symbol sees itself, `window` symbols before it, `ahead` after.

    Symbols are taken in blocks of `window`, which see their neighbours alone, so that the cost grows with the
    length and not with its square.
    """

    mask: Tensor  # [B, 1, T, T] bool: query sees key; in blocks [B * blocks, 1, window, neighbours * window]
    blocks: int  # 0: the sentences are as short as a block with its neighbours
    window: int
    ahead: int  # at most `window`

    @classmethod
    def of(cls, lengths: Tensor, size: int, window: int, ahead: int) -> Local:
        """The core for sentences of these lengths [B], padded to `size`."""
        neighbours = _neighbours(ahead)
        places = torch.arange(size, device=lengths.device)
        if size <= neighbours * window:
            mask = seen(places[:, None], places, lengths[:, None, None], window, ahead)
            return cls(mask[:, None], 0, window, ahead)
        blocks = -(-size // window)
        first = torch.arange(blocks, device=lengths.device)[:, None] * window
        queries = first + torch.arange(window, device=lengths.device)  # [blocks, window]
        keys = first + torch.arange(-window, (neighbours - 1) * window, device=lengths.device)
        mask = seen(queries[..., None], keys[:, None], lengths[:, None, None, None], window, ahead)
        return cls(mask.flatten(0, 1)[:, None], blocks, window, ahead)

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[B, N, T, D]."""
        if not self.blocks:
            return F.scaled_dot_product_attention(queries, keys, values, self.mask)
        B, N, T, D = queries.shape
        spare = self.blocks * self.window - T
        blocked = F.pad(queries, (0, 0, 0, spare)).view(B, N, self.blocks, self.window, D)
        parts = blocked, self._around(keys, spare), self._around(values, spare)
        queries, keys, values = (part.transpose(1, 2).flatten(0, 1) for part in parts)
        context = F.scaled_dot_product_attention(queries, keys, values, self.mask)
        return context.view(B, self.blocks, N, self.window, D).transpose(1, 2).flatten(2, 3)[:, :, :T]

    def _around(self, part: Tensor, spare: int) -> Tensor:
        """[B, N, blocks, neighbours * window, D]: each block with its neighbours."""
        neighbours = _neighbours(self.ahead)
        wider = F.pad(part, (0, 0, self.window, spare + (neighbours - 2) * self.window))
        each = wider.unflatten(2, (-1, self.window))
        return torch.cat([each[:, :, i : i + self.blocks] for i in range(neighbours)], 3)


def _neighbours(ahead: int) -> int:
    """How many blocks a block sees, itself included."""
    return 3 if ahead else 2


def seen(queries: Tensor, keys: Tensor, lengths: Tensor, window: int, ahead: int) -> Tensor:
    """Whether the symbol at a place in `queries` sees the one in `keys`; all arguments broadcast.

    Padding sees itself: a softmax over nothing is NaN.
    """
    distance = queries - keys
    near = (distance <= window) & (distance >= -ahead)
    return near & (keys >= 0) & (keys < lengths) | (distance == 0)
