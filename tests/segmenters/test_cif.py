"""CIF against its formulas: the shift that keeps the rate, what symbols give to segments, and gradients."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from combinations import VOCABULARY, made
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.kernels.cif import SMALL, integrate, scale
from caesura.segmenters.base import Cuts, Segments
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Weighted
from caesura.segmenters.rate import Rate
from caesura.segmenters.readers.lookup import Lookup


@st.composite
def sentences(draw: st.DrawFn, widest: float = 6.0) -> tuple[Tensor, int]:
    """Scores [T] of a sentence of text, and a number of segments below T."""
    scores = draw(st.lists(st.floats(-widest, widest, width=16), min_size=2, max_size=12))
    return torch.tensor(scores, dtype=torch.float64), draw(st.integers(1, len(scores) - 1))


def whole(scores: Tensor) -> Tensor:
    return torch.ones(1, len(scores), dtype=torch.bool)


def given_by(a: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ends, weights and spill [1, T] of one sentence of text."""
    cuts = integrate(a, torch.tensor([[a.shape[1]]]), torch.tensor([[number]]))
    return cuts.ends, cuts.weights, cuts.spill


def shared(a: Tensor, number: int) -> Tensor:
    """w [T, S] = max(0, min(c_t, k) - max(c_{t-1}, k - 1)); the last segment takes what is left."""
    c = [0.0, *a.cumsum(0).tolist()]
    c[-1] = float(number)
    rows = [
        [max(0.0, min(after, k) - max(before, k - 1)) for k in range(1, number + 1)]
        for before, after in pairwise(c)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def placed(ends: Tensor, weights: Tensor, spill: Tensor, number: int) -> Tensor:
    """The same from ends, weights and spill [T]."""
    w, k = torch.zeros(len(ends), number, dtype=torch.float64), 0
    for t, end in enumerate(ends.tolist()):
        w[t, k] = weights[t]
        if end:
            k += 1
            w[t, k] = spill[t]
        else:
            assert spill[t] == 0
    assert k == number - 1
    return w


@settings(max_examples=30)
@given(sentences())
def test_the_shift_solves_its_equation(sentence: tuple[Tensor, int]) -> None:
    scores, number = sentence
    a = scale(scores[None], whole(scores), torch.tensor([number]))[0]
    assert float(a.sum()) == pytest.approx(number, abs=1e-9)
    shifts = torch.logit(a) - scores
    inside = (a > 1e-4) & (a < 1 - 1e-4)
    assert (shifts[inside] - shifts[inside].mean()).abs().max() < 1e-6 if inside.any() else True
    assert ((a > 0) & (a < 1)).all()


@settings(max_examples=30)
@given(sentences())
def test_symbols_give_what_the_formula_says(sentence: tuple[Tensor, int]) -> None:
    scores, number = sentence
    a = scale(scores[None], whole(scores), torch.tensor([number]))
    w = placed(*(part[0] for part in given_by(a, number)), number)
    close(w, shared(a[0], number), 1e-12)
    close(w.sum(0), torch.ones(number, dtype=torch.float64), 1e-12)
    assert ((w > 0).sum(1) <= 2).all()
    close(w.sum(1)[:-1], a[0, :-1], 1e-12)


@settings(max_examples=30)
@given(sentences(widest=50.0))
def test_extreme_scores_lose_and_create_nothing(sentence: tuple[Tensor, int]) -> None:
    scores, number = sentence
    scores.requires_grad_()
    a = scale(scores[None], whole(scores), torch.tensor([number]))
    assert float(a.detach().sum()) == pytest.approx(number, abs=len(scores) * SMALL)
    ends, weights, spill = given_by(a, number)
    w = placed(ends[0], weights[0].detach(), spill[0].detach(), number)
    assert (w > -1e-12).all()
    close(w.sum(0), torch.ones(number, dtype=torch.float64), len(scores) * SMALL)
    (gradient,) = torch.autograd.grad((weights * torch.arange(len(scores))).sum(), scores)
    assert gradient.isfinite().all()
    assert float(gradient.sum()) == pytest.approx(0, abs=1e-6)  # the shift takes away what all have in common


def test_scores_that_are_all_equal_cut_evenly() -> None:
    for level in (-50.0, 0.0, 50.0):
        scores = torch.full((1, 12), level, dtype=torch.float64)
        a = scale(scores, torch.ones_like(scores, dtype=torch.bool), torch.tensor([4]))
        close(a, torch.full_like(a, 1 / 3), 1e-12)


def test_one_segment_is_a_weighted_mean_and_one_per_character_has_nothing_to_learn() -> None:
    scores = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
    text = torch.ones_like(scores, dtype=torch.bool)
    a = scale(scores, text, torch.tensor([1]))
    ends, weights, spill = given_by(a, 1)
    assert not ends.any()
    assert not spill.any()
    close(weights, a, 1e-9)
    ends, weights, spill = given_by(scale(scores, text, torch.tensor([4])), 4)
    assert ends.tolist() == [[True, True, True, False]]  # </s> closes the last one
    assert weights.tolist() == [[1.0] * 4]
    assert not spill.any()


@settings(max_examples=15)
@given(sentences(), st.integers(0, 99))
def test_the_gradient_is_the_closed_form(sentence: tuple[Tensor, int], seed: int) -> None:
    """dL/dc_t = g_{k(t)} . (e_t - e_{t+1}), a reverse cumulative sum, and the implicit shift."""
    scores, number = sentence
    scores.requires_grad_()
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(len(scores), 3, generator=generator, dtype=torch.float64)
    g = torch.randn(number, 3, generator=generator, dtype=torch.float64)
    a = scale(scores[None], whole(scores), torch.tensor([number]))
    ends, weights, spill = given_by(a, number)
    vectors = Weighted()(states[None], Cuts(ends, weights, number, spill), number)[0]
    loss = (vectors * g).sum()
    (actual,) = torch.autograd.grad(loss, scores)
    a = a[0].detach()
    c = a.cumsum(0)
    k = c.floor().long().clamp(max=number - 1)  # from 0
    # c_T is the number of segments, a constant, so what the formula says of it does not count.
    of_c = (g[k[:-1]] * (states[:-1] - states[1:])).sum(1)
    of_a = torch.cat((of_c, of_c.new_zeros(1))).flip(0).cumsum(0).flip(0)
    slope = a * (1 - a)
    expected = slope * (of_a - (slope * of_a).sum() / slope.sum())
    close(actual, expected, 1e-7)  # d is one Newton step better than the point where its slope is taken


def test_vectors_are_continuous_where_a_boundary_moves_from_one_symbol_to_the_next() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    results = []
    for step in (-1e-6, -1e-9, 0.0, 1e-9, 1e-6):
        a = torch.tensor([[0.6, 0.4 + step, 0.7 - step, 0.3]], dtype=torch.float64)
        ends, weights, spill = given_by(a, 2)
        results.append((ends.tolist(), Weighted()(states, Cuts(ends, weights, 2, spill), 2)))
    assert results[0][0] != results[-1][0]  # the cut did move
    for (_, one), (_, other) in pairwise(results):
        assert (one - other).abs().max() < 1e-5
    close(results[1][1], results[3][1], 1e-8)


def cif(rate: float, seed: int = 0) -> Segmenter:
    segmenter = made("lookup", "cif", "weighted", seed, output_dim=None)
    segmenter.cutter.keep_rate(Rate(rate))
    return segmenter


def segment(segments: Segments, b: int) -> list[tuple[int, int]]:
    """Where each segment of a sentence begins and ends."""
    return [*pairwise([0, *(int(t) + 1 for t in segments.ends[b].nonzero())])]


@settings(max_examples=12)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.floats(1, 20), st.integers(0, 99))
def test_sentences_have_as_many_segments_as_the_rate_asks_for(
    lengths: list[int], rate: float, seed: int
) -> None:
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    segmenter = cif(rate, seed)
    segments = segmenter(symbols, sizes)
    assert segments.spill is not None
    for b, n in enumerate(lengths):
        assert int(segments.lengths[b]) == (max(1, round((n - 1) / rate)) if n else 0)
        if n > 1:
            assert segments.weights[b, n - 1] == 0  # </s> closes the last segment and gives nothing
            given_in_all = segments.weights[b].sum() + segments.spill[b].sum()
            assert float(given_in_all.detach()) == pytest.approx(int(segments.lengths[b]), abs=1e-9)
    segmenter.float()
    assert segmenter(symbols, sizes).lengths.equal(segments.lengths)


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=11), min_size=1, max_size=3),
    st.integers(0, 99),
)
def test_under_given_cuts_every_symbol_gives_its_share_of_its_segment(
    rows: list[list[int]], seed: int
) -> None:
    lengths = [len(row) for row in rows]
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = torch.zeros_like(symbols, dtype=torch.int8)
    for b, row in enumerate(rows):
        cuts[b, : len(row)] = torch.tensor(row)
    segmenter = cif(2.5, seed)
    with torch.no_grad():
        free, segments = segmenter(symbols, sizes), segmenter(symbols, sizes, given=cuts)
        states = segmenter.reader(symbols, sizes)
    assert free.scores is not None
    assert segments.spill is not None
    for b, row in enumerate(rows):
        n = len(row)
        if not any(row[: n - 2]):  # at </s>, and in front of it, nothing can be given
            close(segments.weights[b], free.weights[b], 1e-12)
            continue
        assert not segments.spill[b].any()
        for t, cut in enumerate(row[: n - 2]):
            assert bool(segments.ends[b, t]) == (cut > 0 or (cut == 0 and bool(free.ends[b, t])))
        for k, (begin, end) in enumerate(segment(segments, b)):
            a = free.scores[b, begin : min(end, n - 1)]
            share, read = a / a.sum(), states[b, begin : begin + len(a)]
            # Sums of segments are differences of running sums: small ones lose digits to what came before.
            within = 1e-14 * float(free.scores[b].sum() / a.sum())
            close(segments.weights[b, begin : min(end, n - 1)], share, within)
            close(
                segments.vectors[b, k],
                (share[:, None] * read).sum(0),
                within * max(1, float(read.abs().max())),
            )


