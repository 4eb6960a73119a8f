"""A decoder that reads its distributions from a table: all that a search can meet, and no arithmetic."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from caesura.data.vocabulary import BOS
from caesura.decoders.base import Decoder, DecoderStep
from caesura.encoders.base import Encoded
from caesura.kernels.states import ROOM, SENTENCE
from caesura.search.hypothesis import Hypothesis


@dataclass(frozen=True)
class Walk:
    """B sentences of K hypotheses: all that a hypothesis remembers is the sum of the symbols that it read."""

    table: Tensor = field(metadata=SENTENCE)  # [B, M, V]
    lengths: Tensor = field(metadata=SENTENCE)  # [B]
    read: Tensor  # [B, K]


class Script(Decoder[Walk]):
    """The encoded source is its table."""

    def start(self, encoded: Encoded, room: int = ROOM) -> Walk:
        read = torch.zeros(len(encoded.lengths), 1, dtype=torch.long, device=encoded.lengths.device)
        return Walk(encoded.states, encoded.lengths, read)

    def step(self, state: Walk, symbols: Tensor) -> tuple[DecoderStep, Walk]:
        read = state.read + symbols
        rows = torch.arange(len(read), device=read.device)[:, None]
        return DecoderStep(state.table[rows, read % state.lengths[:, None]]), replace(state, read=read)


SCRIPT = Script()


def encoded(tables: Tensor) -> Encoded:
    """Tables [B, M, V] as a source."""
    B, M, _ = tables.shape
    return Encoded(tables, torch.full((B,), M, device=tables.device), tables[:, 0])


def table(count: int, seed: int, vocab_size: int = 6, memory: int = 7, spread: float = 1.0) -> Tensor:
    """Random logits [B, M, V]."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, memory, vocab_size, generator=generator, dtype=torch.float64)


def chances(script: Tensor, symbols: tuple[int, ...]) -> list[Tensor]:
    """Log-probabilities [V] before each symbol, by one sentence's table [M, V]."""
    product, read = [], BOS
    for symbol in symbols:
        product.append(torch.log_softmax(script[read % len(script)], 0))
        read += symbol
    return product


def same(hypotheses: list[Hypothesis], expected: list[Hypothesis]) -> None:
    """Fails where two lists of hypotheses differ in a symbol, or by more than rounding in a score."""
    assert [h.symbols for h in hypotheses] == [h.symbols for h in expected]
    for name in ("log_prob", "score"):
        assert [getattr(h, name) for h in hypotheses] == pytest.approx(
            [getattr(h, name) for h in expected], abs=1e-9
        )
