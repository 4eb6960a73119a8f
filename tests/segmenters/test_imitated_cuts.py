"""The loss that pulls a segmenter's cuts towards others, and who can learn from it."""

from __future__ import annotations

import math

import pytest
import torch
from combinations import COMBINATIONS, VOCABULARY, act_layer, cuts_for, hmrnn, made
from helpers import close, ragged

from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.imitation import imitation


@pytest.mark.parametrize(
    "parts", [*dict.fromkeys(("gru", cutter, "weighted") for _, cutter, _ in COMBINATIONS)]
)
def test_a_segmenter_imitates_if_it_has_logits(parts: tuple[str, str, str]) -> None:
    segmenter = made(*parts)
    symbols, lengths = ragged([7, 3], VOCABULARY, torch.Generator().manual_seed(0))
    cuts = segmenter(symbols, lengths, given=cuts_for(segmenter, symbols)).cuts
    assert segmenter.imitates == (cuts.logits is not None)


@pytest.mark.parametrize("segmenter", [act_layer(), hmrnn()])
def test_a_whole_segmenter_imitates_if_it_has_logits(segmenter: BaseSegmenter) -> None:
    symbols, lengths = ragged([7, 3], VOCABULARY, torch.Generator().manual_seed(0))
    assert segmenter.imitates == (segmenter(symbols, lengths).cuts.logits is not None)


def test_the_loss_is_its_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([6, 9, 2, 1, 0, 7])
    logits = torch.randn(6, 9, generator=generator, dtype=torch.float64).masked_fill(
        torch.arange(9) >= lengths[:, None], math.nan
    )
    wanted = torch.randint(0, 2, (6, 9), generator=generator).to(torch.int8)
    wanted[5, :6] = -1  # not known
    losses = imitation(logits.requires_grad_(), wanted, lengths)
    for b, n in enumerate(lengths.tolist()):
        p = torch.sigmoid(logits[b]).tolist()
        costs = [-math.log(p[t] if wanted[b, t] else 1 - p[t]) for t in range(n - 2)]
        expected = 0.0 if b == 5 else sum(costs) / max(1, len(costs))
        assert losses[b].item() == pytest.approx(expected, abs=1e-12)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient[0, :4].sign().equal(torch.where(wanted[0, :4] > 0, -1.0, 1.0).double())
    assert not gradient[0, 4:].any()
    assert not gradient[5].any()


def test_cif_learns_from_what_its_rate_makes_of_its_scores() -> None:
    segmenter = made("gru", "cif", "weighted")
    symbols, lengths = ragged([9], VOCABULARY, torch.Generator().manual_seed(0))
    shift = torch.zeros(symbols.shape, dtype=torch.float64, requires_grad=True)
    cuts = segmenter.shifted(symbols, lengths, shift).cuts
    assert cuts.logits is not None
    assert cuts.scores is not None
    close(torch.sigmoid(cuts.logits)[:, :8], cuts.scores[:, :8], 1e-12)
    wanted = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 0]]).to(torch.int8)
    (slope,) = torch.autograd.grad(imitation(cuts.logits, wanted, lengths).sum(), shift)
    assert slope[0, 1] < 0
    assert slope[0, 4] < 0
    assert float(slope.sum()) == pytest.approx(0, abs=1e-9)  # the rate decides how many there are
