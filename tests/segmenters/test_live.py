"""`live` is True exactly where the vectors have a gradient in the cutter's scores."""

from __future__ import annotations

import pytest
import torch
from combinations import ROUTING, VOCABULARY, act_layer, cuts_for, hmrnn, made
from helpers import ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

UNITS = ("act", "cif", "carry", *ROUTING)
ROUNDING = 1e-13  # of sums that go on across segments, and are subtracted again
given_cuts = st.sampled_from(["none", "free", "some", "all"])


def drawn(kind: str, symbols: Tensor, seed: int) -> Tensor | None:
    """No cuts, cuts that are all free, or random ones; with "all", none is free."""
    if kind == "none":
        return None
    if kind == "free":
        return torch.zeros_like(symbols, dtype=torch.int8)
    marks = torch.randint(
        -1, 2, symbols.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8
    )
    return torch.where(marks == 0, -1, marks).to(torch.int8) if kind == "all" else marks


@pytest.mark.parametrize("cutter", [*UNITS, "hmrnn"])
@settings(max_examples=20)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), given_cuts, st.integers(0, 99))
def test_a_cutter_learns_where_it_says(cutter: str, lengths: list[int], kind: str, seed: int) -> None:
    # Equal states would have no gradient.
    segmenter = hmrnn(seed) if cutter == "hmrnn" else made("gru", cutter, "weighted", seed)
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    shift = torch.zeros(symbols.shape, dtype=torch.float64, requires_grad=True)
    result = segmenter.shifted(symbols, sizes, shift, drawn(kind, symbols, seed))
    probe = torch.randn(result.vectors.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((result.vectors * probe).sum(), shift)
    assert result.live is not None
    assert (gradient.abs() > ROUNDING).equal(result.live)


@settings(max_examples=20)
@given(st.integers(1, 12), given_cuts, st.integers(0, 99))
def test_act_enc_learns_where_it_says(n: int, kind: str, seed: int) -> None:
    segmenter = act_layer(seed)
    symbols, sizes = ragged([n], VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = drawn(kind, symbols, seed)
    segments = segmenter(symbols, sizes, given=cuts)
    shift, generator = (
        torch.zeros(n, dtype=torch.float64, requires_grad=True),
        torch.Generator().manual_seed(1),
    )
    s, mean, H, loss = torch.zeros(1, 5, dtype=torch.float64), 0, torch.zeros(1, dtype=torch.float64), 0
    for t, x in enumerate(symbols[0]):  # Algorithm 1 under given cuts
        s = segmenter.cell(segmenter.embedding(x)[None], s)
        h = torch.sigmoid(segmenter.halting(s).squeeze(1) + shift[t])
        f = bool(segments.ends[0, t])
        p = 1 - H if f else torch.minimum(h, 1 - H)
        mean, H = mean + p * s, H + p
        if f:
            probe = torch.randn(1, 3, generator=generator, dtype=torch.float64)
            loss = loss + (segmenter.output(mean) * probe).sum()
            s, mean, H = mean, 0, torch.zeros_like(H)
    (gradient,) = torch.autograd.grad(loss, shift, allow_unused=True, materialize_grads=True)
    assert segments.live is not None
    assert (gradient.abs() > ROUNDING).equal(segments.live[0])


def test_cutters_that_do_not_learn_have_nothing_live() -> None:
    symbols, sizes = ragged([7, 2], VOCABULARY, torch.Generator().manual_seed(0))
    for cutter in ("every", "fixed", "random", "given"):
        segmenter = made("lookup", cutter, "mean")
        assert segmenter(symbols, sizes, given=cuts_for(segmenter, symbols)).live is None
        assert "live" not in {figure.name for figure in segmenter.figures}
