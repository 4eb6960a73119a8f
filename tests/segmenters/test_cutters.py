"""Each cutter that is not CIF against a plain loop from its formula, and what given cuts do to it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from combinations import COMBINATIONS, LENGTH, VOCABULARY, act_layer, made
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caesura.segmenters.act_listing import act_enc as listing
from caesura.segmenters.base import Segments
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.cutters.hard import Fixed
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Mean, Weighted
from caesura.segmenters.readers.lookup import Lookup


def with_cutter(cutter: Fixed | Act) -> Segmenter:
    torch.manual_seed(0)
    return Segmenter(Lookup(VOCABULARY, 4), cutter, Weighted()).double()


def even(ends: list[bool]) -> list[float]:
    """One over the size of each symbol's segment."""
    bounds = [0, *(t + 1 for t, end in enumerate(ends) if end)]
    return [1 / (b - a) for a, b in pairwise(bounds) for _ in range(a, b)]


def settled(decided: list[bool], cuts: list[int]) -> list[bool]:
    """Where a sentence is cut: as given, else on its own; its last symbol, </s>, closes, and never alone."""
    n = len(decided)
    ends = [cut > 0 or (end and cut == 0) for end, cut in zip(decided, cuts, strict=True)]
    return [t == n - 1 or (end and t < n - 2) for t, end in enumerate(ends)]


some_cuts = st.lists(
    st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=1, max_size=11), min_size=1, max_size=3
)


