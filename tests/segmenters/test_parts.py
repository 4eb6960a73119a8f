"""What holds of every reader, cutter and pooling that go together."""

from __future__ import annotations

import pytest
import torch
from combinations import COMBINATIONS, LEARNING, LENGTH, NAMES, VOCABULARY, cuts_for, made, run
from helpers import check_slope, close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caesura.kernels import VARIABLE
from caesura.segmenters.base import Cuts, Segments
from caesura.segmenters.cutters.hard import Fixed
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Mean
from caesura.segmenters.readers.lookup import Lookup

every_combination = pytest.mark.parametrize("parts", COMBINATIONS, ids=NAMES)


def assert_same(segments: Segments, b: int, expected: Segments, tolerance: float = 1e-12) -> None:
    """Row b of `found` is the only row of `wanted`."""
    n, count = expected.ends.shape[1], int(expected.lengths[0])
    assert segments.ends[b, :n].equal(expected.ends[0])
    assert int(segments.lengths[b]) == count
    close(segments.vectors[b, :count], expected.vectors[0, :count], tolerance, "vectors")
    for name in ("weights", "spill", "scores", "live"):
        whole, single = getattr(segments, name), getattr(expected, name)
        assert (whole is None) == (single is None), name
        if whole is not None:
            close(whole[b, :n].double(), single[0].double(), tolerance, name)
            assert name == "scores" or not whole[b, n:].any(), name
    assert segments.cuts.losses.keys() == expected.cuts.losses.keys()
    for name, loss in segments.cuts.losses.items():
        close(loss[b], expected.cuts.losses[name][0], tolerance, name)


