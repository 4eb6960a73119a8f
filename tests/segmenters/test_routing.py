"""Routing against a loop from its formulas, every gradient included; rates, starts and extremes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from combinations import ROUTING, VOCABULARY, check_gradients_alone, made
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.segmenters.base import Segments
from caesura.segmenters.cutters.routing import BOUND, Routing, smoothed
from caesura.segmenters.parts import Gaps, Reading, Segmenter
from caesura.segmenters.pooling import Mean, Start
from caesura.segmenters.rate import CutCount, Kind, Rate, count_cuts
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.readers.recurrent import BiGru

KINDS = ("ratio", "logits", "quantile")
some_cuts = st.lists(st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=1, max_size=9), min_size=1, max_size=3)


def running(values: list[Tensor], shares: list[Tensor]) -> list[Tensor]:
    """m_n = P_n x_n + (1 - P_n) m_{n-1}, one after the other; the first is as it is."""
    results = values[:1]
    for value, share in zip(values[1:], shares[1:], strict=True):
        results.append(share * value + (1 - share) * results[-1])
    return results


def loop(segmenter: Segmenter, symbols: Tensor, cuts: list[int]) -> tuple[list[bool], Tensor]:
    """Ends and vectors of one sentence [T] from H-Net's equations, with mean pooling."""
    cutter, n = segmenter.cutter, len(symbols)
    states = [*segmenter.reader(symbols[None], torch.tensor([n]))[0]]
    p = [torch.ones((), dtype=torch.float64)]  # of the gap before each symbol
    for before, state in pairwise(states):
        q, k = cutter.query.weight @ before, cutter.key.weight @ state
        p.append(((1 - q @ k / (q.norm() * k.norm())) / 2).clamp(1e-4, 1 - 1e-4))
    if cutter.smoothing == "character":
        states = running(states, p)
    ends, members, opening, vectors, shares = [], [], p[0], [], []
    for t in range(n):
        members.append(states[t])
        free = t < n - 2  # </s> closes the last segment, and is never alone
        ends.append(t == n - 1 or (free and cuts[t] >= 0 and (cuts[t] > 0 or bool(p[t + 1] > 0.5))))
        if ends[-1]:
            vectors.append(torch.stack(members).mean(0))
            shares.append(opening)
            members, opening = [], p[min(t + 1, n - 1)]
    if cutter.smoothing == "segment":
        vectors = running(vectors, shares)
    reaching = [c + (1 - c).detach() for c in shares]
    return ends, segmenter.output(torch.stack([c * z for c, z in zip(reaching, vectors, strict=True)]))


@pytest.mark.parametrize("cutter", ROUTING)
@settings(max_examples=8)
@given(some_cuts, st.booleans(), st.integers(0, 99))
def test_it_is_its_loop_with_every_gradient(
    cutter: str, rows: list[list[int]], free: bool, seed: int
) -> None:
    segmenter = made("gru", cutter, "mean", seed)
    symbols, lengths = ragged([len(row) for row in rows], VOCABULARY, torch.Generator().manual_seed(seed))
    marks = torch.zeros_like(symbols, dtype=torch.int8)
    for b, row in enumerate(rows):
        marks[b, : len(row)] = torch.tensor(row)
    segments = segmenter(symbols, lengths, given=None if free else marks)
    total, wanted_total = segments.vectors.new_zeros(()), segments.vectors.new_zeros(())
    for b, row in enumerate(rows):
        ends, expected = loop(segmenter, symbols[b, : len(row)], [0] * len(row) if free else row)
        assert segments.ends[b, : len(row)].tolist() == ends
        close(segments.vectors[b, : len(expected)], expected, 1e-12)
        probe = torch.randn(expected.shape, generator=torch.Generator().manual_seed(b), dtype=torch.float64)
        total = total + (segments.vectors[b, : len(expected)] * probe).sum()
        wanted_total = wanted_total + (expected * probe).sum()
    names, parameters = zip(*segmenter.named_parameters(), strict=True)
    gradients = [
        torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        for loss in (total, wanted_total)
    ]
    for name, one, other in zip(names, *gradients, strict=True):
        close(one, other, 1e-12 * max(1.0, float(other.abs().max())), name)


