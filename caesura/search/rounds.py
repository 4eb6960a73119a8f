"""The steps of every search: a round without a look at the results, then finished sentences drop out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.data.batching import rounded
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.kernels.graphs import wanted
from caesura.kernels.states import ROOM, grown
from caesura.search import graphs
from caesura.search.hypothesis import log_probs

SMALLER = 2  # sizes per doubling, as a batch shrinks or a state grows


@dataclass(frozen=True)
class Standing:
    """The progress of B sentences of K hypotheses; a search adds fields. Every tensor begins with B."""

    symbols: Tensor  # [B, K] the newest
    length: Tensor  # [B]    symbols written
    left: Tensor  # [B]      how many more may be; 0: the sentence is done


P = TypeVar("P", bound=Standing)
Check = Callable[[], None]  # raises where a search should end at once
Trail = list[tuple[Tensor, list[tuple[Tensor, ...]]]]  # ids of the rows; symbols and parents


class Rule(Protocol[P]):
    """How a search takes a step; equal rules do the same. No value may be fetched from the device."""

    @property
    def width(self) -> int:
        """K, hypotheses of a sentence."""

    def __call__(self, scores: Tensor, progress: P) -> tuple[P, Tensor | None]:
        """One symbol further by log-probabilities [B, K, V]: new progress, and parents [B, K] if any moved.

        Of a sentence that is done, only the newest symbols may change.
        """

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Pace:
    """How often the host asks a device which sentences are done."""

    stretch: int  # steps in one piece, which is one graph
    round: int  # steps between two looks
    graphs: bool  # shapes recur, and pieces are captured


def pace(device: torch.device) -> Pace:
    """A look at a GPU makes it wait; one at the CPU is free, so there finished sentences drop out at once."""
    if device.type == "cpu":
        return Pace(1, 1, False)
    return Pace(4, 16, True) if wanted(device) else Pace(1, 16, False)


@torch.no_grad()
def run(
    decoder: Decoder[Any], encoded: Encoded, progress: P, rule: Rule[P], check: Check | None = None
) -> tuple[P, Tensor, Tensor | None]:
    """Go on until all are done: the progress of each, symbols [U, B, K] and parents [U, B, K] of all steps.

    Beyond a sentence's length the latter are meaningless. `check` is called before each round.
    """
    count, device = len(progress.left), progress.left.device
    if count == 0:
        return progress, progress.symbols[None, :0], None
    going = pace(device)
    size = rounded(count) if going.graphs else count
    if going.graphs:
        encoded = encoded.padded(size, rounded(encoded.states.shape[1]))
    room, steps = ROOM, 0  # symbols: room in the state, and taken
    state = decoder.start(encoded, room)
    itself = torch.arange(rule.width, device=device)  # each hypothesis itself
    if len(itself) > 1:
        state = decoder.reorder(state, None, torch.zeros_like(itself).expand(size, -1))
    final = _rows(progress, torch.arange(count + 1, device=device) % count)
    ids = torch.arange(size, device=device).clamp(max=count)  # the sentence of each row; `count`: none
    progress = _present(_rows(progress, ids % count), ids < count)
    trail: Trail = [(ids, [])]
    piece, most = partial(_stretch, decoder, rule, going.stretch), going.round
    with graphs.borrow(decoder, device if going.graphs else None) as play:
        while most:
            if check is not None:
                check()
            pieces = -(-min(most, going.round) // going.stretch)
            steps += pieces * going.stretch
            if steps > room:
                room = rounded(steps, SMALLER)
                state = grown(state, room)
            for _ in range(pieces):
                state, progress, wrote = play((rule, going.stretch), piece, (state, progress))
                trail[-1][1].append(wrote)
            alive = progress.left > 0
            most, number = torch.stack((progress.left.amax(), alive.sum())).tolist()
            size = rounded(number, SMALLER) if going.graphs else number
            if most and size >= len(ids):
                continue
            _put(progress, ids, final)
            if most:
                rows = alive.nonzero().squeeze(1)
                rows, real = F.pad(rows, (0, size - number), value=0), F.pad(alive[rows], (0, size - number))
                state = decoder.reorder(state, rows, itself.expand(size, -1))
                progress, ids = _present(_rows(progress, rows), real), torch.where(real, ids[rows], count)
                trail.append((ids, []))
    symbols, *parents = _whole(trail, count)
    return _rows(final, slice(count)), symbols, parents[0] if parents else None


def _stretch(
    decoder: Decoder[Any], rule: Rule[P], steps: int, state: Any, progress: P
) -> tuple[Any, P, tuple[Tensor, ...]]:
    """Some steps on the device: state, progress, and symbols (and parents) [steps, B, K]."""
    wrote: list[list[Tensor]] = []
    for _ in range(steps):
        step, state = decoder.step(state, progress.symbols)
        progress, parents = rule(log_probs(step.logits), progress)
        wrote.append([progress.symbols])
        if parents is not None:
            wrote[-1].append(parents)
            state = decoder.reorder(state, None, parents)
    return state, progress, tuple(torch.stack(column) for column in zip(*wrote, strict=True))


def _whole(trail: Trail, count: int) -> list[Tensor]:
    """Symbols (and parents) [U, B, K], in the order of the sentences."""
    parts = [(ids, [torch.cat(column) for column in zip(*wrote, strict=True)]) for ids, wrote in trail]
    steps = sum(len(columns[0]) for _, columns in parts)
    whole = [column.new_zeros(steps, count + 1, column.shape[2]) for column in parts[0][1]]
    at = 0
    for ids, columns in parts:
        for to, column in zip(whole, columns, strict=True):
            to[at : at + len(column), ids] = column
        at += len(columns[0])
    return [to[:, :count] for to in whole]


def _rows(progress: P, rows: Tensor | slice) -> P:
    return replace(progress, **{f.name: getattr(progress, f.name)[rows] for f in fields(progress)})


def _put(progress: P, rows: Tensor, into: P) -> None:
    for f in fields(progress):
        getattr(into, f.name)[rows] = getattr(progress, f.name)


def _present(progress: P, real: Tensor) -> P:
    """Rows that are not `real` [B] count as done."""
    return replace(progress, left=progress.left * real)
