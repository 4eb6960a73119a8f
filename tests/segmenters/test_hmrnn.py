"""HM-LSTM's lower layer against the paper's equations in a plain loop, and what every segmenter promises."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from combinations import VOCABULARY, hmrnn
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from wording import refuses

from caesura.schedules import Schedule
from caesura.segmenters.hmrnn import HmrnnSegmenter
from caesura.segmenters.rate import Rate, count_cuts, threshold_near

LENGTHS = [7, 1, 0, 12, 2, 9]


class Step(torch.autograd.Function):
    """Above one half or not, or as given, with the gradient of the identity: straight-through."""

    @staticmethod
    def forward(ctx: Any, soft: Tensor, mark: int) -> Tensor:
        return ((soft > 0.5) if mark == 0 else torch.tensor(mark > 0)).to(soft.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient, None


def listing(layer: HmrnnSegmenter, x: Tensor, marks: list[int]) -> tuple[Tensor, list[bool], list[float]]:
    """Vectors [S, D], ends and scores [T] of a sentence x [T]: the paper's equations of the lowest layer."""
    H, E, a = layer.cell.hidden_size, layer.cell.input_size, layer.slope.value
    W, U, b = layer.cell.weight_ih, layer.cell.weight_hh, layer.cell.bias_ih + layer.cell.bias_hh
    w, u = layer.boundary.weight[0, :E], layer.boundary.weight[0, E:]
    h = c = torch.zeros(H, dtype=torch.float64)
    z = torch.zeros((), dtype=torch.float64)
    vectors, ends, scores = [], [], []
    owed = unit = 0.0
    if (control := layer.control) is not None:  # ours: docs/paper_notes.md, 20
        owed = -math.log(2 * control.training_threshold.value)  # type: ignore[union-attr]
        unit = math.sqrt((w @ w + u @ u).item() / (E + H))
    for t, symbol in enumerate(x.tolist()):
        e = layer.embedding.weight[symbol]
        s_t = W @ e + U @ h + b  # eq. 4, without the top-down term
        i, f, g, o = (s_t[k * H : (k + 1) * H] for k in range(4))
        i, f, o, g = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)
        owed += 1 / layer.target if layer.target else 0
        s = (w @ e + u @ h) / math.sqrt(E + H) + layer.boundary.bias[0] + unit * math.sinh(owed)
        soft = torch.clamp((a * s + 1) / 2, 0, 1)
        # eq. 2: UPDATE and FLUSH, chosen by z of the step before; in the backward pass a mixture of both.
        update, flush = f * c + i * g, i * g
        c = (1 - z) * update + z * flush
        h = o * torch.tanh(c)  # eq. 3
        z = Step.apply(soft, marks[t]) if t < len(x) - 1 else torch.ones_like(soft)  # eq. 7, and the end
        owed -= bool(z)
        scores.append(soft.item())
        ends.append(bool(z))
        if z:
            vectors.append(layer.output(z * h))  # what the layer above reads, eq. 6
    return torch.stack(vectors), ends, scores


def marked(symbols: Tensor, some: bool) -> Tensor | None:
    return (
        (symbols * 7).remainder(5).sub(1).clamp(max=0).to(torch.int8) + (symbols % 4 == 1) if some else None
    )


@pytest.mark.parametrize("some", [False, True], ids=["free", "given"])
@pytest.mark.parametrize(("slope", "rate"), [(0.7, None), (1.5, None), (0.7, Rate(2.5))])
@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_papers_equations_in_outputs_and_in_every_gradient(
    seed: int, slope: float, rate: Rate | None, some: bool
) -> None:
    layer, generator = hmrnn(seed, slope=slope, rate=rate), torch.Generator().manual_seed(seed)
    if layer.control is not None:
        layer.control.start_at(0.7)
    symbols, lengths = ragged([n for n in LENGTHS if n], VOCABULARY, generator)
    cuts = marked(symbols, some)
    segments = layer(symbols, lengths, given=cuts)
    marks = torch.zeros_like(symbols) if cuts is None else cuts
    rows = [listing(layer, symbols[b, :n], marks[b].tolist()) for b, n in enumerate(lengths.tolist())]
    bounds = [[-1, *(t for t, end in enumerate(ends) if end)] for _, ends, _ in rows]
    assert len({b - a for row in bounds for a, b in pairwise(row)}) > 2
    assert segments.scores is not None
    for b, ((vectors, ends, scores), n) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        assert segments.ends[b, :n].tolist() == ends
        close(segments.vectors[b, : len(vectors)], vectors, 1e-12)
        close(segments.scores[b, :n], torch.tensor(scores, dtype=torch.float64), 1e-12)
    probe = torch.randn(segments.vectors.shape, generator=generator, dtype=torch.float64)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    actual = torch.autograd.grad((segments.vectors * probe).sum(), parameters)
    literal = sum((vectors * probe[b, : len(vectors)]).sum() for b, (vectors, _, _) in enumerate(rows))
    wanted = torch.autograd.grad(literal, parameters)
    for name, ours, theirs in zip(names, actual, wanted, strict=True):
        close(ours, theirs, 1e-12, name)
    detector = dict(zip(names, actual, strict=True))["boundary.weight"]
    assert detector.abs().max() > 1e-3