@pytest.mark.parametrize(
    ("parts", "choice"),
    [
        *((parts, "fused") for parts in COMBINATIONS),
        *((parts, "reference") for parts in COMBINATIONS if "gru" in parts[0] and parts[2] == "weighted"),
    ],
)
def test_batch_mates_padding_and_what_stands_in_it_do_not_matter(
    parts: tuple[str, str, str], choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    segmenter, lengths = made(*parts), [7, 1, 0, 12, 2, 3]
    symbols, sizes = ragged(lengths, VOCABULARY - 1, torch.Generator().manual_seed(1))
    wider = torch.cat((symbols, symbols[:, :3]), 1)
    beyond = torch.arange(wider.shape[1]) >= sizes[:, None]
    alone = [run(segmenter, symbols[b : b + 1, :n], sizes[b : b + 1]) for b, n in enumerate(lengths)]
    for poison in (0.0, torch.nan, torch.inf):
        with torch.no_grad():  # the last symbol is in no sentence
            segmenter.reader.embedding.weight[VOCABULARY - 1] = poison
        segmenter.zero_grad()
        segments = run(segmenter, wider.masked_fill(beyond, VOCABULARY - 1), sizes)
        for b, single in enumerate(alone):
            assert_same(segments, b, single)
        (segments.vectors.square().sum() + segments.penalty.sum()).backward()
        for name, parameter in segmenter.named_parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all(), name


@every_combination
@settings(max_examples=8)
@given(st.lists(st.integers(0, 9), max_size=4), st.integers(0, 2), st.integers(0, 99))
def test_segments_are_as_promised(
    parts: tuple[str, str, str], lengths: list[int], padding: int, seed: int
) -> None:
    segmenter = made(*parts, seed=seed)
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    symbols = torch.cat((symbols, symbols.new_ones(len(lengths), padding)), 1)
    segments = run(segmenter, symbols, sizes)
    assert segments.ends.dtype == torch.bool
    assert segments.vectors.shape[::2] == (len(lengths), 3)
    assert segments.lengths.equal(segments.ends.sum(1))
    assert segments.vectors.shape[1] >= max(segments.lengths.tolist(), default=0)
    for b, n in enumerate(lengths):
        assert not segments.ends[b, n:].any()
        assert not segments.weights[b, n:].any()
        assert not segments.vectors[b, segments.lengths[b] :].any()
        assert segments.vectors[b, : segments.lengths[b]].any(1).all()
        if n:
            assert segments.ends[b, n - 1]  # </s> closes the last segment
        if n > 1:
            assert not segments.ends[b, n - 2]  # and is never alone
    for tensor in (segments.spill, segments.live):
        assert tensor is None or not tensor[torch.arange(symbols.shape[1]) >= sizes[:, None]].any()


@every_combination
def test_sentences_of_nothing_but_their_end_are_one_segment(parts: tuple[str, str, str]) -> None:
    segmenter = made(*parts)
    segments = run(segmenter, torch.tensor([[4], [5]]), torch.tensor([1, 1]))
    assert segments.lengths.tolist() == [1, 1]
    assert segments.ends.tolist() == [[True], [True]]
    assert segments.weights.tolist() == [[1.0], [1.0]]
    states = segmenter.reader(torch.tensor([[4], [5]]), torch.tensor([1, 1]))
    close(segments.vectors, segmenter.output(states))


@every_combination
def test_a_batch_may_be_empty(parts: tuple[str, str, str]) -> None:
    segmenter = made(*parts)
    for shape in ((0, 0), (0, 3), (2, 0)):
        symbols, lengths = torch.zeros(shape, dtype=torch.long), torch.zeros(shape[0], dtype=torch.long)
        segments = run(segmenter, symbols, lengths)
        assert segments.vectors.shape[::2] == (shape[0], 3)
        assert not segments.vectors.any()
        assert segments.ends.shape == segments.weights.shape == shape
        assert segments.lengths.tolist() == [0] * shape[0]


@pytest.mark.parametrize("parts", [p for p in COMBINATIONS if p[0] == "lookup" and p[2] == "weighted"])
def test_room_is_the_most_segments_of_a_length(parts: tuple[str, str, str]) -> None:
    segmenter = made(*parts)
    symbols = torch.randint(VOCABULARY, (40, 14), generator=torch.Generator().manual_seed(0))
    for size in range(1, 15):
        lengths = torch.arange(40) % size + 1
        room = segmenter.room(size)
        segments = run(segmenter, symbols[:, :size], lengths)
        assert (room is None) == (parts[1] in ("act", "carry", "given", "bernoulli"))
        if room is not None:
            assert int(segments.lengths.max()) == room
            assert segments.vectors.shape[1] == room
            assert isinstance(segments.cuts.segments, int)
        else:
            assert int(segments.cuts.segments) == int(segments.lengths.max()) == segments.vectors.shape[1]


@pytest.mark.parametrize("parts", [p for p in COMBINATIONS if p[0] == "lookup" and p[1] in LEARNING])
@pytest.mark.parametrize("cut", [False, True], ids=["free", "given"])
def test_the_gradient_of_the_whole_is_the_slope(parts: tuple[str, str, str], cut: bool) -> None:
    segmenter = made(*parts, seed=2)
    symbols, lengths = torch.tensor([[5, 3, 1, 4, 2, 7, 0], [8, 9, 6, 0, 0, 0, 0]]), torch.tensor([7, 4])
    cuts = torch.tensor([[0, 1, -1, -1, 0, 0, 0], [0] * 7], dtype=torch.int8) if cut else None
    names, values = zip(
        *((n, p.detach().requires_grad_()) for n, p in segmenter.named_parameters()), strict=True
    )
    assert int(segmenter(symbols, lengths, given=cuts).lengths[0]) > 1

    def vectors(*parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = dict(zip(names, parameters, strict=True))
        out = torch.func.functional_call(segmenter, weights, (symbols, lengths), {"given": cuts})
        return out.vectors, out.penalty, out.weights

    check_slope(vectors, values)


def test_a_layer_without_an_output_size_has_its_readers() -> None:
    segmenter = made("bigru", "fixed", "mean", output_dim=None)
    assert segmenter.output_dim == segmenter.reader.output_dim == 4
    symbols = torch.tensor([[1, 2, 3, 4, 5]])
    states = segmenter.reader(symbols, torch.tensor([5]))
    segments = segmenter(symbols, torch.tensor([5]))
    assert [int(t) for t in segments.ends[0].nonzero()] == [2, 4]
    assert LENGTH == 2.5
    close(segments.vectors[0], torch.stack((states[0, :3].mean(0), states[0, 3:].mean(0))))


def test_cuts_given_to_a_row_do_not_change_the_others() -> None:
    for parts in COMBINATIONS[:18]:
        segmenter = made(*parts)
        symbols, lengths = ragged([7, 5], VOCABULARY, torch.Generator().manual_seed(0))
        cuts = cuts_for(segmenter, symbols)
        free = segmenter(symbols, lengths, given=cuts)
        cuts = torch.zeros_like(symbols, dtype=torch.int8) if cuts is None else cuts
        cuts[1, 1] = 1
        segments = segmenter(symbols, lengths, given=cuts)
        count = int(free.lengths[0])
        assert segments.ends[1, 1]
        assert segments.ends[0].equal(free.ends[0])
        close(segments.vectors[0, :count], free.vectors[0, :count], 1e-12)


class Changing(Fixed):
    """Pools twice the states, and takes one from what comes out."""

    def blend(self, states: Tensor, cuts: Cuts) -> Tensor:
        return 2 * states

    def finish(self, vectors: Tensor, cuts: Cuts) -> Tensor:
        return vectors - 1


def test_a_cutter_may_change_what_is_pooled_and_what_comes_out() -> None:
    torch.manual_seed(0)
    plain = Segmenter(Lookup(9, 4), Fixed(2), Mean(), output_dim=3).double()
    changing = Segmenter(plain.reader, Changing(2), Mean(), output_dim=3)
    changing.output = plain.output
    symbols, lengths = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]]), torch.tensor([5, 2])
    segments, pooled = changing(symbols, lengths), plain.pooling(*_inputs(plain, symbols, lengths))
    close(segments.vectors[0], plain.output(2 * pooled[0] - 1), 1e-12)
    assert not segments.vectors[1, 1:].any()


def _inputs(segmenter: Segmenter, symbols: Tensor, lengths: Tensor) -> tuple[Tensor, Cuts, int]:
    """What its pooling gets."""
    segments = segmenter(symbols, lengths)
    return segmenter.reader(symbols, lengths), segments.cuts, segments.vectors.shape[1]
