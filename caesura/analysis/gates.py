"""The gates of the encoder's GRUs: along a sentence, and on average around spaces and gold boundaries.

The encoder is run step by step here, from its own weights, as its fast forms do not show their gates. The
update gate is in the paper's convention: 1 takes the new state, 0 keeps the old one (1 - z of PyTorch's).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from caesura.analysis.characters import Unit, labels, units
from caesura.analysis.means import Means, MeanTally
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.inference import Translator
from caesura.layers.modes import evaluating
from caesura.output import Segmentation

Direction = Literal["forward", "backward"]
Gate = Literal["reset", "update"]

AROUND = 3  # steps before and after a space, a punctuation mark or a gold boundary
PLACES = 12  # characters of a word; the last stands for all that follow
_BATCH = 50  # sentences


@dataclass(frozen=True)
class GateRow:
    """The mean activation of one gate, over its units, at each step of a sentence."""

    layer: int  # from 1, the lowest
    direction: Direction
    gate: Gate
    values: list[float]


@dataclass(frozen=True)
class GateMap:
    """All gates along one sentence: the paper's Figures 3 and 4."""

    labels: list[str]
    rows: list[GateRow]


@dataclass(frozen=True)
class GateProfile:
    """One gate over a corpus; `around` lists run from -AROUND to AROUND steps."""

    layer: int
    direction: Direction
    gate: Gate
    overall: float
    inside: float  # on steps within words: no space, no punctuation, no first character
    space: Means
    punctuation: Means
    place: Means  # by the step's place in its word, 1 to PLACES; `characters.Unit` says which
    gold: Means  # around the step that begins right after a gold boundary inside a word


@dataclass(frozen=True)
class GateStatistics:
    """The gates over a sample."""

    sentences: int
    steps: int
    gold_boundaries: int  # inside words, at which a step begins: gates are known there
    gold_given: int  # inside words, in all
    profiles: list[GateProfile]


def gru_gates(gru: nn.GRU, inputs: Tensor, lengths: Tensor, backwards: bool) -> tuple[Tensor, Tensor, Tensor]:
    """States [B, S, H], and the mean reset and update activations [B, S], step by step.

    Backwards, a sentence is read from its last step to its first; padding is passed over.
    """
    w_ih, w_hh, b_ih, b_hh = (parameter for parameter in gru.parameters())
    sentences, steps, _ = inputs.shape
    state = inputs.new_zeros(sentences, gru.hidden_size)
    states = inputs.new_zeros(sentences, steps, gru.hidden_size)
    resets, updates = inputs.new_zeros(sentences, steps), inputs.new_zeros(sentences, steps)
    for t in reversed(range(steps)) if backwards else range(steps):
        i_r, i_z, i_n = (inputs[:, t] @ w_ih.T + b_ih).chunk(3, 1)
        h_r, h_z, h_n = (state @ w_hh.T + b_hh).chunk(3, 1)
        r, z = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
        new = (1 - z) * torch.tanh(i_n + r * h_n) + z * state
        inside = (t < lengths)[:, None]
        state = torch.where(inside, new, state)
        states[:, t] = torch.where(inside, new, torch.zeros_like(new))
        resets[:, t], updates[:, t] = r.mean(1), (1 - z).mean(1)
    return states, resets, updates


@torch.no_grad()
def encoder_gates(
    encoder: RecurrentEncoder, vectors: Tensor, lengths: Tensor
) -> tuple[Tensor, dict[tuple[int, Direction, Gate], Tensor]]:
    """The encoder's states [B, S, 2H], and each gate's mean activations [B, S]."""
    gates: dict[tuple[int, Direction, Gate], Tensor] = {}
    states = vectors
    directions: tuple[Direction, Direction] = ("forward", "backward")
    for layer, both in enumerate(zip(encoder.forwards, encoder.backwards, strict=True)):
        outputs, inputs = [], encoder.depth.before(layer, states)
        for direction, gru in zip(directions, both, strict=True):
            assert isinstance(gru, nn.GRU)
            output, resets, updates = gru_gates(gru, inputs, lengths, direction == "backward")
            gates[layer + 1, direction, "reset"], gates[layer + 1, direction, "update"] = resets, updates
            outputs.append(output)
        states = encoder.depth.after(layer, states, torch.cat(outputs, 2))
    return encoder.depth.top(states, lengths), gates


