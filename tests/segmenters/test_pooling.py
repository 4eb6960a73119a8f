"""Each pooling against a loop, and its gradient."""

from __future__ import annotations

import pytest
import torch
from helpers import close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caesura.segmenters.base import Cuts
from caesura.segmenters.parts import Pooling
from caesura.segmenters.pooling import Attention, Last, Max, Mean, Start, Weighted
from caesura.segmenters.spans import before, even_weights, first_and_last, slots, totals

torch.manual_seed(0)
EACH = {
    "mean": Mean(),
    "weighted": Weighted(),
    "last": Last(),
    "start": Start(),
    "max": Max(),
    "attention": Attention(3, 4).double(),
}
every_pooling = pytest.mark.parametrize("pooling", EACH.values(), ids=EACH.keys())
rows_of_ends = st.lists(st.lists(st.booleans(), max_size=8), min_size=1, max_size=4)


def problem(rows: list[list[bool]], seed: int, spilling: bool) -> tuple[Tensor, Cuts, list[int]]:
    """Random states [B, T, 3] and weights for sentences whose last symbol, after `rows`, ends a segment."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [len(row) + 1 for row in rows]
    shape = len(rows), max(lengths) + seed % 2
    ends, mask = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for b, row in enumerate(rows):
        ends[b, : len(row) + 1] = torch.tensor([*row, True])
        mask[b, : len(row) + 1] = True
    states = torch.randn(*shape, 3, generator=generator, dtype=torch.float64) * mask[..., None]
    weights, spill = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    last = torch.arange(shape[1]) == torch.tensor(lengths)[:, None] - 1
    size = int(ends.sum(1).max())
    cuts = Cuts(ends, weights * mask, size, spill * (ends & ~last) if spilling else None)
    return states, cuts, lengths


def loop(pooling: Pooling, states: Tensor, cuts: Cuts, n: int) -> Tensor:
    """One sentence, symbol by symbol: states [T, D], one row of the cuts."""
    zero, pooled, members = torch.zeros_like(states[0]), [], []
    total = zero
    for t in range(n):
        members.append(states[t])
        total = total + cuts.weights[t] * states[t]
        if cuts.ends[t]:
            segment = torch.stack(members)
            kinds = {Mean: segment.mean(0), Weighted: total, Last: states[t], Start: segment[0]}
            kinds |= {Max: segment.max(0).values, Attention: attended(pooling, members)}
            pooled.append(kinds[type(pooling)])
            total = zero if cuts.spill is None else cuts.spill[t] * states[t]
            members = []
    return torch.stack(pooled)


def attended(pooling: Pooling, members: list[Tensor]) -> Tensor | None:
    """sum of e exp(v . tanh(W e + b)) over the sum of exp(v . tanh(W e + b))."""
    if not isinstance(pooling, Attention):
        return None
    W, b, v = pooling.project.weight, pooling.project.bias, pooling.query.weight[0]
    given = [torch.exp(v @ torch.tanh(W @ state + b)) for state in members]
    return sum(share * state for share, state in zip(given, members, strict=True)) / sum(given)


@every_pooling
@settings(max_examples=10)
@given(rows_of_ends, st.integers(0, 99), st.booleans())
def test_it_is_its_loop(pooling: Pooling, rows: list[list[bool]], seed: int, spilling: bool) -> None:
    states, cuts, lengths = problem(rows, seed, spilling)
    for size in (int(cuts.segments), int(cuts.segments) + 2):
        vectors = pooling(states, cuts, size)
        assert vectors.shape == (len(rows), size, 3)
        assert vectors.isfinite().all()
        for b, n in enumerate(lengths):
            spill = None if cuts.spill is None else cuts.spill[b]
            expected = loop(pooling, states[b], Cuts(cuts.ends[b], cuts.weights[b], 0, spill), n)
            close(vectors[b, : len(expected)], expected, 1e-12)


@every_pooling
def test_the_gradient_is_the_slope(pooling: Pooling) -> None:
    states, cuts, _ = problem([[False, True, False], [False] * 2, []], 2, spilling=True)
    assert cuts.spill is not None

    def pooled(states: Tensor, weights: Tensor, spill: Tensor) -> Tensor:
        return pooling(states, Cuts(cuts.ends, weights, cuts.segments, spill), int(cuts.segments))

    leaves = [states.requires_grad_()]
    assert pooling.uses_weights == isinstance(pooling, Weighted)
    if pooling.uses_weights:
        leaves += [cuts.weights.requires_grad_(), cuts.spill.requires_grad_()]
    assert torch.autograd.gradcheck(
        lambda *tensors: pooled(*tensors, *(cuts.weights, cuts.spill)[len(tensors) - 1 :]), leaves
    )


def test_a_weight_of_exactly_nothing_has_a_gradient() -> None:
    states = torch.tensor([[[1.0], [2.0], [4.0]]])
    weights, spill = torch.tensor([[1.0, 0.0, 1.0]]).requires_grad_(), torch.zeros(1, 3).requires_grad_()
    ends = torch.tensor([[True, False, True]])
    vectors = Weighted()(states, Cuts(ends, weights, 2, spill), 2)
    of_weights, of_spill = torch.autograd.grad(
        (vectors * torch.tensor([[[1.0], [10.0]]])).sum(), (weights, spill)
    )
    assert of_weights.tolist() == [[1.0, 20.0, 40.0]]
    assert of_spill[0, 0] == 10.0


@given(rows_of_ends, st.integers(0, 99))
def test_sums_over_segments_are_their_loops(rows: list[list[bool]], seed: int) -> None:
    states, cuts, lengths = problem(rows, seed, spilling=False)
    values, mask = states[..., 0], cuts.weights > 0
    first, last = first_and_last(cuts.ends)
    for b, n in enumerate(lengths):
        begin = 0
        for t in range(n):
            end = next(u for u in range(t, n) if cuts.ends[b, u])
            assert int(slots(cuts.ends)[b, t]) == int(cuts.ends[b, :t].sum())
            assert (int(first[b, t]), int(last[b, t])) == (begin, end)
            close(before(cuts.ends, values)[b, t], values[b, begin:t].sum(), 1e-12)
            close(totals(cuts.ends, values)[b, t], values[b, begin : end + 1].sum(), 1e-12)
            assert float(even_weights(cuts.ends, mask, torch.float64)[b, t]) == 1 / (end - begin + 1)
            begin = end + 1 if t == end else begin


def test_bfloat16_states_are_weighed_in_float32() -> None:
    states, cuts, _ = problem([[False, True, False]], 0, spilling=True)
    vectors = Weighted()(states.bfloat16(), cuts, int(cuts.segments))
    assert vectors.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        again = Weighted()(states.bfloat16().float(), cuts, int(cuts.segments))
    close(again, vectors, 1e-6)


def test_the_gradient_of_attention_in_its_weights_is_the_slope() -> None:
    states, cuts, _ = problem([[False, True, False], [False] * 2, []], 2, spilling=False)
    pooling = Attention(3, 2).double()
    names, values = zip(
        *((n, p.detach().requires_grad_()) for n, p in pooling.named_parameters()), strict=True
    )

    def pooled(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(pooling, named, (states, cuts, int(cuts.segments)))

    assert torch.autograd.gradcheck(pooled, values)


@every_pooling
def test_padding_has_no_gradient(pooling: Pooling) -> None:
    states, cuts, lengths = problem([[False, True, False], [True], []], 1, spilling=False)
    vectors = pooling(states.requires_grad_(), cuts, int(cuts.segments))
    total = sum(vectors[b, : int(count)].square().sum() for b, count in enumerate(cuts.ends.sum(1)))
    (gradient,) = torch.autograd.grad(total, states)
    for b, n in enumerate(lengths):
        assert gradient[b, :n].any()
        assert not gradient[b, n:].any()


def test_equal_largest_values_share_the_gradient() -> None:
    states = torch.tensor([[[0.0], [0.0], [-1.0], [-2.0], [0.0]]]).requires_grad_()  # the last is padding
    ends = torch.tensor([[False, True, False, True, False]])
    vectors = Max()(states, Cuts(ends, torch.ones(1, 5), 2), 3)
    assert vectors.tolist() == [[[0.0], [-1.0], [0.0]]]
    vectors[:, :2].sum().backward()
    assert states.grad is not None
    assert states.grad.flatten().tolist() == [0.5, 0.5, 1.0, 0.0, 0.0]
