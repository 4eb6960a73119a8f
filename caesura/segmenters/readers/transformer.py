"""A Transformer as a reader: blocks of self-attention in which a symbol sees those near it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels.precision import working_dtype
from caesura.layers.checks import check_sizes
from caesura.layers.local import Local, seen
from caesura.layers.masks import positions_mask
from caesura.layers.positions import Positions, rotation, sinusoids
from caesura.layers.transformer import Block, Core, block_flops, check_blocks, stacked
from caesura.segmenters.readers.lookup import Lookup

EMBEDDING_STD = 3.0  # the standard deviation of new embeddings


@dataclass(frozen=True)
class Behind:
    """The part of a sentence's earlier pieces that the next piece sees. W: the window."""

    keys: tuple[Tensor, ...]  # per layer [B, N, W, D]: of the last W symbols, right-aligned
    values: tuple[Tensor, ...]  # per layer [B, N, W, D]
    count: Tensor  # [B] symbols read


class Transformer(Lookup):
    """Blocks of self-attention, in each of which a symbol sees `window` symbols on either side.

    With `causal` it sees only those before it, and sentences may come in pieces.
    """

    def __init__(
        self,
        vocab_size: int,
        size: int,
        heads: int,
        feed_forward: int,
        window: int = 16,
        num_layers: int = 2,
        dropout: float = 0.1,
        positions: Positions = "rotary",
        causal: bool = False,
    ) -> None:
        check_blocks(size, heads, feed_forward, num_layers, dropout, positions)
        check_sizes(window=window)
        super().__init__(vocab_size, size, dropout)
        # In its first updates, Adam makes the blocks add nearly the same to all states. After the final norm,
        # little would be left of embeddings with standard deviation 1.
        if not self.embedding.weight.is_meta:  # see `embedding_table`
            self.embedding.weight.data.mul_(EMBEDDING_STD)
        self.heads, self.feed_forward, self.positions = heads, feed_forward, positions
        self.window, self.ahead = window, 0 if causal else window
        self.blocks = nn.ModuleList(Block(size, heads, feed_forward, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(size)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        causal = "" if self.ahead else ", causal"
        return f"heads={self.heads}, window={self.window}, positions={self.positions}{causal}"

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, size]."""
        places = torch.arange(symbols.shape[1], device=symbols.device)
        core = Local.of(lengths, len(places), self.window, self.ahead)
        return self._read(symbols, lengths, places, [core] * len(self.blocks))

    def resume(self, symbols: Tensor, lengths: Tensor, state: object | None) -> tuple[Tensor, object]:
        """Read the next piece; it sees the kept keys and values of the `window` symbols before it."""
        before = state if isinstance(state, Behind) else self._begin(symbols)
        if not symbols.numel():
            return self._read(symbols, lengths, symbols, []), before
        near = torch.arange(-self.window, symbols.shape[1], device=symbols.device)
        places = before.count[:, None] + near  # [B, W + T]
        count = before.count + lengths
        positions = places[:, self.window :]
        mask = seen(positions[..., None], places[:, None], count[:, None, None], self.window, 0)[:, None]
        last = (lengths[:, None] + torch.arange(self.window, device=symbols.device))[:, None, :, None]
        kept: list[tuple[Tensor, Tensor]] = []

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            parts = (before.keys[layer], keys), (before.values[layer], values)
            every_key, every_value = (torch.cat((old.to(new.dtype), new), 2) for old, new in parts)
            kept.append((every_key.take_along_dim(last, 2), every_value.take_along_dim(last, 2)))
            return F.scaled_dot_product_attention(queries, every_key, every_value, mask)

        states = self._read(
            symbols, lengths, positions, [partial(attend, i) for i in range(len(self.blocks))]
        )
        keys, values = zip(*kept, strict=True)
        return states, Behind(keys, values, count)

    def whole_only(self) -> str | None:
        """A window on both sides includes symbols that have not arrived yet."""
        both = "reader transformer sees the symbols after each one as well, unless causal is true"
        return both if self.ahead else None

    def flops(self, symbols: int) -> int:
        """The blocks, in which a symbol attends to those in its window."""
        size = self.embedding.embedding_dim
        near = symbols + _pairs(symbols, self.window) + _pairs(symbols, self.ahead)
        return len(self.blocks) * block_flops(size, self.feed_forward, symbols, near)

    def _begin(self, symbols: Tensor) -> Behind:
        weight = self.embedding.weight
        shape = len(symbols), self.heads, self.window, weight.shape[1] // self.heads
        nothing = (weight.new_zeros(shape),) * len(self.blocks)
        return Behind(nothing, nothing, torch.zeros(len(symbols), dtype=torch.long, device=symbols.device))

    def _read(self, symbols: Tensor, lengths: Tensor, places: Tensor, cores: list[Core]) -> Tensor:
        """[B, T, size] of symbols that stand at `places` [T] or [B, T]."""
        states = Lookup.forward(self, symbols, lengths)
        if not symbols.numel():
            return states
        turn = None
        if self.positions == "rotary":
            turn = rotation(places, self.output_dim // self.heads, working_dtype(states))
        else:
            states = states + sinusoids(places, self.output_dim).to(states.dtype)
        states = stacked(self.blocks, self.norm, states, None, [(turn, core) for core in cores])
        return states.masked_fill(~positions_mask(lengths, symbols.shape[1])[..., None], 0)


def _pairs(symbols: int, window: int) -> int:
    """The number of pairs of symbols of which one is at most `window` behind the other."""
    full = min(symbols, window)
    return full * (full - 1) // 2 + (symbols - full) * window