def test_where_all_cuts_are_given_its_gradient_is_the_slope_of_the_loss() -> None:
    torch.manual_seed(0)
    layer = HmrnnSegmenter(5, 2, 2, 2, slope=1e6).double()  # so steep that cuts have no gradient
    symbols, lengths = ragged([6, 3], 5, torch.Generator().manual_seed(0))
    cuts = torch.where(symbols % 3 == 0, 1, -1).to(torch.int8)
    names, values = zip(
        *((n, p.detach().requires_grad_()) for n, p in layer.named_parameters() if "boundary" not in n),
        strict=True,
    )

    def run(*parameters: Tensor) -> Tensor:
        options = {"given": cuts}
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(layer, named, (symbols, lengths), options).vectors

    assert torch.autograd.gradcheck(run, values)


def test_company_padding_and_what_stands_in_it_do_not_matter() -> None:
    layer = hmrnn(rate=Rate(3.0))
    symbols, lengths = ragged(LENGTHS, VOCABULARY - 1, torch.Generator().manual_seed(1))
    wider = torch.cat((symbols, symbols[:, :3]), 1)
    beyond = torch.arange(wider.shape[1]) >= lengths[:, None]
    layer.control.start_at(0.6)  # type: ignore[union-attr]
    for poison in (0.0, torch.nan, torch.inf):
        with torch.no_grad():  # the last symbol is in no sentence
            layer.embedding.weight[VOCABULARY - 1] = poison
        layer.zero_grad()
        segments = layer(wider.masked_fill(beyond, VOCABULARY - 1), lengths)
        for b, n in enumerate(LENGTHS):
            alone = layer(symbols[b : b + 1, :n], lengths[b : b + 1])
            count = int(alone.lengths[0])
            assert int(segments.lengths[b]) == count
            assert not segments.vectors[b, count:].any()
            close(segments.vectors[b, :count], alone.vectors[0])
            for name in ("ends", "weights", "live", "scores"):
                whole, lone = getattr(segments, name), getattr(alone, name)
                close(whole[b, :n].double(), lone[0].double(), 1e-12, name)
                assert not whole[b, n:].any(), name
        segments.vectors.square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all(), name


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 99),
)
def test_pieces_are_the_whole(sizes: list[list[int]], some: bool, seed: int) -> None:
    """`sizes`: for each piece, how many symbols each of three sentences has in it."""
    rate = Rate(2.5) if seed % 2 else None
    layer, sizes = hmrnn(seed, rate=rate), [*sizes, [1, 2, 1]]  # the last one has </s>
    lengths = torch.tensor(sizes).sum(0)
    symbols, _ = ragged(lengths.tolist(), VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = marked(symbols, some)
    whole = layer(symbols, lengths, given=cuts)
    vectors: list[list[Tensor]] = [[], [], []]
    state, at = None, torch.zeros(3, dtype=torch.long)
    for number, piece in enumerate(map(torch.tensor, sizes)):
        places = (at[:, None] + torch.arange(int(piece.max()))).clamp(max=symbols.shape[1] - 1)
        piece_cuts = None if cuts is None else cuts.gather(1, places)
        part = layer(symbols.gather(1, places), piece, state, number == len(sizes) - 1, piece_cuts)
        for b, count in enumerate(part.lengths.tolist()):
            vectors[b] += [*part.vectors[b, :count]]
        state, at = part.state, at + piece
    assert state is None
    for b, count in enumerate(whole.lengths.tolist()):
        assert len(vectors[b]) == count
        close(torch.stack(vectors[b]), whole.vectors[b, :count], 1e-12)
    together = torch.cat([vector for row in vectors for vector in row]).square().sum()
    ours = torch.autograd.grad(together, [*layer.parameters()])
    theirs = torch.autograd.grad(whole.vectors.square().sum(), [*layer.parameters()])
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-12)


