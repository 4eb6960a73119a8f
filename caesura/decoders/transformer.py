"""The Transformer decoder; its steps keep keys and values in a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.decoders.base import Decoded, Decoder, DecoderStep, Heads
from caesura.decoders.cache import Cache
from caesura.encoders.base import Encoded
from caesura.kernels.linear import linear
from caesura.kernels.precision import working_dtype
from caesura.kernels.states import ROOM, SENTENCE
from caesura.layers.embedding import scaled_table
from caesura.layers.masks import additive, positions_mask
from caesura.layers.positions import Positions, rotation, sinusoids
from caesura.layers.transformer import (
    Block,
    Core,
    CrossAttention,
    block_flops,
    check_blocks,
    cross_flops,
    projected,
    stacked,
)
from caesura.segmenters.base import BaseSegmenter

Memory = tuple[tuple[Tensor, Tensor], ...]  # per layer keys and values [B, N, S, D]


@dataclass(frozen=True)
class TransformerState:
    """B sentences of K hypotheses; the hypotheses of a sentence share its memory."""

    cache: Cache
    memory: Memory = field(metadata=SENTENCE)
    mask: Tensor = field(metadata=SENTENCE)  # [B, 1, 1, S] 0: this segment is there; -inf: it is not


class TransformerDecoder(Decoder[TransformerState]):
    """Blocks of self-attention over the symbols so far and of attention to the source.

    With `tied`, the output layer's matrix is the table of embeddings; with `share`, source symbols are looked
    up in it too. `dropout` applies to embeddings and to the output of every layer in a block.
    """

    def __init__(
        self,
        vocab_size: int,
        memory_dim: int,
        size: int,
        heads: int,
        feed_forward: int,
        num_layers: int = 6,
        dropout: float = 0.1,
        positions: Positions = "rotary",
        tied: bool = False,
        share: bool = False,
    ) -> None:
        super().__init__()
        check_blocks(size, heads, feed_forward, num_layers, dropout, positions)
        self.size, self.heads, self.feed_forward = size, heads, feed_forward
        self.memory_dim, self.positions, self.one_vocabulary = memory_dim, positions, share
        self.embedding = scaled_table(vocab_size, size)
        self.blocks = nn.ModuleList(
            Block(size, heads, feed_forward, dropout, memory_dim) for _ in range(num_layers)
        )
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)
        self.output = Output(vocab_size, size, tied)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"heads={self.heads}, positions={self.positions}" + ", share=True" * self.one_vocabulary

    def join(self, segmenter: BaseSegmenter) -> None:
        """With `share`, the segmenter looks symbols up in the table of this decoder."""
        if self.one_vocabulary:
            table = self.embedding
            segmenter.share_table(table)
            del self.embedding
            # Not registered: the segmenter owns it now, so that it is saved and counted once.
            object.__setattr__(self, "embedding", table)

    @property
    def looks(self) -> Heads:
        """The layer shown is the last but one, which comes closest to alignments (Garg et al. 2019)."""
        return Heads(len(self.blocks), self.heads, max(1, len(self.blocks) - 1))

    def flops(self, segments: int, targets: int, written: int) -> int:
        """Each symbol attends to those up to itself, and to the source."""
        block = block_flops(self.size, self.feed_forward, targets, targets * (targets + 1) // 2)
        each = block + cross_flops(self.size, self.memory_dim, targets, segments)
        return len(self.blocks) * each + 2 * targets * self.size * len(self.output.bias)

    def start(self, encoded: Encoded, room: int = ROOM) -> TransformerState:
        """The source's keys and values for all layers, and nothing read yet."""
        memory, mask = self._memory(encoded)
        like = memory[0][0]  # in the dtype of products, which autocast may have chosen
        cache = Cache.empty(like, len(self.blocks), self.heads, self.size // self.heads, room)
        return TransformerState(cache, memory, mask)

    def step(self, state: TransformerState, symbols: Tensor) -> tuple[DecoderStep, TransformerState]:
        """One symbol further for every hypothesis; its attention is not returned."""
        cache = state.cache
        mask = cache.mask()
        cores = [partial(cache.attend, i, mask=mask) for i in range(len(self.blocks))]
        logits, _ = self._read(symbols, cache.position[None], cores, state.memory, state.mask)
        return DecoderStep(logits), replace(state, cache=cache.advanced())

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        """Teacher forcing. Attention is returned only without gradients: training does not need it."""
        shown = self.looks.shown
        looks = range(0) if torch.is_grad_enabled() else range(shown - 1, shown)
        logits, weights = self._forced(encoded, trg_in, looks)
        return Decoded(logits, logits.new_zeros(len(logits)), weights[0].mean(1) if weights else None)

    def look(self, encoded: Encoded, trg_in: Tensor) -> Tensor:
        """[B, L, N, U, S]: where each head of each layer looks in the source at each symbol of `trg_in`."""
        return torch.stack(self._forced(encoded, trg_in, range(len(self.blocks)))[1], 1)

    def _forced(self, encoded: Encoded, trg_in: Tensor, looks: range) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, U, V], and where each of the layers `looks` looked [B, N, U, S]."""
        memory, mask = self._memory(encoded)
        # Padding is at the end, and no symbol looks ahead.
        cores = [partial(F.scaled_dot_product_attention, is_causal=True)] * len(self.blocks)
        places = torch.arange(trg_in.shape[1], device=trg_in.device)
        logits, seen = self._read(trg_in, places, cores, memory, mask, looks)
        within = positions_mask(encoded.lengths, encoded.states.shape[1])[:, None, None]
        return logits, [weights[..., : within.shape[3]] * within for weights in seen]

    def _read(
        self,
        symbols: Tensor,
        places: Tensor,
        cores: Sequence[Core],
        memory: Memory,
        mask: Tensor,
        looks: range = range(0),
    ) -> tuple[Tensor, list[Tensor]]:
        """The next symbols' logits [B, U, V] after `symbols` [B, U], which stand at `places` [U] or [1]."""
        states, turn = self.embedding(symbols), None
        if self.positions == "rotary":
            turn = rotation(places, self.size // self.heads, working_dtype(states))
        else:
            states = states + sinusoids(places, self.size).to(states.dtype)
        seen = list[Tensor]()
        arguments = [
            (turn, core, (keys, values, mask), seen if i in looks else None)
            for i, (core, (keys, values)) in enumerate(zip(cores, memory, strict=True))
        ]
        states = stacked(self.blocks, self.norm, states, self.dropout, arguments)
        return self.output(states, self.embedding), seen

    def _memory(self, encoded: Encoded) -> tuple[Memory, Tensor]:
        """Keys and values of all layers, and the mask [B, 1, 1, S] of segments.

        A sentence without segments attends to one of zeros: a softmax over nothing is NaN.
        """
        states = encoded.states
        if not states.shape[1]:
            states = states.new_zeros(len(states), 1, states.shape[2])
        # Padding may hold NaN, which a weight of 0 would let through.
        within = positions_mask(encoded.lengths, states.shape[1])
        states = states.masked_fill(~within[..., None], 0)
        memory = projected(states, [cast(CrossAttention, block.cross) for block in self.blocks])
        mask = positions_mask(encoded.lengths.clamp(min=1), states.shape[1])[:, None, None]
        return memory, additive(mask, memory[0][0].dtype)


class Output(nn.Module):
    """Logits by a matrix of its own, or, with `tied`, by the table of embeddings."""

    def __init__(self, vocab_size: int, size: int, tied: bool) -> None:
        super().__init__()
        self.weight = None if tied else nn.Parameter(scaled_table(vocab_size, size).weight.data)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, states: Tensor, embedding: nn.Embedding) -> Tensor:
        """[..., V] from states [..., size]."""
        return linear(states, embedding.weight if self.weight is None else self.weight, self.bias)