def batch(rows: list[list[int]], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random symbols [B, T], lengths, and the given cuts, which go on into padding."""
    symbols, lengths = ragged([len(row) for row in rows], VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = torch.ones(symbols.shape, dtype=torch.int8)
    for b, row in enumerate(rows):
        cuts[b, : len(row)] = torch.tensor(row)
    return symbols, lengths, cuts


@settings(max_examples=12)
@given(some_cuts, st.sampled_from([None, 1, 2, 2.5, 3.7]), st.integers(0, 99))
def test_every_and_fixed_are_their_loops(rows: list[list[int]], k: float | None, seed: int) -> None:
    symbols, lengths, cuts = batch(rows, seed)
    segmenter = made("lookup", "every", "weighted") if k is None else with_cutter(Fixed(k))
    for given_cuts in (None, cuts):
        segments = segmenter(symbols, lengths, given=given_cuts)
        for b, row in enumerate(rows):
            decided, passed = [], 0
            for total, _ in enumerate(row, 1):
                decided.append(k is None or total >= (passed + 1) * k)
                passed += decided[-1]
            ends = settled(decided, row if given_cuts is not None else [0] * len(row))
            assert segments.ends[b, : len(row)].tolist() == ends
            close(segments.weights[b, : len(row)], torch.tensor(even(ends), dtype=torch.float64), 1e-15)


@given(st.integers(4, 36).map(lambda quarters: quarters / 4), st.integers(1, 60))
def test_fixed_segments_have_two_lengths_at_most_and_k_on_average(k: float, n: int) -> None:
    symbols = torch.zeros(1, n + 1, dtype=torch.long)
    segments = with_cutter(Fixed(k))(symbols, torch.tensor([n + 1]))
    sizes = [b - a for a, b in pairwise([-1, *(int(t) for t in segments.ends[0].nonzero())])]
    assert {*sizes[:-1]} <= {math.floor(k), math.ceil(k)}
    assert sum(sizes) == n + 1
    whole = sum(sizes[:-1])
    assert len(sizes) - 1 == math.floor(whole / k)


@given(some_cuts, st.integers(0, 99))
def test_given_cuts_where_it_is_told_to(rows: list[list[int]], seed: int) -> None:
    symbols, lengths, cuts = batch(rows, seed)
    segments = made("lookup", "given", "mean")(symbols, lengths, given=cuts)
    for b, row in enumerate(rows):
        assert segments.ends[b, : len(row)].tolist() == settled([False] * len(row), row)


def test_random_cuts_are_as_many_as_the_rate_asks_for_and_stay_with_the_sentence() -> None:
    segmenter, other = made("lookup", "random", "mean"), made("lookup", "random", "mean")
    other.cutter.seed = 4
    lengths = [*range(1, 40)] * 3
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(0))
    segments, again = segmenter(symbols, sizes), other(symbols, sizes)
    assert segments.lengths.tolist() == [max(1, round((n - 1) / LENGTH)) for n in lengths]
    assert again.lengths.equal(segments.lengths)
    assert (segments.ends != again.ends).any(1).sum() > 80  # the seed moves the cuts
    assert (segments.ends[:39] != segments.ends[39:78]).any(1).sum() > 25  # as does the text
    for b in range(0, len(lengths), 7):
        alone = segmenter(symbols[b : b + 1, : lengths[b]], sizes[b : b + 1])
        assert alone.ends[0].equal(segments.ends[b, : lengths[b]])
    # Every inner gap is as likely as any other.
    many = segmenter(torch.randint(VOCABULARY, (4000, 11)), torch.full((4000,), 11))
    share = many.ends[:, :9].double().mean(0)
    assert (share - 3 / 9).abs().max() < 0.04  # five standard deviations


@settings(max_examples=20)
@given(some_cuts, st.floats(-4, 3), st.sampled_from([0.01, 0.3]), st.booleans(), st.integers(0, 99))
def test_act_is_its_loop(rows: list[list[int]], bias: float, epsilon: float, free: bool, seed: int) -> None:
    symbols, lengths, cuts = batch(rows, seed)
    segmenter = with_cutter(Act(4, epsilon, bias))
    with torch.no_grad():
        segments = segmenter(symbols, lengths, given=None if free else cuts)
    assert segments.scores is not None
    assert segments.live is not None
    h = torch.sigmoid(segmenter.cutter.halting(segmenter.reader(symbols, lengths))).squeeze(2).tolist()
    for b, row in enumerate(rows):
        H, R, n = 0.0, 0.0, len(row)
        for t, cut in enumerate([0] * n if free else row):
            may = cut >= 0 and t != n - 2  # in front of </s>
            f = t == n - 1 or (may and (cut > 0 or H + h[b][t] >= 1 - epsilon))
            p = 1 - H if f else min(h[b][t], 1 - H)
            going = not f and h[b][t] <= 1 - H
            R, H = R + h[b][t] * going, 0.0 if f else H + p
            assert bool(segments.ends[b, t]) == f
            assert bool(segments.live[b, t]) == going
            assert float(segments.weights[b, t]) == pytest.approx(p, abs=1e-12)
            assert float(segments.scores[b, t]) == pytest.approx(h[b][t], abs=1e-12)
        assert float(segments.penalty[b]) == pytest.approx((1 - R) / n, abs=1e-12)


def own_cuts(segments: Segments) -> Tensor:
    """Its ends as given cuts: 1 where there is one, -1 elsewhere."""
    return torch.where(segments.ends, 1, -1).to(torch.int8)


def assert_identical(segments: Segments, expected: Segments, live: bool = True) -> None:
    count = min(segments.vectors.shape[1], expected.vectors.shape[1])
    assert not segments.vectors[:, count:].any()
    assert not expected.vectors[:, count:].any()
    assert segments.vectors[:, :count].equal(expected.vectors[:, :count])
    for name in ("lengths", "ends", "weights", "penalty"):
        assert getattr(segments, name).equal(getattr(expected, name)), name
    for name in ("spill", "scores", *(("live",) if live else ())):
        one, other = getattr(segments, name), getattr(expected, name)
        assert one is other is None or one.equal(other), name


@pytest.mark.parametrize("parts", [p for p in COMBINATIONS if p[1] not in ("cif", "carry")], ids=" ".join)
@settings(max_examples=5)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(0, 99))
def test_a_hard_cutter_that_is_given_its_own_cuts_returns_its_own_result(
    parts: tuple[str, str, str], lengths: list[int], seed: int
) -> None:
    segmenter = made(*parts, seed=seed)
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = torch.randint(
        -1, 2, symbols.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8
    )
    segments = segmenter(symbols, sizes, given=cuts if segmenter.needs_given() else None)
    # Where all cuts are given, a cutter that draws has nothing to learn.
    assert_identical(segmenter(symbols, sizes, given=own_cuts(segments)), segments, live=not segmenter.draws)


@settings(max_examples=12)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(0, 99))
def test_act_enc_that_is_given_its_own_cuts_returns_its_own_result(lengths: list[int], seed: int) -> None:
    segmenter = act_layer(seed)
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    segments = segmenter(symbols, sizes)
    assert_identical(segmenter(symbols, sizes, given=own_cuts(segments)), segments)
    assert_identical(segmenter(symbols, sizes, given=torch.zeros_like(symbols, dtype=torch.int8)), segments)


@pytest.mark.parametrize("parts", [p for p in COMBINATIONS if p[1] != "given"], ids=" ".join)
def test_cuts_that_are_all_free_are_none(parts: tuple[str, str, str]) -> None:
    segmenter = made(*parts)
    symbols, lengths = ragged([9, 1, 0, 6], VOCABULARY, torch.Generator().manual_seed(0))
    segments = segmenter(symbols, lengths, given=torch.zeros_like(symbols, dtype=torch.int8))
    assert_identical(segments, segmenter(symbols, lengths))


@settings(max_examples=12)
@given(some_cuts, st.integers(0, 99))
def test_act_enc_under_given_cuts_is_algorithm_1_with_what_is_left(rows: list[list[int]], seed: int) -> None:
    segmenter = act_layer(seed)
    symbols, lengths, cuts = batch(rows, seed)
    segments = segmenter(symbols, lengths, given=cuts)
    for b, row in enumerate(rows):
        s, mean, H, R = torch.zeros(1, 5, dtype=torch.float64), 0, torch.zeros((), dtype=torch.float64), 0.0
        vectors = []
        for t, (x, cut) in enumerate(zip(symbols[b], row, strict=False)):
            s = segmenter.cell(segmenter.embedding(x)[None], s)
            h = torch.sigmoid(segmenter.halting(s)).squeeze()
            f = t == len(row) - 1 or cut > 0 or (cut == 0 and bool(H + h >= 1 - segmenter.epsilon))
            p = 1 - H if f else torch.minimum(h, 1 - H)
            R += float(h.detach()) * (not f and bool(h <= 1 - H))
            mean, H = mean + p * s, H + p
            assert bool(segments.ends[b, t]) == f
            close(segments.weights[b, t], p, 1e-12)
            if f:
                vectors.append(segmenter.output(mean))
                s, mean, H = mean, 0, torch.zeros_like(H)
        close(segments.vectors[b, : len(vectors)], torch.cat(vectors), 1e-10)
        close(segments.penalty[b], torch.tensor((1 - R) / len(row), dtype=torch.float64), 1e-12)
    if not any(any(row) for row in rows):
        whole = listing(segmenter, symbols[0, : len(rows[0])])
        close(segments.vectors[0, : len(whole.vectors)], whole.vectors)


def test_given_cuts_move_the_segments_and_not_the_reader() -> None:
    segmenter, symbols = made("bigru", "fixed", "mean"), torch.tensor([[1, 2, 3, 4, 5, 6]])
    cuts = torch.tensor([[1, -1, -1, 0, 0, 0]], dtype=torch.int8)
    segments = segmenter(symbols, torch.tensor([6]), given=cuts)
    states = segmenter.reader(symbols, torch.tensor([6]))[0]
    assert [int(t) for t in segments.ends[0].nonzero()] == [0, 5]
    expected = segmenter.output(torch.stack((states[0], states[1:].mean(0))))
    close(segments.vectors[0], expected)
    assert isinstance(segmenter.pooling, Mean)
