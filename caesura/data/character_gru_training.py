"""Training of the GRU that predicts characters. Only training needs torch; using the GRU does not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from caesura.data.character_gru import CLASSES, EMBEDDING, GruModel
from caesura.data.ngrams import BOUNDARY, numbers_of, points_of
from caesura.kernels.adam import Adam

SEED = 1
CHARACTERS = 3200  # of a batch, roughly: 32 lines of 100
LONGEST = 256  # characters of a line that are trained on; the state needs no more to settle
LEARNING_RATE, CLIP = 8e-3, 1.0  # better than 4e-3 on German talks, one run each
_NONE = -1  # padding


class _Network(nn.Module):
    """The same computation as `GruModel`, without its rounding."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, size, batch_first=True)
        self.output = nn.Linear(size, classes)

    def forward(self, numbers: Tensor) -> Tensor:
        """The mean loss in nats, over all characters [B, T] except the first of each line and padding."""
        states, _ = self.gru(self.embedding(numbers[:, :-1].clamp(min=0)))
        kept = numbers[:, 1:] != _NONE
        return nn.functional.cross_entropy(self.output(states[kept]), numbers[:, 1:][kept])


def train_gru(
    lines: Sequence[str],
    size: int,
    updates: int,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda lines: None,
) -> GruModel:
    """Train for a number of updates; the lines are batched and shuffled anew for each pass.

    The seed is fixed, and the caller's random state stays as it is. `progress` gets the number of lines
    trained on so far, repetitions included.
    """
    alphabet = _alphabet(lines)
    texts = [numbers_of(points_of(line[:LONGEST]), alphabet) for line in lines]
    with torch.random.fork_rng([device] if device != "cpu" else []):
        torch.manual_seed(SEED)
        network = _Network(len(alphabet) + 2, size).to(device)
    optimizer = Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=updates + 1)
    done = 0
    for numbers in islice(_batches(texts), updates):
        progress(done)
        done += len(numbers)
        loss = network(numbers.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        schedule.step()
    return _model(alphabet, network)


def _alphabet(lines: Sequence[str]) -> NDArray[np.uint32]:
    """The most frequent characters; those that occur once teach the GRU what unknown ones are like."""
    counts = Counter(character for line in lines for character in line)
    several = {character: n for character, n in counts.items() if n > 1} or counts
    kept = sorted(several, key=lambda character: (-several[character], character))[:CLASSES]
    return np.array(sorted(map(ord, kept)), np.uint32)


def _batches(texts: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
    """Batches [B, T] without end: lines of similar length, each between boundaries, padded."""
    rng = random.Random(SEED)
    while True:
        order = sorted(rng.sample(range(len(texts)), len(texts)), key=lambda i: len(texts[i]))
        batches, batch = [], list[int]()
        for i in order:
            if batch and (len(batch) + 1) * (len(texts[i]) + 1) > CHARACTERS:
                batches.append(batch)
                batch = []
            batch.append(i)
        batches.append(batch)
        for rows in rng.sample(batches, len(batches)):
            width = max(len(texts[i]) for i in rows)
            numbers = torch.full((len(rows), width + 2), _NONE)
            for row, i in zip(numbers, rows, strict=True):
                row[0] = row[len(texts[i]) + 1] = BOUNDARY
                row[1 : len(texts[i]) + 1] = torch.from_numpy(texts[i])
            yield numbers


_NAMES = {
    "embedding": "embedding.weight",
    "input": "gru.weight_ih_l0",
    "input_bias": "gru.bias_ih_l0",
    "hidden": "gru.weight_hh_l0",
    "hidden_bias": "gru.bias_hh_l0",
    "output": "output.weight",
    "output_bias": "output.bias",
}


def _model(alphabet: NDArray[np.uint32], network: _Network) -> GruModel:
    weights = network.state_dict()
    return GruModel(alphabet, {name: weights[key].cpu().numpy() for name, key in _NAMES.items()})