def gate_maps(model: Translator, texts: Sequence[str], cuts: Sequence[Segmentation]) -> Iterator[GateMap]:
    """The gates along each sentence; nothing where the encoder is another than the recurrent one."""
    if not isinstance(model.encoder, RecurrentEncoder):
        return
    with evaluating(model):
        for begin in range(0, len(texts), _BATCH):
            chunk = texts[begin : begin + _BATCH]
            batch = model.batch(chunk)
            with torch.no_grad():
                segments = model.segmenter(batch.src, batch.src_lengths, given=batch.src_cuts)
            _, gates = encoder_gates(model.encoder, segments.vectors, segments.lengths)
            lengths = segments.lengths.tolist()
            values = {key: value.tolist() for key, value in gates.items()}
            for row, cut in enumerate(cuts[begin : begin + _BATCH]):
                rows = [GateRow(*key, value[row][: lengths[row]]) for key, value in values.items()]
                yield GateMap(labels(cut.pieces, lengths[row]), rows)


# How many averages each part of a profile has.
_SIZES = {"overall": 1, "inside": 1, "place": PLACES}
_SIZES |= dict.fromkeys(("space", "punctuation", "gold"), 2 * AROUND + 1)


class GateTally:
    """Averages gates over sentences."""

    def __init__(self) -> None:
        self._profiles: dict[tuple[int, Direction, Gate], dict[str, MeanTally]] = {}
        self._sentences = self._steps = self._boundaries = self._given = 0

    def add(self, gates: GateMap, steps: Sequence[Unit], gold: Collection[int] = ()) -> None:
        """One sentence, its steps, and the offsets inside words where a part begins in the gold segments."""
        self._sentences += 1
        self._steps += len(steps)
        at_gold = [i for i, unit in enumerate(steps) if unit.start in gold]
        self._boundaries += len(at_gold)
        self._given += len(gold)
        places = {
            "space": [i for i, unit in enumerate(steps) if unit.space],
            "punctuation": [i for i, unit in enumerate(steps) if unit.punctuation],
            "gold": at_gold,
        }
        for row in gates.rows:
            empty = {kind: MeanTally(size) for kind, size in _SIZES.items()}
            profile = self._profiles.setdefault((row.layer, row.direction, row.gate), empty)
            values = row.values[: len(steps)]  # </s> by itself is not a part of the text
            for value, unit in zip(values, steps, strict=True):
                profile["overall"].add(0, value)
                if unit.place is not None and not unit.punctuation:
                    profile["place"].add(min(unit.place, PLACES) - 1, value)
                    if not unit.first and not unit.space:
                        profile["inside"].add(0, value)
            for kind, centres in places.items():
                for centre in centres:
                    for at in range(max(centre - AROUND, 0), min(centre + AROUND + 1, len(values))):
                        profile[kind].add(at - centre + AROUND, values[at])

    def result(self) -> GateStatistics | None:
        """The averages; None where nothing was added."""
        if not self._sentences or not self._profiles:
            return None
        profiles = []
        for key, tallies in self._profiles.items():
            means = {kind: tally.means() for kind, tally in tallies.items()}
            overall, inside = (means[kind].values[0] for kind in ("overall", "inside"))
            others = (means[kind] for kind in ("space", "punctuation", "place", "gold"))
            profiles.append(GateProfile(*key, overall, inside, *others))
        return GateStatistics(self._sentences, self._steps, self._boundaries, self._given, profiles)


def gate_statistics(
    model: Translator,
    texts: Sequence[str],
    cuts: Sequence[Segmentation],
    gold: Sequence[Collection[int]],
) -> GateStatistics | None:
    """The gates averaged over sentences, with gold boundaries where there are any."""
    tally = GateTally()
    for gates, text, cut, bounds in zip(gate_maps(model, texts, cuts), texts, cuts, gold, strict=False):
        tally.add(gates, units(text, cut), {b for b in bounds if _inside_word(text, b)})
    return tally.result()


def _inside_word(text: str, bound: int) -> bool:
    return 0 < bound < len(text) and not text[bound - 1].isspace() and not text[bound].isspace()
