"""Ancestral sampling: the next symbol is drawn from the model's distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.greedy import walk
from caesura.search.hypothesis import Hypothesis


def sample(
    decoder: Decoder[Any],
    encoded: Encoded,
    limits: Tensor,
    seeds: list[int],
    temperature: float = 1.0,
) -> list[Hypothesis]:
    """Draw one target a sentence; `seeds` has one number a sentence, so company does not change the draw."""
    if not 0 < temperature < float("inf"):
        raise ValueError(
            f"temperature must be above 0 and finite, not {temperature}; for temperature 0 use greedy search"
        )
    if len(seeds) != len(limits):
        raise ValueError(f"{len(limits)} sentences need as many seeds, not {len(seeds)}")
    longest = int(limits.max()) if len(limits) else 0
    draws = (
        np.stack([np.random.default_rng(seed).random(longest) for seed in seeds])
        if seeds
        else np.zeros((0, 0))
    )
    uniform = torch.from_numpy(draws).to(limits.device)

    def choose(scores: Tensor, sentences: Tensor, position: int) -> Tensor:
        heaps = torch.softmax(scores.double() / temperature, 1).cumsum(1)
        # The heap that the draw falls into; scaled, so that rounding of the last sum cannot push it out.
        points = uniform[sentences, position, None] * heaps[:, -1:]
        return (heaps <= points).sum(1).clamp(max=scores.shape[1] - 1)

    return walk(decoder, encoded, limits, choose)
