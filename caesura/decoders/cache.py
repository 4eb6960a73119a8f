"""Keys and values of self-attention, which stay where they were written when hypotheses are reordered.

B sentences, K hypotheses, room for U symbols, N heads, D features per head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.layers.masks import additive


@dataclass(frozen=True)
class Cache:
    """All layers' keys and values of the symbols read; hypothesis k writes its symbol u at [:, :, k, u].

    A hypothesis that continues another one copies nothing: `ancestry` says which hypothesis wrote each of its
    symbols. The position is on the device, so that one graph serves all steps.
    """

    keys: tuple[Tensor, ...]  # per layer [B, N, K, U, D]
    values: tuple[Tensor, ...]  # per layer [B, N, K, U, D]
    ancestry: Tensor  # [B, K, U] int16: who wrote symbol u of hypothesis k; itself where nobody has yet
    position: Tensor  # [] int64: symbols read by all

    @classmethod
    def empty(cls, like: Tensor, layers: int, heads: int, size: int, room: int) -> Cache:
        """One hypothesis per sentence of `like` [B, ...], in its dtype and on its device."""
        shape = len(like), heads, 1, room, size
        keys, values = (tuple(like.new_zeros(shape) for _ in range(layers)) for _ in range(2))
        ancestry = like.new_zeros(len(like), 1, room, dtype=torch.int16)
        return cls(keys, values, ancestry, like.new_zeros((), dtype=torch.long))

    def mask(self) -> Tensor:
        """[B, 1, K, K * U]: 0 for what each hypothesis reads in this step, its new entry too; else -inf."""
        mine = self.ancestry[:, :, None] == self._own()  # [B, K, K, U]
        return additive((mine & (self._places() <= self.position)).flatten(2)[:, None], self.keys[0].dtype)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention [B, N, K, D] of the new symbols' queries; their keys and values, of this shape, are kept.

        All hypotheses of a sentence read its entries in one product; `mask` says which entries count.
        """
        old = self.keys[layer], self.values[layer]
        for part, new in zip(old, (keys, values), strict=True):
            part.index_copy_(3, self.position.view(1), new.unsqueeze(3).to(part.dtype))
        every_key, every_value = (part.flatten(2, 3) for part in old)
        return F.scaled_dot_product_attention(queries.to(every_key.dtype), every_key, every_value, mask)

    def advanced(self) -> Cache:
        """The cache after all layers have read the symbols. Until then, the step may be tried again."""
        return replace(self, position=self.position + 1)

    def reorder(self, sentences: Tensor | None, hypotheses: Tensor) -> Cache:
        """See `states.reordered`. The entries move only if sentences are left out or K changes."""
        rows = torch.arange(len(hypotheses), device=hypotheses.device) if sentences is None else sentences
        ancestry = self.ancestry[rows[:, None], hypotheses]
        if hypotheses.shape[1] != self.ancestry.shape[1]:
            return self._copied(rows, ancestry)
        written = self._places() < self.position
        moved = replace(self, ancestry=torch.where(written, ancestry, self._own()))
        if sentences is None:
            return moved
        keys, values = (tuple(part[rows] for part in parts) for parts in (self.keys, self.values))
        return replace(moved, keys=keys, values=values)

    def grow(self, room: int) -> Cache:
        """A cache with room for so many symbols in all."""
        more = room - self.ancestry.shape[2]
        if more <= 0:
            return self
        keys, values = (
            tuple(F.pad(part, (0, 0, 0, more)) for part in parts) for parts in (self.keys, self.values)
        )
        free = self._own().expand(len(self.ancestry), -1, more)
        return replace(self, keys=keys, values=values, ancestry=torch.cat((self.ancestry, free), 2))

    def _copied(self, rows: Tensor, ancestry: Tensor) -> Cache:
        """Each hypothesis with its own copy of the entries that `ancestry` [B, K, U] names."""
        index = rows[:, None, None], ancestry.long(), self._places()
        keys, values = (
            tuple(part.movedim(1, 3)[index].movedim(3, 1).contiguous() for part in parts)
            for parts in (self.keys, self.values)
        )
        slots = torch.arange(ancestry.shape[1], dtype=torch.int16, device=ancestry.device)[:, None]
        return replace(self, keys=keys, values=values, ancestry=slots.expand_as(ancestry).contiguous())

    def _own(self) -> Tensor:
        """[K, 1]: the hypotheses themselves."""
        size, device = self.ancestry.shape[1], self.ancestry.device
        return torch.arange(size, dtype=torch.int16, device=device)[:, None]

    def _places(self) -> Tensor:
        """[U]."""
        return torch.arange(self.ancestry.shape[2], device=self.ancestry.device)
