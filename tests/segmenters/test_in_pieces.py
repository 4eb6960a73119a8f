"""A sentence in pieces gives what it gives whole, where no part looks ahead."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from helpers import close
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.cutters.hard import Every, Fixed, Given
from caesura.segmenters.hmrnn import HmrnnSegmenter
from caesura.segmenters.parts import Cutter, Pooling, Reader, Segmenter
from caesura.segmenters.pooling import Attention, Last, Max, Mean, Start, Weighted
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.readers.recurrent import Gru
from caesura.segmenters.readers.transformer import Transformer

READERS = {
    "lookup": lambda: Lookup(9, 4),
    "gru": lambda: Gru(9, 3, 4),
    "deep": lambda: Gru(9, 3, 4, num_layers=3),
    "deeper": lambda: Gru(9, 3, 4, num_layers=3, residual=True, norm=True),
    "rotary": lambda: Transformer(9, 4, 2, 5, window=2, dropout=0.0, causal=True),
    "sinusoidal": lambda: Transformer(9, 4, 2, 5, 3, 2, 0.0, "sinusoidal", causal=True),
}
CUTTERS = {"every": Every, "fixed 2": lambda: Fixed(2), "fixed 2.5": lambda: Fixed(2.5), "given": Given}
POOLINGS = {"mean": Mean, "weighted": Weighted, "last": Last, "start": Start, "max": Max}
POOLINGS |= {"attention": lambda: Attention(4, 3)}


def layer(reader: str, cutter: str, pooling: str) -> Segmenter:
    torch.manual_seed(0)
    parts: tuple[Reader, Cutter, Pooling] = READERS[reader](), CUTTERS[cutter](), POOLINGS[pooling]()
    return Segmenter(*parts, output_dim=3).double()


@settings(max_examples=45)
@given(
    st.sampled_from(sorted(READERS)),
    st.sampled_from(sorted(CUTTERS)),
    st.sampled_from(sorted(POOLINGS)),
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 99),
)
def test_pieces_are_the_whole(
    reader: str, cutter: str, pooling: str, sizes: list[list[int]], marked: bool, seed: int
) -> None:
    """`sizes`: for each piece, how many symbols each of three sentences has in it."""
    segmenter, generator = layer(reader, cutter, pooling), torch.Generator().manual_seed(seed)
    sizes = [*sizes, [1, 2, 1]]  # the last one has </s>
    lengths = torch.tensor(sizes).sum(0)
    symbols = torch.randint(9, (3, int(lengths.max())), generator=generator)
    marks = torch.randint(-1, 2, symbols.shape, generator=generator).to(torch.int8)
    cuts = marks if marked or cutter == "given" else None
    whole = segmenter(symbols, lengths, given=cuts)
    parts: list[list[torch.Tensor]] = [[], [], []]
    state, at = None, torch.zeros(3, dtype=torch.long)
    for number, piece in enumerate(map(torch.tensor, sizes)):
        places = (at[:, None] + torch.arange(int(piece.max()))).clamp(max=symbols.shape[1] - 1)
        chosen = None if cuts is None else cuts.gather(1, places)
        final = number == len(sizes) - 1
        part = segmenter(symbols.gather(1, places), piece, state, final, chosen)
        for b, count in enumerate(part.lengths.tolist()):
            parts[b] += [*part.vectors[b, :count]]
        state, at = part.state, at + piece
    assert state is None
    for b, count in enumerate(whole.lengths.tolist()):
        assert len(parts[b]) == count
        close(torch.stack(parts[b]), whole.vectors[b, :count], 1e-12)


@pytest.mark.parametrize("reader", ["gru", "rotary"])
def test_gradients_pass_from_piece_to_piece(reader: str) -> None:
    segmenter, symbols = layer(reader, "fixed 2.5", "mean"), torch.randint(9, (2, 9))
    bounds, expected = (0, 2, 3, 7, 9), {}
    segmenter(symbols, [9, 9]).vectors.square().sum().backward()
    for name, parameter in segmenter.named_parameters():
        expected[name], parameter.grad = parameter.grad, None
    state, total = None, torch.zeros(())
    for a, b in pairwise(bounds):
        part = segmenter(symbols[:, a:b], [b - a] * 2, state, final=b == 9)
        state, total = part.state, total + part.vectors.square().sum()
    total.backward()
    for name, parameter in segmenter.named_parameters():
        close(parameter.grad, expected[name], 1e-12, name)


@pytest.mark.parametrize("kind", ["parts", "act", "hmrnn"])
def test_a_state_of_something_else_is_refused(kind: str) -> None:
    made = {"act": lambda: ActSegmenter(9, 4, 5, 3), "hmrnn": lambda: HmrnnSegmenter(9, 4, 5, 3)}
    segmenter = made.get(kind, lambda: layer("gru", "every", "mean"))()
    symbols = torch.zeros(2, 3, dtype=torch.long)
    state = segmenter(symbols, [3, 3], final=False).state
    with refuses(TypeError, "state "):
        segmenter(symbols, [3, 3], state=object())
    for rows in (1, 3):
        with refuses(ValueError, "state "):
            segmenter(symbols[:1].expand(rows, -1), [3] * rows, state=state)
    with refuses(ValueError):
        segmenter(symbols, [3, 0], state=state)
