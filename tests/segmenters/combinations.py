"""Small segmenters of every reader, cutter and pooling that go together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from helpers import close, ragged
from torch import Tensor

from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter, Segments
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.cutters.bernoulli import Bernoulli
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.cutters.hard import Every, Fixed, Given, Random
from caesura.segmenters.cutters.routing import Routing
from caesura.segmenters.hmrnn import HmrnnSegmenter
from caesura.segmenters.parts import Cutter, Pooling, Reader, Segmenter
from caesura.segmenters.pooling import Attention, Last, Max, Mean, Start, Weighted
from caesura.segmenters.rate import Rate
from caesura.segmenters.readers.blocks import Blocks
from caesura.segmenters.readers.conv import Conv
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.readers.recurrent import BiGru, Gru
from caesura.segmenters.readers.transformer import Transformer

VOCABULARY, WIDTH, LENGTH = 11, 4, 2.5
READERS: dict[str, Callable[[], Reader]] = {
    "lookup": lambda: Lookup(VOCABULARY, WIDTH),
    "gru": lambda: Gru(VOCABULARY, 3, WIDTH),
    "bigru": lambda: BiGru(VOCABULARY, 3, WIDTH // 2),
    "deep": lambda: BiGru(VOCABULARY, 3, WIDTH // 2, num_layers=2, residual=True, norm=True),
    "conv": lambda: Conv(VOCABULARY, 3, [1, 2, 1], highway_layers=1),
    "blocks": lambda: Blocks(VOCABULARY, WIDTH, largest=3, width=2, calibrate=True),
    "transformer": lambda: Transformer(VOCABULARY, WIDTH, 2, 5, window=2, dropout=0.0),
}
CUTTERS: dict[str, Callable[[], Cutter]] = {
    "every": Every,
    "fixed": lambda: Fixed(LENGTH),
    "random": lambda: Random(seed=3),
    "given": Given,
    "act": lambda: Act(WIDTH, halting_bias=-0.5),
    "cif": lambda: Cif(WIDTH),
    "bernoulli": lambda: Bernoulli(WIDTH, threshold=0.5),
    "carry": lambda: Act(WIDTH, halting_bias=-0.5, carry=True),
    "routing": lambda: Routing(WIDTH, "segment"),
    "routing, by character": lambda: Routing(WIDTH, "character"),
    "routing, plain": lambda: Routing(WIDTH),
}
POOLINGS: dict[str, Callable[[], Pooling]] = {
    "mean": Mean,
    "weighted": Weighted,
    "last": Last,
    "start": Start,
    "max": Max,
    "attention": lambda: Attention(WIDTH, 3),
}
RATED, LEARNING = ("random", "cif"), ("act", "cif", "carry")
ROUTING = tuple(name for name in CUTTERS if name.startswith("routing"))
# Not every three parts that go together, which would take too long, but each with some of the others.
COMBINATIONS = [
    (reader, cutter, pooling)
    for reader, cutter, pooling in product(READERS, CUTTERS, POOLINGS)
    if (cutter not in LEARNING or pooling == "weighted")
    and (
        (reader == "transformer" and pooling == "weighted")
        or (
            reader in ("lookup", "gru", "bigru")
            and cutter not in ROUTING
            and pooling in ("mean", "weighted", "last")
        )
        or (reader == "gru" and cutter == "routing")
        or (reader == "bigru" and cutter in ROUTING and pooling == "mean")
        or (reader == "lookup" and cutter == "fixed")
        or (reader in ("deep", "conv", "blocks") and cutter == "fixed" and pooling == "last")
    )
]
NAMES = [" ".join(parts) for parts in COMBINATIONS]


def made(reader: str, cutter: str, pooling: str, seed: int = 0, output_dim: int | None = 3) -> Segmenter:
    """One combination in float64, its weights large enough for cuts and vectors that differ."""
    torch.manual_seed(seed)
    rate = Rate(LENGTH) if cutter in RATED else None
    parts = READERS[reader](), CUTTERS[cutter](), POOLINGS[pooling]()
    segmenter = Segmenter(*parts, output_dim=output_dim, rate=rate).double()
    with torch.no_grad():
        for parameter in segmenter.parameters():
            parameter.mul_(2)
    return segmenter.eval()


def act_layer(seed: int = 0, bias: float = -0.5, scale: float = 3.0, **options: Any) -> ActSegmenter:
    """ACT-ENC with segments of mixed lengths (or of one, by another bias), in float64."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "embedding_dim": 4, "act_size": 5, "output_dim": 3}
    segmenter = ActSegmenter(**(sizes | options)).double()
    with torch.no_grad():
        for parameter in segmenter.parameters():
            parameter.mul_(scale)
        segmenter.halting.bias.fill_(bias)
    return segmenter


def check_gradients_alone(segmenter: Segmenter) -> None:
    """Expect the gradients of a batch to be the sums of its sentences' gradients."""
    symbols, lengths = ragged([9, 4, 7], VOCABULARY, torch.Generator().manual_seed(0))

    def gradients(rows: list[int]) -> list[Tensor]:
        segments = segmenter(symbols[rows][:, : int(lengths[rows].max())], lengths[rows])
        probe = torch.arange(1.0, segments.vectors.shape[2] + 1, dtype=torch.float64)
        total = (segments.vectors @ probe).sum() + sum(loss.sum() for loss in segments.cuts.losses.values())
        return list(torch.autograd.grad(total, [*segmenter.parameters()]))

    together, alone = gradients([0, 1, 2]), [gradients([i]) for i in range(3)]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        close(whole, sum(parts), 1e-12)


def hmrnn(seed: int = 0, **options: Any) -> HmrnnSegmenter:
    """HM-LSTM's lower layer with segments of mixed lengths, in float64."""
    torch.manual_seed(seed)
    segmenter = HmrnnSegmenter(VOCABULARY, 4, 5, 3, **options).double()
    with torch.no_grad():
        for parameter in segmenter.parameters():
            parameter.mul_(1.5)
    return segmenter


def cuts_for(segmenter: BaseSegmenter, symbols: Tensor, seed: int = 0) -> Tensor | None:
    """Random cuts [B, T] for a segmenter that cannot do without; they depend on a row's symbols alone."""
    if not segmenter.needs_given():
        return None
    return (symbols * 7 + seed).remainder(3).sub(1).to(torch.int8)


def run(segmenter: BaseSegmenter, symbols: Tensor, lengths: Tensor) -> Segments:
    """Segment, with cuts given where they have to be."""
    return segmenter(symbols, lengths, given=cuts_for(segmenter, symbols))
