"""Drawn cuts: each estimate of the gradient against the truth, straight-through against its formula."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from combinations import VOCABULARY
from helpers import close, ragged
from torch import Tensor
from torch.distributions import Binomial

from caesura.segmenters.cutters.bernoulli import Bernoulli, Gradient, likeliest
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Mean, Weighted
from caesura.segmenters.rate import Rate, RateControl, count_cuts
from caesura.segmenters.readers.lookup import Lookup

N = 6  # symbols, </s> included: four gaps that may be cut


def segmenter(gradient: Gradient = "score", rate: Rate | None = None, **options: object) -> Segmenter:
    torch.manual_seed(3)
    cutter = Bernoulli(4, gradient, **options)  # type: ignore[arg-type]
    layer = Segmenter(
        Lookup(VOCABULARY, 4), cutter, Weighted() if cutter.needs_weights() else Mean(), rate=rate
    )
    with torch.no_grad():
        cutter.score.weight.mul_(6)
    return layer.double()


def exact(scores: Tensor, table: dict[tuple[bool, ...], float]) -> Tensor:
    """The gradient of the mean loss by the logits [N - 2], over all cuttings."""
    l = scores.detach().clone().requires_grad_()
    p, mean = torch.sigmoid(l), torch.zeros((), dtype=torch.float64)
    for cutting, loss in table.items():
        mean = mean + loss * torch.where(torch.tensor(cutting), p, 1 - p).prod()
    return torch.autograd.grad(mean, l)[0]


@pytest.mark.parametrize(
    ("gradient", "cuttings"),
    [("score", 2), ("score", 4), ("disarm", None), ("self-critical", None), ("self-critical", 3)],
)
def test_the_mean_of_an_estimate_is_the_true_gradient(gradient: Gradient, cuttings: int | None) -> None:
    layer, copies = segmenter(gradient, cuttings=cuttings), 6000
    losses = torch.randn(16, generator=torch.Generator().manual_seed(1)).tolist()
    table = dict(zip(product([False, True], repeat=N - 2), losses, strict=True))
    symbols = torch.tensor([[1, 5, 2, 7, 3, 0]]).expand(copies, -1)
    shift = torch.zeros(copies, N, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(5)
    cuts = layer.shifted(symbols, torch.full((copies,), N), shift).cuts
    assert cuts.logits is not None
    assert cuts.copies == layer.cutter.cuttings == (cuttings or 2)
    assert len(cuts.ends) == cuts.copies * copies
    outcome = torch.tensor([table[tuple(row)] for row in cuts.ends[:, : N - 2].tolist()]).double()
    term = layer.feedback(cuts, outcome.view(cuts.copies, copies))
    assert not term.any()  # it adds nothing to the loss
    (estimates,) = torch.autograd.grad(term.sum(), shift)
    assert not estimates[:, N - 2 :].any()
    truth, mean = exact(cuts.logits[0, : N - 2], table), estimates[:, : N - 2].mean(0)
    error = estimates[:, : N - 2].std(0) / copies**0.5
    assert ((mean - truth).abs() < 4.5 * error).all()
    assert (truth.abs() > 4.5 * error).any()  # so that zero would not pass


def test_straight_through_is_dynamic_pooling() -> None:
    """Its matrix as that paper writes it: symbols times segments, each column over its sum."""
    layer = segmenter("straight-through", temperature=0.7)
    symbols, lengths = ragged([9, 6, 3], VOCABULARY, torch.Generator().manual_seed(0))
    shift = torch.zeros(symbols.shape, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(8)
    segments = layer.shifted(symbols, lengths, shift)
    probe = torch.randn(segments.vectors.shape, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((segments.vectors * probe).sum(), shift)
    torch.manual_seed(8)
    u = torch.rand(symbols.shape, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    assert segments.cuts.logits is not None
    for b, n in enumerate(lengths.tolist()):
        l = segments.cuts.logits[b, :n].detach().requires_grad_()
        soft = torch.sigmoid((l + u[b, :n].log() - torch.log1p(-u[b, :n])) / 0.7)
        hard = (soft > 0.5).double()
        inner = torch.arange(n) < n - 2
        z = torch.where(inner, hard - soft.detach() + soft, torch.zeros(()).double())
        z = z + (torch.arange(n) == n - 1)
        segment = z.cumsum(0) - z  # of each symbol, with a gradient
        size = int(segments.lengths[b])
        matrix = 1 - (torch.arange(size) - segment[:, None])
        matrix = torch.where(torch.arange(size) == segment.detach().round()[:, None], matrix, 0)
        matrix = matrix / matrix.sum(0)
        vectors = matrix.T @ layer.reader.embedding(symbols[b, :n]).detach()
        close(segments.vectors[b, :size], vectors, 1e-12)
        (expected,) = torch.autograd.grad((vectors * probe[b, :size]).sum(), l)
        close(gradient[b, :n], expected, 1e-12)
        assert (
            not gradient[b, :n][segments.ends[b, :n]].abs().gt(1e-12).any()
        )  # a cut that is there gets none


def test_draws_have_their_probabilities_and_evaluation_has_none() -> None:
    layer = segmenter("disarm")
    symbols, lengths = torch.tensor([[1, 5, 2, 7, 3, 0]]).expand(20_000, -1), torch.full((20_000,), N)
    cuts = layer(symbols, lengths).cuts
    assert cuts.scores is not None
    p = cuts.scores[0, : N - 2]
    for rows in cuts.ends.view(2, -1, N):
        close(rows[:, : N - 2].double().mean(0), p, 0.02)
    layer.eval()
    cuts = layer(symbols[:2], lengths[:2]).cuts
    assert cuts.copies == 1
    assert cuts.ends[0, : N - 2].equal(p > layer.cutter.evaluation_threshold)


def test_the_likeliest_cuts_are_as_many_as_draws_have() -> None:
    p = torch.tensor([[0.9, 0.2, 0.8, 0.7, 0.99], [0.1, 0.1, 0.1, 0.1, 0.1]])
    free = torch.tensor([[True, True, True, True, False]] * 2)
    assert likeliest(p, free).tolist() == [[True, False, True, True, False], [False] * 5]


@pytest.mark.parametrize("rate", [None, Rate(3.0), Rate(2.0, by="ratio")])
def test_the_threshold_gives_the_rate_that_is_asked_for_or_that_draws_have(rate: Rate | None) -> None:
    layer = segmenter(rate=rate)
    symbols, lengths = ragged([40, 60, 2, 1, 50], VOCABULARY, torch.Generator().manual_seed(2))
    # Scores that differ from gap to gap, as behind a reader with context.
    layer.reader.embedding = torch.nn.Embedding(10_000, 4, dtype=torch.float64)
    symbols = torch.arange(symbols.numel()).view(symbols.shape)
    layer.settle([(symbols, lengths, None)])
    layer.eval()
    count = count_cuts(layer(symbols, lengths).ends, lengths)
    asked = layer.target
    if asked is None:
        layer.train()
        drawn = [count_cuts(layer(symbols, lengths).ends[:5], lengths).segments for _ in range(200)]
        asked = float(count.characters) / float(torch.stack(drawn).double().mean())
    assert float(count.characters / count.segments) == pytest.approx(asked, rel=0.03)


def test_the_prior_is_binomial() -> None:
    control = RateControl(Rate(4.0, by="prior"), "cutter", ("prior",))
    segments = torch.tensor([1.0, 3.0, 7.0, 1.0], dtype=torch.float64, requires_grad=True)
    characters = torch.tensor([1, 12, 7, 0])
    loss = control.prior(segments, characters)
    expected = -Binomial(characters[:3], torch.tensor(0.25).double()).log_prob(segments[:3]) / characters[:3]
    close(loss[:3], expected, 1e-12)
    assert loss[3] == 0
    assert torch.autograd.grad(loss.sum(), segments)[0].isfinite().all()


def test_pieces_are_the_whole_in_evaluation_and_refused_in_training() -> None:
    layer = segmenter(threshold=0.5)
    symbols, lengths = torch.tensor([[1, 5, 2, 7, 3, 0]]), torch.tensor([N])
    with pytest.raises(ValueError, match="in pieces"):
        layer(symbols[:, :3], torch.tensor([3]), final=False)
    layer.eval()
    whole = layer(symbols, lengths)
    first = layer(symbols[:, :3], torch.tensor([3]), final=False)
    last = layer(symbols[:, 3:], torch.tensor([3]), first.state)
    counts = int(first.lengths[0]), int(last.lengths[0])
    assert sum(counts) == int(whole.lengths[0])
    both = torch.cat((first.vectors[:, : counts[0]], last.vectors[:, : counts[1]]), 1)
    close(both, whole.vectors, 1e-15)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"gradient": "score", "cuttings": 1}, "cuttings"),
        ({"gradient": "self-critical", "cuttings": 0}, "cuttings"),
        ({"gradient": "disarm", "cuttings": 3}, "cuttings"),
        ({"gradient": "straight-through", "cuttings": 2}, "cuttings"),
        ({"gradient": "score", "temperature": 0.5}, "temperature"),
        ({"gradient": "straight-through", "temperature": 0.0}, "temperature"),
        ({"gradient": "reinforce"}, "gradient"),
        ({"threshold": 1.0}, "threshold"),
        ({"start": 0.5}, "start"),
        ({"threshold": 0.5, "rate": Rate(4.0)}, "threshold"),
        ({"gradient": "score", "rate": Rate(4.0, by="prior")}, "prior"),
        ({"rate": Rate(4.0, by="pi")}, "pi"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        segmenter(**options)  # type: ignore[arg-type]
