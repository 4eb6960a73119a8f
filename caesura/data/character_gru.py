"""A small GRU that predicts characters: its entropies are the same in any batch.

Sums of floating-point numbers depend on their order, and so on how many sentences are computed together.
Here they do not. The state is rounded to multiples of 1 / STATE, and each row of weights to multiples of a
power of two. So every sum of their products is a whole number of at most 2^24 units, which float32 holds
exactly, in any order. Everything else is computed number by number, with tables for sigmoid and tanh.
Entropies are rounded to 1 / ENTROPY bits, because machines round logarithms differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.data.ngrams import BOUNDARY, Floats, numbers_of, points_of

Singles = NDArray[np.float32]

EMBEDDING = 64  # features of a character
STATE = 1 << 10  # steps of a state per 1
ENTROPY = 1 << 20  # steps of an entropy per bit
EXACT = 1 << 24  # whole numbers up to this one are exact in float32
LARGEST = 1000.0  # the largest weight, without its sign
CLASSES, SIZE = 4096, 512  # limits: characters of the alphabet (others are unknown), numbers in a state
_STEPS, _REACH = 512, 16  # of the tables of sigmoid and tanh: steps per 1, and where they end
_ROWS, _CELLS = 256, 1 << 20  # limits per batch: texts, and characters with padding


def shapes(classes: int, size: int) -> dict[str, tuple[int, ...]]:
    """The weights of a model, by name; gates are in the order of torch.nn.GRU: reset, update, new."""
    return {
        "embedding": (classes, EMBEDDING),
        "input": (3 * size, EMBEDDING),
        "input_bias": (3 * size,),
        "hidden": (3 * size, size),
        "hidden_bias": (3 * size,),
        "output": (classes, size),
        "output_bias": (classes,),
    }


class GruModel:
    """Character numbers in, entropies of the next character out.

    Number 0 is an unknown character, 1 the boundary of a line; the alphabet follows.
    """

    def __init__(self, alphabet: NDArray[np.uint32], weights: Mapping[str, Singles]) -> None:
        self.alphabet, self.weights = alphabet, dict(weights)
        if any(not (np.abs(value) <= LARGEST).all() for value in self.weights.values()):
            raise ValueError(f"weights should be numbers of at most {LARGEST:g}")
        features, weight = (self.weights[name].astype(np.float64) for name in ("embedding", "input"))
        inputs = features @ weight.T + self.weights["input_bias"]  # [V, 3 size]
        # Rounded to steps so coarse that the order of this sum in float64 does not matter.
        self._inputs = (np.rint(inputs * ENTROPY) / ENTROPY).astype(np.float32)
        self._hidden, self._hidden_unit = _whole(self.weights["hidden"])
        self._output, self._output_unit = _whole(self.weights["output"])

    @property
    def size(self) -> int:
        """Numbers in the state."""
        return self.weights["hidden"].shape[1]

    def entropies(self, texts: Sequence[str]) -> list[Floats]:
        """Per character of each text, its entropy given the characters before it, in bits."""
        results: list[Floats] = [np.empty(0)] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        at = 0
        while at < len(order):
            rows = order[at : at + max(1, min(_ROWS, _CELLS // max(1, len(texts[order[at]]))))]
            for i, values in zip(rows, self._together([texts[i] for i in rows]), strict=True):
                results[i] = values
            at += len(rows)
        return results

    def _together(self, texts: Sequence[str]) -> Iterator[Floats]:
        """The same for texts computed together, the longest first."""
        lengths = [len(text) for text in texts]
        numbers = np.zeros((len(texts), max(1, lengths[0])), np.int64)
        numbers[:, 0] = BOUNDARY
        for row, text in zip(numbers, texts, strict=True):
            row[1 : len(text)] = numbers_of(points_of(text[:-1]), self.alphabet)
        entropies = np.zeros(numbers.shape)
        state = np.zeros((len(texts), self.size), np.float32)
        states: list[Singles] = []
        live = len(texts)
        for t in range(lengths[0]):
            while lengths[live - 1] <= t:
                live -= 1
            state = self._step(numbers[:live, t], state[:live])
            states.append(state)
            if t + 1 == lengths[0] or sum(map(len, states)) >= _ROWS:
                ends = np.cumsum([0, *map(len, states)])
                values = self._uncertainty(np.concatenate(states))
                for s, (a, b) in zip(range(t + 1 - len(states), t + 1), pairwise(ends), strict=True):
                    entropies[: b - a, s] = values[a:b]
                states = []
        return (row[:length] for row, length in zip(entropies, lengths, strict=True))

    def _step(self, numbers: NDArray[np.int64], state: Singles) -> Singles:
        """The state [rows, size], in whole steps, after one more character each."""
        size = self.size
        inputs = self._inputs[numbers]
        hidden = (state @ self._hidden) * self._hidden_unit + self.weights["hidden_bias"]
        gates = _looked_up(_SIGMOID, inputs[:, : 2 * size] + hidden[:, : 2 * size])
        new = _looked_up(_TANH, inputs[:, 2 * size :] + gates[:, :size] * hidden[:, 2 * size :])
        return np.rint(new + gates[:, size:] * (state - new))

    def _uncertainty(self, states: Singles) -> Floats:
        """The entropy of the next character after each state, in bits."""
        logits = (states @ self._output) * self._output_unit + self.weights["output_bias"]
        entropies = np.empty(len(states))
        rows = max(1, _CELLS // logits.shape[1])
        for at in range(0, len(states), rows):
            part = logits[at : at + rows].astype(np.float64)
            part -= part.max(1, keepdims=True)
            shares = np.exp(part)
            total = shares.sum(1)
            entropies[at : at + rows] = np.log2(total) - (shares * part).sum(1) / (total * np.log(2))
        return np.rint(np.maximum(entropies, 0) * ENTROPY) / ENTROPY


def _whole(weights: Singles) -> tuple[Singles, Singles]:
    """Weights [out, in] as whole numbers [in, out], and per output the value of one unit of its sum."""
    sums = np.abs(weights.astype(np.float64)).sum(1)
    room = EXACT // STATE
    # Rounding may add half a unit per weight.
    bits = np.floor(np.log2((room - weights.shape[1] / 2) / np.maximum(sums, 1.0)))
    whole = np.rint(weights * np.exp2(bits)[:, None])
    return np.ascontiguousarray(whole.T, np.float32), np.exp2(-bits).astype(np.float32) / np.float32(STATE)


def _table(values: NDArray[Any], steps: int) -> Singles:
    return (np.rint(values * steps) / steps).astype(np.float32)


_GRID = np.arange(-_REACH * _STEPS, _REACH * _STEPS + 1) / _STEPS
_SIGMOID = _table(1 / (1 + np.exp(-_GRID)), ENTROPY)
_TANH = _table(np.tanh(_GRID), STATE) * np.float32(STATE)  # in steps of a state


def _looked_up(table: Singles, values: Singles) -> Singles:
    """A function of each value, by the nearest entry of its table."""
    places = np.clip(np.rint(values * _STEPS) + _REACH * _STEPS, 0, len(table) - 1)
    return table[places.astype(np.int32)]
