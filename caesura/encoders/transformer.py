"""The Transformer encoder."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.encoders.base import Encoded, Encoder
from caesura.kernels.precision import working_dtype
from caesura.layers.masks import additive, positions_mask
from caesura.layers.positions import Positions, rotation, sinusoids
from caesura.layers.projection import between
from caesura.layers.transformer import Block, block_flops, check_blocks, stacked
from caesura.segmenters.base import Segments


class TransformerEncoder(Encoder):
    """Blocks of self-attention in which every segment sees all of its sentence; no summary.

    `places` says where a segment stands: at its own index, or at the index of its last symbol. Segment
    vectors of another size are projected.
    """

    def __init__(
        self,
        input_dim: int,
        size: int,
        heads: int,
        feed_forward: int,
        num_layers: int = 6,
        dropout: float = 0.1,
        positions: Positions = "rotary",
        places: Literal["segments", "symbols"] = "segments",
    ) -> None:
        super().__init__()
        check_blocks(size, heads, feed_forward, num_layers, dropout, positions)
        self.heads, self.feed_forward = heads, feed_forward
        self.positions, self.places = positions, places
        self.input = between(input_dim, size)
        self.blocks = nn.ModuleList(Block(size, heads, feed_forward, dropout) for _ in range(num_layers))
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)
        self.output_dim = size

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"heads={self.heads}, positions={self.positions}, places={self.places}"

    def encode(self, segments: Segments) -> Encoded:
        """Encode segments; their places may count symbols."""
        places = segments.places if self.places == "symbols" else None
        return self(segments.vectors, segments.lengths, places)

    def forward(self, vectors: Tensor, lengths: Tensor, places: Tensor | None = None) -> Encoded:
        """Encode `vectors` [B, S, D] that stand at `places` [B, S], by default 0, 1, 2, ..."""
        if places is None and self.places == "symbols":
            raise ValueError("places: symbols needs the place of each segment; call encode(segments)")
        B, S, _ = vectors.shape
        if not B * S:
            return Encoded(vectors.new_zeros(B, S, self.output_dim), lengths)
        if places is None:
            places = torch.arange(S, device=vectors.device)
        # Padding may hold NaN, which a weight of 0 would let through.
        within = positions_mask(lengths, S)
        states = self.input(vectors.masked_fill(~within[..., None], 0))
        turn = None
        if self.positions == "rotary":
            turn = rotation(places, self.output_dim // self.heads, working_dtype(states))
        else:
            states = states + sinusoids(places, self.output_dim).to(states.dtype)
        # A sentence without segments looks at one of zeros: a softmax over nothing is NaN.
        mask = additive(positions_mask(lengths.clamp(min=1), S)[:, None, None], working_dtype(states))
        core = partial(F.scaled_dot_product_attention, attn_mask=mask)
        arguments = [(turn, core)] * len(self.blocks)
        return Encoded(stacked(self.blocks, self.norm, states, self.dropout, arguments), lengths)

    def flops(self, segments: int) -> int:
        """Operations of the projection, if there is one, and of the blocks."""
        size = self.output_dim
        projected = 2 * self.input.weight.numel() if isinstance(self.input, nn.Linear) else 0
        each = block_flops(size, self.feed_forward, segments, segments * segments)
        return segments * projected + len(self.blocks) * each

    def __call__(self, vectors: Tensor, lengths: Tensor, places: Tensor | None = None) -> Encoded:
        return nn.Module.__call__(self, vectors, lengths, places)
