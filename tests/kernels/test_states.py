"""A state is moved field by field; each field says how."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caesura.kernels.states import EVERYONE, SENTENCE, grown, reordered


class Pair(NamedTuple):
    """A tuple with its own `rows`; one of its parts is None."""

    one: Tensor
    name: str

    def rows(self, rows: Tensor) -> "Pair":
        return self._replace(one=self.one[rows])


@dataclass(frozen=True)
class Moves:
    """A part with its own `reorder`, and with a limit."""

    moves: tuple[object, ...] = ()
    room: int = 2

    def reorder(self, sentences: Tensor | None, hypotheses: Tensor) -> "Moves":
        return replace(self, moves=(*self.moves, (sentences, hypotheses)))

    def grow(self, room: int) -> "Moves":
        return replace(self, room=room)


@dataclass(frozen=True)
class State:
    """A field of every kind."""

    notes: Tensor  # [B, K, 2]
    layers: tuple[Tensor, ...]  # [B, K] each
    source: Tensor = field(metadata=SENTENCE)  # [B, 3]
    sources: tuple[Tensor, ...] = field(metadata=SENTENCE)  # [B] each
    pair: Pair = field(metadata=SENTENCE)
    table: Tensor = field(metadata=EVERYONE)
    moves: Moves = Moves()
    none: Tensor | None = None


def state(B: int, K: int) -> State:
    torch.manual_seed(B)
    each = torch.arange(B)
    return State(
        notes=torch.randn(B, K, 2),
        layers=(torch.randn(B, K), torch.randn(B, K)),
        source=torch.randn(B, 3),
        sources=(each, each + 1),
        pair=Pair(torch.randn(B), "name"),
        table=torch.randn(4),
    )


@given(data=st.data(), B=st.integers(1, 4), K=st.integers(1, 3))
def test_every_field_moves_as_it_says(data: st.DataObject, B: int, K: int) -> None:
    before = state(B, K)
    kept = data.draw(st.none() | st.lists(st.integers(0, B - 1), max_size=5))
    rows = [*range(B)] if kept is None else kept
    width = data.draw(st.integers(1, 4))
    one = st.lists(st.integers(0, K - 1), min_size=width, max_size=width)
    chosen = data.draw(st.lists(one, min_size=len(rows), max_size=len(rows)))
    sentences = None if kept is None else torch.tensor(kept, dtype=torch.long)
    hypotheses = torch.tensor(chosen, dtype=torch.long).view(len(rows), width)
    after = reordered(before, sentences, hypotheses)
    for b, (row, choice) in enumerate(zip(rows, chosen, strict=True)):
        for k, parent in enumerate(choice):
            assert torch.equal(after.notes[b, k], before.notes[row, parent])
            for layer, old in zip(after.layers, before.layers, strict=True):
                assert layer[b, k] == old[row, parent]
        assert torch.equal(after.source[b], before.source[row])
        assert [int(part[b]) for part in after.sources] == [row, row + 1]
        assert after.pair.one[b] == before.pair.one[row]
    assert after.notes.shape[:2] == (len(rows), width)
    assert after.table is before.table
    assert after.pair.name == "name"
    assert after.none is None
    (((moved, columns)),) = after.moves.moves  # type: ignore[misc]
    assert moved is sentences
    assert columns is hypotheses
    if sentences is None:  # nothing of a sentence is copied
        assert after.source is before.source
        assert after.pair is before.pair


def test_only_what_has_a_limit_grows() -> None:
    before = state(2, 3)
    after = grown(before, 9)
    assert after.moves.room == 9
    assert all(getattr(after, name) is getattr(before, name) for name in vars(before) if name != "moves")
