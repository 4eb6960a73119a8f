"""ACT with carry against its formula, and the search for the ends of ACT against a loop."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from combinations import VOCABULARY, made
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.kernels.cif import accumulate
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Weighted
from caesura.segmenters.rate import Kind, Rate
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.spans import summed_ends

some_cuts = st.lists(
    st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=1, max_size=12), min_size=1, max_size=3
)


def layer(bias: float, seed: int, scale: float = 2.0) -> Segmenter:
    torch.manual_seed(seed)
    cutter = Act(4, halting_bias=bias, carry=True)
    segmenter = Segmenter(Lookup(VOCABULARY, 4), cutter, Weighted()).double()
    with torch.no_grad():
        cutter.halting.weight.mul_(scale)
    return segmenter


@settings(max_examples=50)
@given(some_cuts, st.floats(-4, 4), st.booleans(), st.integers(0, 99))
def test_carry_is_its_loop(rows: list[list[int]], bias: float, free: bool, seed: int) -> None:
    segmenter = layer(bias, seed)
    lengths = [len(row) for row in rows]
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = torch.ones(symbols.shape, dtype=torch.int8)
    for b, row in enumerate(rows):
        cuts[b, : len(row)] = torch.tensor(row)
    with torch.no_grad():
        segments = segmenter(symbols, sizes, given=None if free else cuts)
        states = segmenter.reader(symbols, sizes)
        h = torch.sigmoid(segmenter.cutter.halting(states)).squeeze(2).tolist()  # type: ignore[operator, union-attr]
    assert segments.spill is not None
    for b, row in enumerate(rows):
        n = len(row)
        hard = not free and any(row[: n - 2])  # at </s>, and in front of it, nothing can be given
        vectors, k, c = [torch.zeros(4, dtype=torch.float64)], 0, 0.0
        begin, ends = 0, []
        for t in range(n - 1):
            before, c = c, c + h[b][t]
            crossed = c >= k + 1 and t < n - 2
            k += c >= k + 1
            end = t < n - 2 and ((crossed and row[t] >= 0) or row[t] > 0) if hard else crossed
            ends.append(end)
            if hard:
                if end or t == n - 2:
                    share = torch.tensor(h[b][begin : t + 1], dtype=torch.float64)
                    share = share / share.sum()
                    close(segments.weights[b, begin : t + 1], share, 1e-12)
                    vectors[-1] = (share[:, None] * states[b, begin : t + 1]).sum(0)
                    begin = t + 1
                spill = 0.0
            else:
                spill = c - k if crossed else 0.0  # what [c_{t-1}, c_t] and [k, k + 1] have in common
                assert float(segments.weights[b, t]) == pytest.approx(c - before - spill, abs=1e-12)
                vectors[-1] = vectors[-1] + (h[b][t] - spill) * states[b, t]
            assert float(segments.spill[b, t]) == pytest.approx(spill, abs=1e-12)
            if end:
                vectors.append(spill * states[b, t])
        assert segments.ends[b, :n].tolist() == [*ends, True]
        if n == 1:  # </s> alone
            vectors = [states[b, 0]]
        close(segments.vectors[b, : len(vectors)], torch.stack(vectors), 1e-11)
        assert float(segments.penalty[b]) == pytest.approx((1 - sum(h[b][: n - 1])) / n, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2, 3, 7, 10, 33])
def test_equal_scores_cut_evenly_whatever_is_rounded(k: int, dtype: torch.dtype) -> None:
    for share in (1 / k, torch.tensor(1 / k).item()):
        a = torch.full((1, 10 * k + 1), share, dtype=dtype).double()
        cuts = accumulate(a, torch.tensor([a.shape[1]]))
        assert cuts.ends[0].nonzero().squeeze(1).tolist() == [*range(k - 1, 10 * k, k)]
        assert cuts.spill.max() < 1e-5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_nothing_is_lost_and_no_symbol_ends_two_segments(scores: list[float]) -> None:
    a = torch.tensor([scores], dtype=torch.float64)
    cuts = accumulate(a, torch.tensor([len(scores)]))
    close(cuts.weights + cuts.spill, a, 1e-15)
    assert (cuts.weights >= 0).all()
    assert (cuts.spill >= 0).all()
    inner = math.floor(math.fsum(scores[:-1]) + 1e-6)  # the last symbol ends none
    assert abs(int(cuts.ends.sum()) - inner) <= (abs(math.fsum(scores[:-1]) + 1e-6 - inner) < 1e-9)
    sums = [cuts.weights[0, t].item() for t in range(len(scores))]
    for t, end in enumerate(cuts.ends[0].tolist()):
        if end and t + 1 < len(scores):
            sums[t + 1] += cuts.spill[0, t].item()
    begins = [0, *(t + 1 for t, end in enumerate(cuts.ends[0].tolist()) if end)]
    for begin, stop in pairwise(begins):
        assert sum(sums[begin:stop]) == pytest.approx(1, abs=1e-5)


def test_vectors_are_continuous_where_a_boundary_moves() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(5, 3, generator=generator, dtype=torch.float64)

    def vectors(step: float) -> tuple[list[bool], torch.Tensor]:
        a = torch.tensor([[0.6, 0.4 + step, 0.7 - step, 0.5, 0.2]], dtype=torch.float64)
        cuts = accumulate(a, torch.tensor([5]))
        w, k = torch.zeros(5, 3, dtype=torch.float64), 0
        for t, end in enumerate(cuts.ends[0].tolist()):
            w[t, k] = cuts.weights[0, t]
            k += end
            w[t, k] += cuts.spill[0, t]
        return cuts.ends[0].tolist(), w.t() @ states

    one, other = vectors(-1e-5), vectors(1e-5)
    assert one[0] != other[0]
    assert (one[1] - other[1]).abs().max() < 1e-4


def test_a_higher_tau_shortens_segments() -> None:
    segmenter = made("lookup", "carry", "weighted")
    symbols, lengths = ragged([9, 5], VOCABULARY, torch.Generator().manual_seed(0))
    shift = torch.zeros(symbols.shape, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(segmenter.shifted(symbols, lengths, shift).penalty.sum(), shift)
    text = torch.arange(9) < (lengths - 1)[:, None]
    assert (slope < 0).equal(text)  # a step against the gradient raises every score


def test_with_carry_an_epsilon_has_no_meaning() -> None:
    with refuses(ValueError, "epsilon ", 0.3, "carry"):
        Act(4, epsilon=0.3, carry=True)
    assert "carry=True" in repr(Act(4, carry=True))
    assert Act(4, carry=True).sums_to == 1.0
    assert Act(4, carry=True).carries
    assert {figure.name for figure in Act(4, carry=True).figures} == {"live", "penalty", "spill"}
    assert Act(4, carry=True).remark(1.0, 30.0, first=False) is None


@pytest.mark.parametrize("target", [2.0, 3.0, 6.0])
@pytest.mark.parametrize("by", ["pi", "quantile"])
def test_segments_start_near_the_target_and_a_threshold_keeps_it(by: Kind, target: float) -> None:
    torch.manual_seed(0)
    cutter = Act(6, carry=True)
    segmenter = Segmenter(Lookup(VOCABULARY, 6), cutter, Weighted(), rate=Rate(target, by)).eval()
    cutter.halting.weight.data.mul_(0.1)
    symbols, lengths = ragged([61] * 50, VOCABULARY, torch.Generator().manual_seed(0))
    segmenter.settle([(symbols, lengths, None)])
    segments = segmenter(symbols, lengths)
    mean = 60 * 50 / int(segments.lengths.sum())
    assert mean == pytest.approx(target, rel=0.12 if by == "pi" else 0.01)


@given(some_cuts, st.floats(0.3, 3.0), st.integers(0, 99))
def test_ends_by_doubling_are_those_of_a_loop(rows: list[list[int]], enough: float, seed: int) -> None:
    width = max(map(len, rows)) + 1
    marks = torch.tensor([row + [-1] * (width - len(row)) for row in rows])
    values = torch.rand(marks.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ends = summed_ends(values, enough, marks > 0, marks < 0)
    for b, row in enumerate(marks.tolist()):
        total = 0.0
        for t, mark in enumerate(row):
            total += values[b, t].item()
            end = mark > 0 or (mark == 0 and total >= enough)
            assert bool(ends[b, t]) == end
            total = 0.0 if end else total
    assert summed_ends(values[:, :0], enough, marks[:, :0] > 0, marks[:, :0] < 0).shape == (len(rows), 0)