def test_nothing_in_it_depends_on_where_the_cuts_are() -> None:
    """Tensors without contents: asking for one, or for a shape that follows from one, would fail."""
    with FakeTensorMode():
        layer = HmrnnSegmenter(VOCABULARY, 4, 5, 3, rate=Rate(3.0))
        symbols, lengths = torch.zeros(2, 7, dtype=torch.long), torch.zeros(2, dtype=torch.long)
        draft = layer.cut(symbols, lengths)
        vectors = layer.emit(draft, 5).vectors
        assert vectors.shape == (2, 5, 3)
        vectors.sum().backward()
        with pytest.raises(DataDependentOutputException):
            int(draft.cuts.segments)
    assert layer.uncaptured() is None


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0)])
def test_a_batch_may_be_empty(shape: tuple[int, int]) -> None:
    symbols, lengths = torch.zeros(shape, dtype=torch.long), torch.zeros(shape[0], dtype=torch.long)
    segments = hmrnn(rate=Rate(2.0))(symbols, lengths)
    assert segments.vectors.shape[::2] == (shape[0], 3)
    assert segments.lengths.tolist() == [0] * shape[0]


@pytest.mark.parametrize("target", [1.0, 2.0, 3.0, 4.0, 6.0])
def test_segments_start_near_the_target(target: float) -> None:
    torch.manual_seed(0)
    layer = HmrnnSegmenter(300, 40, 30, 5, rate=Rate(target))
    symbols, lengths = ragged([61] * 50, 300, torch.Generator().manual_seed(0))
    count = count_cuts(layer(symbols, lengths).ends, lengths)
    assert float(count.characters / count.segments) == pytest.approx(target, rel=0.25)
    assert layer.target == target
    assert {"slope", "target_length", "threshold"} == {*layer.knobs}


def test_a_threshold_on_text_gives_the_rate_and_training_has_its_own() -> None:
    torch.manual_seed(0)
    layer = HmrnnSegmenter(300, 12, 8, 5, rate=Rate(3.0))
    texts = [(*ragged([n] * 10, 300, torch.Generator().manual_seed(n)), None) for n in (20, 35)]
    layer.settle(texts)
    assert layer.training
    layer.eval()
    counts = [count_cuts(layer(symbols, lengths).ends, lengths) for symbols, lengths, _ in texts]
    characters, segments = (sum(int(count[k]) for count in counts) for k in (0, 1))
    assert characters / segments == pytest.approx(3.0, abs=0.02)
    kept = layer.control
    assert kept is not None
    assert kept.threshold != 0.5
    kept.start_at(0.5)
    kept.training_threshold.value.fill_(0.1)  # type: ignore[union-attr]
    symbols, lengths, _ = texts[1]
    assert layer.train()(symbols, lengths).ends.sum() > layer.eval()(symbols, lengths).ends.sum()