def test_the_shares_of_a_boundary_are_its_figure() -> None:
    segmenter = cif(2.5)
    symbols, sizes = ragged([9, 1, 6], VOCABULARY, torch.Generator().manual_seed(0))
    with torch.no_grad():
        segments = segmenter(symbols, sizes)
    assert segments.spill is not None
    above, below = next(f for f in segmenter.figures if f.name == "spill").count(segments.cuts, sizes)
    for b in range(3):
        inner = [t for t in range(int(sizes[b]) - 1) if segments.ends[b, t]]
        ratios = [
            float(segments.spill[b, t] / (segments.spill[b, t] + segments.weights[b, t])) for t in inner
        ]
        assert float(above[b]) == pytest.approx(math.fsum(ratios))
        assert int(below[b]) == len(inner)


def stein(share: float, **options: float) -> Segmenter:
    torch.manual_seed(2)
    cutter = Cif(4, stein=share, **options)
    layer = Segmenter(Lookup(VOCABULARY, 4), cutter, Weighted(), rate=Rate(1.5)).double()
    cutter.score.weight.data.mul_(2)
    return layer


def losses_of(segments: Segments, jump: float) -> Tensor:
    """A loss per row of two segments: smooth in the vectors, and `jump` more if the first has one symbol."""
    probe = torch.randn(segments.vectors.shape[1:], generator=torch.Generator().manual_seed(3)).double()
    return (segments.vectors.tanh() * probe).sum((1, 2)) + jump * segments.ends[:, 0]


