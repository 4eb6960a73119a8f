"""Decoders with self-attention: a toy with a cache, one without and a Transformer; all searches with any."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from helpers import SIZES as TRANSFORMER_SIZES
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.decoders.base import Decoded, Decoder, DecoderStep
from caesura.decoders.cache import Cache
from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.base import Encoded
from caesura.kernels.states import ROOM, SENTENCE
from caesura.layers.masks import positions_mask
from caesura.search.beam import beam_search
from caesura.search.greedy import greedy
from caesura.search.sampling import sample

LAYERS, HEADS, SIZE, WIDTH = 2, 2, 3, 6  # N, D, N * D
LIMITS = torch.tensor([3, 30, 1, 17, 9, 40, 8])  # [B]


@dataclass(frozen=True)
class CachedState:
    cache: Cache
    source: Tensor = field(metadata=SENTENCE)  # [B, WIDTH]


class Attentive(Decoder[Any]):
    """Two layers of self-attention; the source and the position are added to what each symbol gives."""

    def __init__(self, vocab_size: int = 7, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(vocab_size, WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.output = nn.Linear(WIDTH, vocab_size)
        self.double()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(3)

    def start(self, encoded: Encoded, room: int = ROOM) -> Any:
        source = encoded.first
        return CachedState(Cache.empty(source, LAYERS, HEADS, SIZE, room), source)

    def step(self, state: Any, symbols: Tensor) -> tuple[DecoderStep, Any]:
        cache = state.cache
        x, mask = self.read(symbols, state.source, cache.position), cache.mask()
        for i in range(LAYERS):
            attended = cache.attend(i, *self.split(i, x), mask)
            x = x + attended.transpose(1, 2).flatten(2)
        return DecoderStep(self.output(x)), replace(state, cache=cache.advanced())

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        x = self.read(trg_in, encoded.first, torch.arange(trg_in.shape[1], device=trg_in.device)[:, None])
        for i in range(LAYERS):
            attended = F.scaled_dot_product_attention(*self.split(i, x), is_causal=True)
            x = x + attended.transpose(1, 2).flatten(2)
        return Decoded(self.output(x), x.new_zeros(len(x)))

    def read(self, symbols: Tensor, source: Tensor, position: Tensor) -> Tensor:
        wave = torch.sin(position.double() * 1.7)  # alike on every device
        return self.embedding(symbols) + source[:, None] + wave

    def split(self, i: int, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values [B, N, K, D]."""
        parts = self.projections[i](x).unflatten(2, (3, HEADS, SIZE)).permute(2, 0, 3, 1, 4)
        return tuple(parts)


@dataclass(frozen=True)
class CopiedState:
    read: Tensor  # [B, K, U]
    source: Tensor = field(metadata=SENTENCE)  # [B, WIDTH]


class Copying(Attentive):
    """It remembers only the symbols, and reads all of them again in every step."""

    def start(self, encoded: Encoded, room: int = ROOM) -> Any:
        return CopiedState(encoded.lengths.new_zeros(len(encoded.lengths), 1, 0), encoded.first)

    def step(self, state: Any, symbols: Tensor) -> tuple[DecoderStep, Any]:
        read = torch.cat((state.read, symbols[..., None]), 2)
        (B, K, U), flat = read.shape, read.flatten(0, 1)
        source = Encoded(state.source[:, None], state.source.new_ones(B), state.source)
        logits = self(source.rows(torch.arange(B).repeat_interleave(K)), flat, torch.full((B * K,), U)).logits
        return DecoderStep(logits[:, -1].view(B, K, -1)), replace(state, read=read)


def sources(count: int, seed: int = 0, device: str = "cpu") -> Encoded:
    """Encoded sentences of one or two segments, without a summary."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, 2, WIDTH, generator=generator, dtype=torch.float64)
    lengths = torch.arange(count) % 2 + 1
    states = states.where(positions_mask(lengths, 2)[..., None], torch.nan)
    return Encoded(states.to(device), lengths.to(device))


def transformer(vocab_size: int = 7, seed: int = 0, **options: Any) -> TransformerDecoder:
    torch.manual_seed(seed)
    decoder = TransformerDecoder(vocab_size, 6, **(TRANSFORMER_SIZES | options)).double().eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return decoder


def encoded(count: int = len(LIMITS), seed: int = 0) -> Encoded:
    """Encoded sentences of one to three segments, NaN behind them."""
    states = torch.randn(count, 4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lengths = torch.arange(count) % 3 + 1
    return Encoded(states.where(positions_mask(lengths, 4)[..., None], torch.nan), lengths)


def searches(decoder: Decoder[Any], source: Encoded) -> list[Any]:
    return [
        *beam_search(decoder, source, LIMITS, 3),
        greedy(decoder, source, LIMITS),
        sample(decoder, source, LIMITS, [*range(len(LIMITS))]),
    ]
