"""The blocks of Transformers, normalised before each layer (Vaswani et al. 2017; Xiong et al. 2020).

B sentences, Q queries, S keys, N heads, D features of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels.linear import linear as product
from caesura.kernels.precision import full, working_dtype
from caesura.kernels.residual_norm import residual_norm
from caesura.kernels.rotation import Rotation, turned
from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.positions import Positions

HEADS = 1024  # at most
# Context [B, N, Q, D] of queries, keys and values of this shape.
Core = Callable[[Tensor, Tensor, Tensor], Tensor]


class SelfAttention(nn.Module):
    """Multi-head attention whose queries, keys and values are one product; `Core` says who sees whom."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.output = linear(size, 3 * size), linear(size, size)

    def forward(self, states: Tensor, rotation: Rotation | None, core: Core) -> Tensor:
        """[B, Q, size]."""
        parts = self.inputs(states).unflatten(2, (3, self.heads, -1))
        if rotation is None:
            queries, keys, values = (part.transpose(1, 2) for part in parts.unbind(2))
        else:
            queries, keys, values = turned(parts, rotation)
        return joined(core(queries, keys, values), self.output)


class CrossAttention(nn.Module):
    """Multi-head attention to keys and values that `projected` makes once, however many steps read them."""

    def __init__(self, size: int, memory_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.memory, self.output = (
            linear(*sizes) for sizes in ((size, size), (memory_dim, 2 * size), (size, size))
        )

    def forward(self, states: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """[B, Q, size] for states [B, Q, size]; `mask` [B, 1, 1, S] is -inf where a key does not count."""
        context = F.scaled_dot_product_attention(self._queries(states), keys, values, mask)
        return joined(context, self.output)

    def weights(self, states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """[B, N, Q, S]: where each state looks, in float32 or better."""
        scores = full(self._queries(states) @ keys.transpose(2, 3)) / math.sqrt(keys.shape[3])
        return (scores + full(mask)).softmax(3)

    def _queries(self, states: Tensor) -> Tensor:
        return self.query(states).unflatten(2, (self.heads, -1)).transpose(1, 2)


def projected(memory: Tensor, layers: Sequence[CrossAttention]) -> tuple[tuple[Tensor, Tensor], ...]:
    """Keys and values [B, N, S, D] of a memory [B, S, M] for each of these layers, by one product."""
    weight, bias = (
        torch.cat([getattr(layer.memory, name) for layer in layers]) for name in ("weight", "bias")
    )
    parts = product(memory, weight, bias).unflatten(2, (2 * len(layers), layers[0].heads, -1))
    # In this order, the gradient is put together by one copy.
    each = [part.transpose(1, 2) for part in parts.unbind(2)]
    return tuple(zip(each[::2], each[1::2], strict=True))


class Block(nn.Module):
    """Self-attention, cross-attention if there is a memory, and two linear layers with a ReLU between them.

    Each of these reads the layer norm of the states, and its output, with dropout, is added to the states.
    """

    def __init__(
        self, size: int, heads: int, feed_forward: int, dropout: float, memory_dim: int | None = None
    ) -> None:
        super().__init__()
        self.attention, self.attention_norm = SelfAttention(size, heads), nn.LayerNorm(size)
        if memory_dim is not None:
            self.cross, self.cross_norm = CrossAttention(size, memory_dim, heads), nn.LayerNorm(size)
        self.feed = nn.Sequential(linear(size, feed_forward), nn.ReLU(), linear(feed_forward, size))
        self.feed_norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)

    def forward(
        self,
        states: Tensor,
        normed: Tensor,
        following: Norm,
        rotation: Rotation | None,
        core: Core,
        memory: tuple[Tensor, Tensor, Tensor] | None = None,
        seen: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """New states [B, Q, size] and their `following` norm; `normed` is the `attention_norm` of `states`.

        `memory` has keys, values and mask; the list `seen` gets the weights over it.
        """
        update = self.attention(normed, rotation, core)
        if memory is not None:
            states, normed = Norm(self.cross_norm)(states, update, self.dropout)
            if seen is not None:
                seen.append(self.cross.weights(normed, memory[0], memory[2]))
            update = self.cross(normed, *memory)
        states, normed = Norm(self.feed_norm)(states, update, self.dropout)
        return following(states, self.feed(normed), self.dropout)


@dataclass(frozen=True)
class Norm:
    """A sum and its layer norm; the norm has the precision of products or, if the `last`, of the sum."""

    layer: nn.LayerNorm
    last: bool = False

    def __call__(
        self, states: Tensor | None, update: Tensor, dropout: nn.Dropout | None
    ) -> tuple[Tensor, Tensor]:
        """`states` (None: nothing) + dropout(`update`), and its norm, in the precision of its use."""
        layer, drop = self.layer, dropout.p if dropout is not None and dropout.training else 0.0
        dtype = None if self.last else working_dtype(update if states is None else states)
        return residual_norm(states, update, layer.weight, layer.bias, layer.eps, drop, dtype)


def stacked(
    blocks: nn.ModuleList,
    norm: nn.LayerNorm,
    inputs: Tensor,
    dropout: nn.Dropout | None,
    arguments: Iterable[tuple[Any, ...]],
) -> Tensor:
    """dropout(`inputs`) [B, Q, size] through all `blocks`, each with its `arguments`, then `norm`.

    A block ends with the norm that comes next: a sum and its norm need one pass over the states.
    """
    first, *others = (Norm(cast(Block, block).attention_norm) for block in blocks)
    states, normed = first(None, inputs, dropout)
    for block, following, rest in zip(blocks, (*others, Norm(norm, last=True)), arguments, strict=True):
        states, normed = block(states, normed, following, *rest)
    return normed


class Linear(nn.Linear):
    """PyTorch's; on a GPU, a Triton kernel computes the gradient of its bias."""

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., outputs]."""
        return product(inputs, self.weight, self.bias)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A new linear map, drawn as Glorot and Bengio (2010) do, with a bias of 0."""
    layer = Linear(inputs, outputs)
    if not layer.weight.is_meta:  # see `embedding_table`
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return layer


def joined(context: Tensor, output: nn.Module) -> Tensor:
    """[B, Q, size] from the context [B, N, Q, D] of all heads."""
    mixed: Tensor = output(context.transpose(1, 2).flatten(2))
    return mixed


def check_blocks(
    size: int, heads: int, feed_forward: int, num_layers: int, dropout: float, positions: Positions
) -> None:
    """Refuse sizes that no block can have, named as in a config."""
    check_sizes(size=size, heads=heads, feed_forward=feed_forward)
    check_shares(dropout=dropout)
    if not 1 <= num_layers <= 64:
        raise ValueError(f"num_layers must be 1 to 64, not {num_layers}")
    if heads > HEADS:
        raise ValueError(f"heads must be at most {HEADS}, not {heads}")
    if size % heads:
        fewer = next(n for n in range(heads, 0, -1) if size % n == 0)
        raise ValueError(f"heads must divide size, and {heads} does not divide {size}; choose {fewer}")
    if positions == "rotary" and size // heads % 2:
        raise ValueError(
            f"heads must have an even size for rotary positions, and {size} / {heads} is {size // heads}; "
            "change size or heads, or choose positions: sinusoidal"
        )
    if size % 2:
        raise ValueError(f"size must be even for sinusoidal positions, not {size}")


def block_flops(size: int, feed_forward: int, queries: int, keys: int) -> int:
    """Operations of a block without cross-attention; `keys`: over all queries, how many they attend to."""
    return queries * (8 * size * size + 4 * size * feed_forward) + 4 * size * keys


def cross_flops(size: int, memory_dim: int, queries: int, segments: int) -> int:
    """Operations of cross-attention: keys and values once; per query two products and its attention."""
    return segments * 4 * memory_dim * size + queries * (4 * size * size + 4 * size * segments)