@pytest.mark.parametrize("start", [0.5, 0.01, 40.0])
def test_the_threshold_is_the_nearest_of_a_few_that_were_tried(
    start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = HmrnnSegmenter(300, 12, 8, 5, rate=Rate(3.0))
    with torch.no_grad():
        layer.boundary.weight[:, 12:] *= 9  # so that each cut changes those after it
    symbols, lengths = ragged([40] * 4, 300, torch.Generator().manual_seed(1))
    control, cut, tried = layer.control, layer.cut, dict[float, float]()
    assert control is not None

    def counted(*args: Any, **options: Any) -> Any:
        draft = cut(*args, **options)
        count = count_cuts(draft.cuts.ends, lengths)
        tried[control.threshold.item()] = abs(math.log(float(count.characters / count.segments) / 3.0))
        return draft

    monkeypatch.setattr(layer, "cut", counted)
    control.training_threshold.value.fill_(start)  # type: ignore[union-attr]
    layer.settle([(symbols, lengths, None)])
    assert len(tried) <= 8
    assert tried[control.threshold.item()] == min(tried.values()) < 0.05
    kept = control.threshold.item()
    layer.settle([(symbols, lengths, None)])
    assert control.threshold.item() == kept
    layer.settle([])
    assert control.threshold.item() == start


def test_where_the_length_jumps_about_the_nearest_threshold_is_kept() -> None:
    """Bisection would end where it jumps from 90 to 20 segments of 160 characters."""

    def count_at(threshold: float) -> tuple[int, int]:
        return 160, 41 if 0.7 < threshold < 0.75 else 90 if threshold < 1 else 20

    tried: list[float] = []
    best = threshold_near(lambda at: (tried.append(at), count_at(at))[1], 4.0, 0.5)
    assert count_at(best) == (160, 41)
    assert len(tried) == 8
    assert threshold_near(lambda at: (160, 160), 1.0, 0.5) == 0.5
    assert threshold_near(lambda at: (0, 0), 3.0, 0.7) == 0.7
    assert threshold_near(lambda at: (160, 10), 3.0, 0.7) == 0.7  # nothing helps


def test_a_threshold_is_a_number_of_segments_that_are_not_owed() -> None:
    layer = hmrnn(rate=Rate(2.0))
    symbols, lengths = ragged([12], VOCABULARY, torch.Generator().manual_seed(0))
    unit = layer.boundary.weight.detach().norm() / math.sqrt(layer.boundary.in_features)
    layer.control.start_at(0.8)  # type: ignore[union-attr]
    cuts = layer(symbols, lengths).cuts
    owed = torch.arange(1.0, 13, dtype=torch.float64) / 2 - (cuts.ends.cumsum(1) - cuts.ends.long())
    change = torch.sinh(owed - math.log(1.6)) - torch.sinh(owed)
    layer.control.start_at(0.5)  # type: ignore[union-attr]
    assert cuts.ends.equal(layer.shifted(symbols, lengths, unit * change.double()).cuts.ends)
    close(cuts.logits, layer.shifted(symbols, lengths, unit * change.double()).cuts.logits, 1e-12)


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from([0.1, 3.0, 1000.0]), st.sampled_from([1.0, 2.0, 4.0, 9.0]))
def test_no_weights_keep_a_sentence_far_from_its_rate(seed: int, scale: float, target: float) -> None:
    """A logit is at most the norms of weights and inputs; owed segments add the weights' norm times sinh."""
    layer = hmrnn(seed, rate=Rate(target))
    with torch.no_grad():
        layer.boundary.weight.mul_(scale)
        layer.boundary.weight[:, 4:] -= 3 * scale  # one state would cut always, and one never
    symbols, lengths = ragged([150, 90, 33], VOCABULARY, torch.Generator().manual_seed(seed))
    ends, inner = layer(symbols, lengths).ends, torch.arange(150) < lengths[:, None] - 1
    owed = torch.arange(1, 151) / target - (ends & inner).cumsum(1)
    unit = layer.boundary.weight.norm().item() / 3  # of 4 + 5 inputs
    largest = math.sqrt(layer.embedding.weight.norm(dim=1).max().item() ** 2 + 5)  # no state is beyond 1
    bound = math.asinh(largest + abs(layer.boundary.bias.item()) / unit) + 1
    assert owed[inner].abs().max() < bound


@pytest.mark.parametrize("scale", [3.0, -1000.0])
def test_a_threshold_gives_the_rate_to_weights_that_would_never_or_always_cut(scale: float) -> None:
    layer = hmrnn(rate=Rate(4.0))
    with torch.no_grad():
        layer.boundary.weight.mul_(abs(scale))
        layer.boundary.weight[:, 4:] -= 3 * scale
    symbols, lengths = ragged([90, 60], VOCABULARY, torch.Generator().manual_seed(0))
    layer.settle([(symbols, lengths, None)])
    count = count_cuts(layer.eval()(symbols, lengths).ends, lengths)
    assert float(count.characters / count.segments) == pytest.approx(4.0, rel=0.03)


def test_the_slope_decides_how_much_is_learned_and_not_where_cuts_are() -> None:
    symbols, lengths = ragged([40] * 3, VOCABULARY, torch.Generator().manual_seed(0))
    layer = hmrnn(slope=Schedule(1.0, 5.0, 4))
    early = layer(symbols, lengths)
    layer.slope.follow(4)
    late = layer(symbols, lengths)
    assert early.vectors.equal(late.vectors)
    assert late.live.sum() < early.live.sum()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"slope": 0.0}, "slope"),
        ({"slope": Schedule(1.0, -1.0, 9)}, "slope"),
        ({"rate": Rate(3.0, "pi")}, "rate.by pi"),
        ({"rate": Rate(3.0, "scaling")}, "rate.by scaling"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], name: str) -> None:
    with refuses(ValueError, f"{name} "):
        hmrnn(**options)
    with refuses(ValueError, "size "):
        HmrnnSegmenter(9, 4, 0, 4)