@settings(max_examples=25)
@given(st.integers(0, 12), st.floats(0, 9), st.integers(0, 99))
def test_smoothing_is_its_loop(size: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, size, 3, generator=generator, dtype=torch.float64)
    logits = spread * (2 * torch.rand(2, size, generator=generator, dtype=torch.float64) - 1)
    result = smoothed(values, logits)
    for b in range(2):
        expected = running([*values[b]], [*torch.sigmoid(logits[b])])
        close(result[b], torch.stack(expected) if expected else values[b], 1e-12)


def test_the_gradients_of_smoothing_and_of_scores_are_their_slopes() -> None:
    generator = torch.Generator().manual_seed(0)
    values, states = (torch.randn(2, 4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    logits = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(smoothed, (values.requires_grad_(), logits.requires_grad_()))
    cutter, lengths = Routing(3).double(), torch.tensor([4, 3])
    mask = torch.arange(4) < lengths[:, None]
    leaves = [states.requires_grad_(), cutter.query.weight, cutter.key.weight]

    def scores(states: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
        reading = Reading(states, torch.zeros(2, 4, dtype=torch.long), lengths, mask)
        weights = {"query.weight": query, "key.weight": key}
        cuts = torch.func.functional_call(cutter, weights, (reading, Gaps.of(lengths, mask, None)))
        return cuts.scores, cuts.logits

    assert torch.autograd.gradcheck(scores, [leaf.detach().requires_grad_() for leaf in leaves])


def test_long_sentences_are_smoothed_in_float32_as_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1, 600, 2, generator=generator, dtype=torch.float64)
    logits = (4 * torch.randn(1, 600, generator=generator, dtype=torch.float64)).clamp(-BOUND, BOUND)
    close(smoothed(values.float(), logits.float()).double(), smoothed(values, logits), 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        close(smoothed(values.float(), logits.float()).double(), smoothed(values, logits), 1e-5)
    assert smoothed(values.bfloat16(), logits.float()).dtype == torch.bfloat16


@pytest.mark.parametrize("size", [8, 64])
def test_a_fresh_model_cuts_about_half_of_the_gaps(size: int) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        segmenter = Segmenter(BiGru(30, 32, size), Routing(2 * size), Start())
        symbols, lengths = torch.randint(30, (20, 60)), torch.full((20,), 60)
        count = count_cuts(segmenter(symbols, lengths).ends, lengths)
        assert 1.3 < float(count.characters / count.segments) < 4
        for projection in (segmenter.cutter.query, segmenter.cutter.key):
            projection.weight.data = torch.eye(2 * size)  # as H-Net starts
        assert count_cuts(segmenter(symbols, lengths).ends, lengths).segments < 0.1 * count.characters


def routed(states: list[list[float]], smoothing: str = "segment") -> tuple[Segments, Tensor]:
    """The segments of a sentence with these states, W_q = W_k = 1, and the table that gradients reach."""
    cutter = Routing(2, smoothing)  # type: ignore[arg-type]
    cutter.query.weight.data = cutter.key.weight.data = torch.eye(2)
    segmenter = Segmenter(Lookup(len(states), 2), cutter, Mean())
    segmenter.reader.embedding.weight.data = torch.tensor(states, dtype=torch.float32)
    symbols = torch.arange(len(states))[None]
    return segmenter(symbols, [len(states)]), segmenter.reader.embedding.weight


@pytest.mark.parametrize("smoothing", ["segment", "character", "none"])
def test_states_that_are_equal_opposite_or_nothing(smoothing: str) -> None:
    segments, table = routed([[1, 0], [1, 0], [-2, 0], [0, 3], [0, 0], [0, 1], [1, 0]], smoothing)
    assert segments.scores is not None
    close(segments.scores[0].detach(), torch.tensor([1e-4, 1 - 1e-4, 0.5, 0.5, 0.5, 0.5, 0.0]), 1e-6)
    assert segments.ends[0].tolist() == [False, True, False, False, False, False, True]
    (gradient,) = torch.autograd.grad(segments.vectors.square().sum(), table)
    assert gradient.isfinite().all()


def test_a_gap_belongs_to_the_symbol_before_it() -> None:
    segments, _ = routed([[1, 0], [1, 0.1], [-1, 0.1], [-1, 0], [-1, 0]], "none")
    assert segments.ends[0].tolist() == [False, True, False, False, True]
    close(segments.vectors[0].detach(), torch.tensor([[1, 0.05], [-1, 0.1 / 3]]), 1e-6)


def kept(by: Kind | None, target: float = 3.0, seed: int = 0) -> Segmenter:
    torch.manual_seed(seed)
    rate = Rate(target, by)
    return Segmenter(BiGru(VOCABULARY, 6, 4), Routing(8), Start(), rate=rate).double()


def test_the_usual_rate_is_kept_by_quantile_and_the_ratio_loss_has_weight_1() -> None:
    assert kept(None).control.by == "quantile"
    segmenter = kept("ratio")
    assert segmenter.control is not None
    assert float(segmenter.loss_weights["rate"].value) == 1.0  # type: ignore[union-attr]
    with refuses(ValueError, "by ratio ", "target"):
        kept("ratio", 1.0)


@pytest.mark.parametrize("by", KINDS)
def test_a_sentences_gradient_does_not_depend_on_its_company(by: Kind) -> None:
    segmenter = kept(by).train()
    segmenter.control.observe(CutCount(torch.tensor(10), torch.tensor(5)), torch.tensor(True))  # type: ignore[union-attr]
    check_gradients_alone(segmenter)


@pytest.mark.parametrize("by", ["ratio", "logits"])
@pytest.mark.parametrize("cuts", [5, 80], ids=["too few", "too many"])
def test_the_loss_of_a_rate_moves_the_scores_towards_it(by: Kind, cuts: int) -> None:
    segmenter = kept(by).train()
    symbols, lengths = ragged([30, 21], VOCABULARY, torch.Generator().manual_seed(0))
    means = []
    for _ in range(2):
        segmenter.control.observe(CutCount(torch.tensor(100), torch.tensor(cuts)), torch.tensor(True))  # type: ignore[union-attr]
        segments = segmenter(symbols, lengths)
        means.append(float(segments.scores.detach().mean()))  # type: ignore[union-attr]
        segments.cuts.losses["rate"].sum().backward()
        with torch.no_grad():
            for parameter in segmenter.parameters():
                parameter -= 0.01 * parameter.grad if parameter.grad is not None else 0
    assert (means[1] > means[0]) == (cuts == 5)


@settings(max_examples=8)
@given(st.floats(1.0, 8.0), st.integers(0, 99))
def test_a_threshold_on_text_gives_the_rate_to_within_a_cut(target: float, seed: int) -> None:
    segmenter = kept("quantile", target, seed).eval()
    symbols, lengths = ragged([30, 18, 25, 40], VOCABULARY, torch.Generator().manual_seed(seed))
    segmenter.settle([(symbols[:2], lengths[:2], None), (symbols[2:], lengths[2:], None)])
    expected = int((lengths - 1).sum()) / target
    segments = int(count_cuts(segmenter(symbols, lengths).ends, lengths).segments)
    assert segments <= max(expected, len(lengths))
    assert segments > expected - 1 or math.isclose(segments, expected)
    control = segmenter.control
    assert control is not None
    assert control.training_threshold is not None
    assert control.training_threshold.value.item() == 0.5  # training goes on with its own
    control.training_threshold.value.fill_(0.0)
    assert segmenter.train()(symbols, lengths).ends.sum() >= segments
