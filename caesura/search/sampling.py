"""Ancestral sampling: the next symbol is drawn from the model's distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.greedy import Walk, begin, walk, written
from caesura.search.hypothesis import Hypothesis

DRAWS = 64  # made at a time, so that tensors of few shapes hold them


@dataclass(frozen=True)
class Lot(Walk):
    """A walk with the random numbers that it will need."""

    draws: Tensor  # [B, U] uniform in [0, 1)


@dataclass(frozen=True)
class Draw:
    """The symbol that the sentence's next number falls on."""

    temperature: float
    width: ClassVar[int] = 1

    def __call__(self, scores: Tensor, progress: Lot) -> tuple[Lot, None]:
        """One symbol further."""
        heaps = torch.softmax(scores[:, 0].double() / self.temperature, 1).cumsum(1)
        position = progress.length.clamp(max=progress.draws.shape[1] - 1)  # any, where the sentence is done
        # The heap that the draw falls into; scaled, so that rounding of the last sum cannot push it out.
        points = progress.draws.gather(1, position[:, None]) * heaps[:, -1:]
        symbols = (heaps <= points).sum(1, keepdim=True).clamp(max=scores.shape[2] - 1)
        return written(scores, progress, symbols), None


def sample(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    seeds: list[int],
    temperature: float = 1.0,
) -> list[Hypothesis]:
    """Draw one target per sentence, by its own number in `seeds`: other sentences do not change the draw."""
    if not 0 < temperature < float("inf"):
        raise ValueError(
            f"temperature must be above 0 and finite, not {temperature}; for temperature 0 use greedy search"
        )
    if len(seeds) != len(limits):
        raise ValueError(f"{len(limits)} sentences need as many seeds, not {len(seeds)}")
    if not seeds:
        return []
    most = max(1, -(-int(limits.max()) // DRAWS)) * DRAWS
    draws = torch.from_numpy(np.stack([np.random.default_rng(seed).random(most) for seed in seeds]))
    return walk(decoder, encoded, Lot(*begin(limits), draws.to(limits.device)), Draw(temperature))
