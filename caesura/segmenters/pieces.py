"""Sentences that come in pieces, through parts that do not look ahead.

The open segment waits, as states that are read already, until a later piece closes it. The last symbol of a
piece waits too: if </s> comes next, the two must not be cut apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from caesura.layers.masks import positions_mask
from caesura.segmenters.reading import Reading


@dataclass(frozen=True)
class OpenSegments:
    """Where the sentences of a batch stand between two pieces. L: symbols of the longest open segment."""

    reader: object  # the reader's state
    states: Tensor  # [B, L, D] of the symbols that wait
    symbols: Tensor  # [B, L]
    given: Tensor  # [B, L] int8
    lengths: Tensor  # [B]
    begun: Tensor  # [B] symbols in front of them


def joined(
    state: OpenSegments | None, states: Tensor, symbols: Tensor, lengths: Tensor, given: Tensor | None
) -> tuple[Reading, Tensor | None]:
    """The symbols that wait and those of this piece as one, with the cuts that are given for them."""
    if state is None:
        mask = positions_mask(lengths, symbols.shape[1])
        return Reading(states, symbols, lengths, mask, torch.zeros_like(lengths)), given
    marks = torch.zeros_like(symbols, dtype=torch.int8) if given is None else given
    any_given = given is not None or bool(state.given.any())
    waiting, total = state.symbols.shape[1], state.lengths + lengths
    places = torch.arange(waiting + symbols.shape[1], device=symbols.device).expand(len(symbols), -1)
    behind = places - state.lengths[:, None]
    chosen = torch.where(behind < 0, places, waiting + behind).clamp(max=max(0, places.shape[1] - 1))

    def joint(one: Tensor, other: Tensor) -> Tensor:
        both = torch.cat((one, other), 1)
        return both.gather(1, chosen if both.dim() == 2 else chosen[..., None].expand_as(both))

    mask = positions_mask(total, places.shape[1])
    together = joint(state.states, states).masked_fill(~mask[..., None], 0)
    reading = Reading(together, joint(state.symbols, symbols), total, mask, state.begun)
    return reading, joint(state.given, marks) if any_given else None


def waiting(reading: Reading, given: Tensor | None, ends: Tensor, reader: object) -> OpenSegments:
    """What no segment has taken yet, moved to the front."""
    places = torch.arange(ends.shape[1], device=ends.device)
    taken = torch.where(ends, places + 1, 0).amax(1) if ends.numel() else torch.zeros_like(reading.lengths)
    lengths = reading.lengths - taken
    size = int(lengths.max()) if len(lengths) else 0
    chosen = (taken[:, None] + places[:size]).clamp(max=max(0, ends.shape[1] - 1))
    states = reading.states.gather(1, chosen[..., None].expand(-1, -1, reading.states.shape[2]))
    marks = torch.zeros_like(reading.symbols, dtype=torch.int8) if given is None else given
    assert reading.begun is not None
    return OpenSegments(
        reader=reader,
        states=states,
        symbols=reading.symbols.gather(1, chosen),
        given=marks.gather(1, chosen),
        lengths=lengths,
        begun=reading.begun + taken,
    )
