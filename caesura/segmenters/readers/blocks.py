"""Blocks: gradient-based subword tokenization without its downsampling (GBST; Charformer, 2106.12672)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
from caesura.layers.masks import positions_mask
from caesura.segmenters.parts import Reader
from caesura.segmenters.readers.conv import windows
from caesura.segmenters.readers.lookup import Lookup

EMBEDDING_STD = 0.125  # the standard deviation of new embeddings


class Blocks(Lookup):
    """At each symbol, a mixture of the means of the blocks of 1, 2, ... `largest` symbols that contain it.

    Blocks of one size follow one another from the start of the sentence; the last may be shorter. A linear
    layer scores each block, and a softmax over the sizes mixes them. With `calibrate`, the shares of a symbol
    are averaged with those of symbols whose shares are similar. As in Charformer, a convolution of `width`
    comes first, so that a block depends on its surroundings; a width of 1 leaves only a linear layer.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        largest: int = 4,
        width: int = 5,
        calibrate: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(vocab_size, embedding_dim, dropout)
        check_sizes(largest=largest, width=width)
        self.largest, self.width, self.calibrate = largest, width, calibrate
        self.convolution = nn.Linear(width * embedding_dim, embedding_dim)
        # Adam moves every weight by about the same amount. With embeddings of standard deviation 1, its first
        # updates would add to all states, through thousands of inputs, far more than what tells them apart.
        if not self.embedding.weight.is_meta:  # see `embedding_table`
            self.embedding.weight.data.mul_(EMBEDDING_STD)
            self.convolution.weight.data.div_(EMBEDDING_STD)
        self.score = nn.Linear(embedding_dim, 1, bias=False)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"largest={self.largest}, calibrate={self.calibrate}"

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, T, embedding_dim]."""
        mask = positions_mask(lengths, symbols.shape[1])
        states = self.convolution(windows(super().forward(symbols, lengths), self.width))
        states = states.masked_fill(~mask[..., None], 0)
        means = [states, *(block_means(states, mask, size) for size in range(2, self.largest + 1))]
        blocks = torch.stack(means, 2)  # [B, T, M, D]
        shares = torch.softmax(self.score(blocks).squeeze(3), 2)  # [B, T, M]
        if self.calibrate:
            shares = calibrated(shares, mask)
        mixed = torch.einsum("btm,btmd->btd", shares.to(blocks.dtype), blocks)
        return mixed.masked_fill(~mask[..., None], 0)

    resume = Reader.resume  # it reads whole sentences only

    def whole_only(self) -> str:
        """A block has symbols on both sides."""
        return "reader blocks sees the symbols after each one as well"

    def flops(self, symbols: int) -> int:
        """The convolution, and for each block size a mean, a score and a share of the mixture."""
        size = self.embedding.embedding_dim
        calibration = 4 * symbols * self.largest if self.calibrate else 0
        return symbols * (2 * self.width * size * size + 5 * self.largest * size + calibration)


def block_means(states: Tensor, mask: Tensor, size: int) -> Tensor:
    """[B, T, D]: for each symbol the mean of states [B, T, D] over its block of `size`, without padding."""
    B, T, D = states.shape
    number = -(-T // size)  # of blocks; the last one may be shorter
    rest = number * size - T
    total = F.pad(states, (0, 0, 0, rest)).view(B, number, size, D).sum(2)
    count = F.pad(mask, (0, rest)).view(B, number, size).sum(2).clamp(min=1)
    means = total / count[..., None].to(total.dtype)
    return means.repeat_interleave(size, 1, output_size=number * size)[:, :T]


def calibrated(shares: Tensor, mask: Tensor) -> Tensor:
    """[B, T, M]: softmax(P P') P over the symbols of a sentence, P the shares [B, T, M]."""
    likeness = torch.bmm(shares, shares.transpose(1, 2))
    likeness = likeness.masked_fill(~mask[:, None], torch.finfo(likeness.dtype).min)
    return torch.bmm(torch.softmax(likeness, 2), shares)
