"""Better cuts for sentences whose translations are known, with as many cuts as a model makes itself.

A move joins the text at one cut and cuts it at another place. In each round, each sentence gets the best of
the moves that were tried, as long as one gains. B sentences, T source symbols, M moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch
from torch import Tensor

from caesura.analysis.flips import NEGLIGIBLE, FlipSearch
from caesura.analysis.losses import Pairs, resting
from caesura.inference import Translator

ROUNDS = 4  # moves per sentence, at most
BEST = (
    4  # of the cuts to remove, and of the gaps to cut: those whose single flips are best are tried together
)


@dataclass(frozen=True)
class BetterCuts:
    """A sentence's cuts after the moves. Losses: nats per target symbol, </s> counted, with hard cuts."""

    own: list[int]  # the model's own cuts: after which symbols
    cuts: list[int]
    before: float
    after: float
    moves: int


def better_cuts(
    model: Translator, sources: Sequence[str], targets: Sequence[str], rounds: int = ROUNDS
) -> list[BetterCuts]:
    """Move the cuts of sentences, in shared batches; ValueError if the segmenter takes no cuts."""
    if not model.segmenter.takes_cuts:
        raise ValueError(f"{model.segmenter.kind} takes no cuts that could be moved")
    with resting(model), torch.no_grad():
        search = MoveSearch(Pairs.of(model, model.batch(sources, targets)))
        for _ in range(rounds):
            if not search.step():
                break
    rows = zip(search.cuts, search.marks > 0, search.hard, search.loss, search.taken, strict=True)
    return [
        BetterCuts(_where(own), _where(cuts), float(before), float(after), len(taken))
        for own, cuts, before, after, taken in rows
    ]


class MoveSearch(FlipSearch):
    """Greedy moves of all sentences at once; `taken` has the gaps that were cut."""

    changed: Tensor | None = None  # sentences whose flips have to be tried again

    def step(self) -> bool:
        """Make the best move in each sentence where one gains; whether any sentence had one."""
        if self.changed is not None:
            self.next = self.flip(self.changed)
        rows, off, on = self._moves()
        losses = self._moved(rows, off, on)
        order = np.lexsort((losses.cpu().numpy(), rows.cpu().numpy()))  # stable: of equal moves, the first
        firsts = np.unique(rows.cpu().numpy()[order], return_index=True)[1]
        best = torch.from_numpy(order[firsts]).to(rows.device)  # of each sentence
        best = best[losses[best] < self.loss[rows[best]] - NEGLIGIBLE]
        if not len(best):
            return False
        going = rows[best]
        self.marks[going, off[best]], self.marks[going, on[best]] = -1, 1
        self.loss[going] = losses[best]
        for row, gap in zip(going.tolist(), on[best].tolist(), strict=True):
            self.taken[row].append(gap)
        self.changed = going
        return True

    def _moves(self) -> tuple[Tensor, Tensor, Tensor]:
        """[M] each: a sentence that still changes, the cut to remove and the gap to cut.

        The moves: each cut by one place in both directions, and the best removals with the best additions.
        """
        movable, cut = ~self.next.isnan(), self.marks > 0
        moves = []
        for step in (-1, 1):
            free = (movable & ~cut).roll(-step, 1)
            free[:, -1 if step > 0 else 0] = False
            rows, off = (movable & cut & free).nonzero().T
            moves.append(torch.stack((rows, off, off + step)))
        most = min(BEST, self.next.shape[1])
        (away, off), (added, on) = (
            torch.where(movable & some, self.next, torch.inf).topk(most, largest=False)
            for some in (cut, ~cut)
        )
        rows, i, j = (away.isfinite()[:, :, None] & added.isfinite()[:, None]).nonzero().T
        moves.append(torch.stack((rows, off[rows, i], on[rows, j])))
        rows, off, on = torch.cat(moves, 1)
        return rows, off, on

    def _moved(self, rows: Tensor, off: Tensor, on: Tensor) -> Tensor:
        """[M]: the loss after each move; infinite if the segmenter does not make it."""
        marks, lines = self.marks[rows], torch.arange(len(rows), device=rows.device)
        marks[lines, off], marks[lines, on] = -1, 1
        moved = torch.full(rows.shape, torch.inf, dtype=torch.float64, device=rows.device)
        for part in self.pairs.chunks(rows):
            losses, segments = self.pairs.forced(rows[part], given=marks[part])
            made = segments.ends.gather(1, torch.stack((off[part], on[part]), 1))
            moved[part] = torch.where(~made[:, 0] & made[:, 1], losses, torch.inf)
        return moved


def _where(cuts: Tensor) -> list[int]:
    return [*compress(range(len(cuts)), cuts.tolist())]