@pytest.mark.parametrize(("share", "jump"), [(1.0, 0.5), (0.4, 0.0)])
def test_the_mean_of_steins_estimate_is_the_gradient_of_the_smoothed_loss(share: float, jump: float) -> None:
    """Three characters in two segments: the noise has two directions in which the loss changes."""
    layer, sigma, x = stein(share, noise=0.7), 0.7, torch.tensor([[1, 5, 2, 0]])

    def shifted(shift: Tensor) -> Segments:
        return layer.shifted(x.expand(len(shift), -1), torch.full((len(shift),), 4), shift)

    axes = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]], dtype=torch.float64)
    axes = axes / axes.norm(dim=1, keepdim=True)
    line = (torch.arange(120) + 0.5) / 60 * 5.5 - 5.5  # midpoints
    grid = torch.cartesian_prod(line, line).double()
    z = grid @ axes
    layer.eval()
    with torch.no_grad():
        values = losses_of(shifted(torch.nn.functional.pad(sigma * z, (0, 1))), jump)
    mass = (-grid.square().sum(1) / 2).exp()
    truth = ((mass * values)[:, None] * z).sum(0) / mass.sum() / sigma
    layer.train()
    torch.manual_seed(6)
    shift = torch.zeros(8_000, 4, dtype=torch.float64, requires_grad=True)
    segments = shifted(shift)
    assert segments.cuts.copies == layer.cuttings == 2
    losses = losses_of(segments, jump).view(2, -1)
    term = layer.feedback(segments.cuts, losses)
    assert not term.any()  # it adds nothing to the loss
    (estimates,) = torch.autograd.grad(losses.mean(0).sum() + term.sum(), shift)
    mean, error = estimates[:, :3].mean(0), estimates[:, :3].std(0) / len(shift) ** 0.5
    assert ((mean - truth).abs() < 4.5 * error + 1e-3).all()
    assert (truth.abs() > 9 * error).any()  # so that zero would not pass
    (slopes,) = torch.autograd.grad(losses_of(shifted(shift), jump).view(2, -1).mean(0).sum(), shift)
    close(slopes[:, :3].mean(0), (1 - share) * truth, 0.02 if jump == 0 else 1e-12)


def test_without_stein_and_in_evaluation_sentences_are_cut_once() -> None:
    symbols, lengths = ragged([9, 1, 6], VOCABULARY, torch.Generator().manual_seed(0))
    plain, noisy = (stein(share).train() for share in (0.0, 0.5))
    state = torch.get_rng_state()
    wanted = plain(symbols, lengths)
    assert torch.get_rng_state().equal(state)
    assert (plain.cuttings, wanted.cuts.copies, wanted.cuts.noise) == (1, 1, None)
    twice = noisy(symbols, lengths).cuts
    assert (twice.copies, len(twice.ends)) == (2, 6)
    assert not twice.weights[:3].equal(twice.weights[3:])
    spill = next(figure for figure in noisy.figures if figure.name == "spill")
    assert [len(part) for part in spill.count(twice, lengths)] == [3, 3]
    assert noisy.eval()(symbols, lengths).vectors.equal(wanted.vectors)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"stein": 1.5}, "stein"),
        ({"stein": -0.1}, "stein"),
        ({"stein": math.nan}, "stein"),
        ({"stein": 0.5, "noise": 0.0}, "noise"),
        ({"stein": 0.5, "noise": math.inf}, "noise"),
        ({"noise": 0.5}, "noise"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(options: dict[str, float], name: str) -> None:
    with refuses(ValueError, f"{name} "):
        Cif(4, **options)
