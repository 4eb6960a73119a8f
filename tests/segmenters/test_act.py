"""ActSegmenter is Algorithm 1: the batched layer against the listing, hand-worked numbers, gradients."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from combinations import VOCABULARY, act_layer
from helpers import check_away_from_threshold, close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.segmenters.act import ActSegmenter, ActState
from caesura.segmenters.act_listing import act_enc

# halting bias and the factor on all weights that give each kind of segments
REGIMES = {"one character": (9.0, 1.0), "mixed": (-0.5, 3.0), "whole sentence": (-9.0, 1.0)}


def layer(
    seed: int = 0, regime: str = "mixed", dtype: torch.dtype = torch.float64, **options: Any
) -> ActSegmenter:
    """A random layer whose segments are of the given kind."""
    return act_layer(seed, *REGIMES[regime], **options).to(dtype)


def memoryless(states: list[list[float]], z: float, **options: Any) -> ActSegmenter:
    """A layer whose cell is s <- z * s + (1 - z) * states[x], so that it can be worked by hand."""
    size = len(states[0])
    made = ActSegmenter(len(states), size, size, output_dim=1, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.embedding.weight.copy_(torch.tensor(states, dtype=torch.float64).atanh())
        made.cell.weight_ih[2 * size :] = torch.eye(size)
        made.cell.bias_ih[size : 2 * size] = math.log(z / (1 - z)) if z else -math.inf
    return made


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def steady(h: float) -> ActSegmenter:
    """A layer that scores every symbol h."""
    made = memoryless([[0.5]], z=0.0)
    torch.nn.init.constant_(made.halting.bias, logit(h))
    return made


def segment_sums(weights: Tensor, ends: Tensor) -> list[Tensor]:
    """The weights of each segment of one sentence [T], summed; they must use up the sentence."""
    cuts = [0, *(ends.nonzero().squeeze(1) + 1).tolist()]
    assert cuts[-1] == len(ends)
    return [weights[a:b].sum() for a, b in pairwise(cuts)]


@pytest.mark.parametrize("vocab_size", [VOCABULARY, 500])  # input projections by table, and one per symbol
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_batched_layer_is_the_listing_in_outputs_and_in_every_gradient(
    regime: str, seed: int, vocab_size: int
) -> None:
    made = layer(seed, regime, vocab_size=vocab_size)
    generator = torch.Generator().manual_seed(seed)
    symbols, lengths = ragged([7, 1, 12, 2, 9], vocab_size, generator)
    segments = made(symbols, lengths)
    rows = [act_enc(made, row[:n]) for row, n in zip(symbols, lengths.tolist(), strict=True)]

    sizes = [sum(row.ends) for row in rows]
    if regime == "one character":
        assert sizes == lengths.tolist()
    elif regime == "whole sentence":
        assert sizes == [1] * len(rows)
    else:
        spans = {b - a for row in rows for a, b in pairwise([-1, *(t for t, f in enumerate(row.ends) if f)])}
        assert len(spans) > 1
        assert any(1 < size < n for size, n in zip(sizes, lengths.tolist(), strict=True))

    probe = torch.randn(segments.vectors.shape, generator=generator, dtype=torch.float64)
    tilt = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    assert segments.lengths.tolist() == sizes
    assert segments.scores is not None
    for b, (row, n) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        assert segments.ends[b, :n].tolist() == row.ends
        assert not segments.ends[b, n:].any()
        close(segments.vectors[b, : sizes[b]], row.vectors, what="vectors")
        for name, whole in (("weights", segments.weights), ("scores", segments.scores)):
            close(whole[b, :n], getattr(row, name), what=name)
            assert not whole[b, n:].any(), name
        assert not segments.vectors[b, sizes[b] :].any()
    close(segments.penalty, torch.stack([row.penalty for row in rows]), what="penalty")

    names, parameters = zip(*made.named_parameters(), strict=True)
    actual = torch.autograd.grad(
        (segments.vectors * probe).sum() + (segments.penalty * tilt).sum(), parameters
    )
    literal = sum(
        (row.vectors * probe[b, : sizes[b]]).sum() + row.penalty * tilt[b] for b, row in enumerate(rows)
    )
    expected = torch.autograd.grad(literal, parameters, allow_unused=True, materialize_grads=True)
    for name, ours, theirs in zip(names, actual, expected, strict=True):
        close(ours, theirs, what=name)


def test_gradients_agree_with_finite_differences_away_from_the_threshold() -> None:
    made = layer(0, vocab_size=5, embedding_dim=2, act_size=3, output_dim=2)
    symbols, lengths = torch.tensor([[0, 3, 1, 4, 2, 2], [4, 1, 0, 0, 0, 0]]), torch.tensor([6, 3])
    segments = made(symbols, lengths)
    assert segments.scores is not None
    assert 2 < segments.lengths.sum() < 9
    check_away_from_threshold(segments.scores, segments.ends, lengths, made.epsilon)
    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in made.named_parameters()), strict=True)

    def run(*parameters: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.func.functional_call(made, dict(zip(names, parameters, strict=True)), (symbols, lengths))
        return out.vectors, out.penalty

    assert torch.autograd.gradcheck(run, values)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 999),
    bias=st.floats(-6, 6),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_the_weights_of_every_segment_sum_to_one(seed: int, bias: float, lengths: list[int]) -> None:
    made = layer(seed)
    torch.nn.init.constant_(made.halting.bias, bias)
    segments = made(*ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed)))
    for b, n in enumerate(lengths):
        sums = segment_sums(segments.weights[b, :n], segments.ends[b, :n])
        assert len(sums) == segments.lengths[b]
        close(torch.stack(sums), torch.ones(len(sums), dtype=torch.float64), 1e-12)
    assert (segments.weights >= 0).all()


def test_a_sentence_worked_by_hand() -> None:
    # A: s <- (s + 0.5) / 2, B: s <- (s - 0.5) / 2; every score is 0.4; output 2 s + 1. A A B A B:
    #   s1 = 0.25  s2 = 0.375  s3 = -0.0625     H: 0.4, 0.8, 1.2 >= 0.99 halts; p = 0.4, 0.4, 0.2
    #   s_mean = 0.1 + 0.15 - 0.0125 = 0.2375   -> 1.475
    #   s4 = (0.2375 + 0.5) / 2 = 0.36875  s5 = (0.36875 - 0.5) / 2 = -0.065625    p = 0.4, then the end: 0.6
    #   s_mean = 0.1475 - 0.039375 = 0.108125   -> 1.21625
    #   penalty = (1 - 0.4 - 0.4 - 0.4) / 5 = -0.04
    made = memoryless([[0.5], [-0.5]], z=0.5, halting_bias=0.0)
    torch.nn.init.constant_(made.halting.bias, logit(0.4))
    torch.nn.init.constant_(made.output.weight, 2.0)
    torch.nn.init.constant_(made.output.bias, 1.0)
    segments = made(torch.tensor([[0, 0, 1, 0, 1]]), torch.tensor([5]))
    assert segments.ends.tolist() == [[False, False, True, False, True]]
    assert segments.weights[0].tolist() == pytest.approx([0.4, 0.4, 0.2, 0.4, 0.6])
    assert segments.vectors[0, :, 0].tolist() == pytest.approx([1.475, 1.21625])
    assert segments.penalty.tolist() == pytest.approx([-0.04])


def test_a_vector_is_the_weighted_mean_of_the_outputs_of_its_symbols() -> None:
    made = layer(2)
    symbols, lengths = ragged([14], VOCABULARY, torch.Generator().manual_seed(2))
    segments = made(symbols, lengths)
    assert 1 < segments.lengths[0] < 14
    s, s_mean, o_mean, means = torch.zeros(1, 5, dtype=torch.float64), 0, 0, []
    for x, p, f in zip(symbols[0], segments.weights[0], segments.ends[0], strict=True):
        s = made.cell(made.embedding(x)[None], s)
        s_mean, o_mean = s_mean + p * s, o_mean + p * made.output(s)
        if f:
            means.append(o_mean)
            s, s_mean, o_mean = s_mean, 0, 0
    close(segments.vectors[0], torch.cat(means), 1e-12)


def test_only_scores_that_do_not_halt_get_a_gradient() -> None:
    # The cell forgets, and the output reads feature 0 alone: feature 1 of a symbol is only for its score.
    goes, halts = 0, 1
    made = memoryless([[0.3, math.tanh(-0.5)], [0.6, math.tanh(2.0)]], z=0.0, halting_bias=0.0)
    with torch.no_grad():
        made.halting.weight.copy_(torch.tensor([[0.0, 5.0]]))
        made.output.weight.copy_(torch.tensor([[1.0, 0.0]]))
    segments = made(torch.tensor([[goes, halts, goes, goes, halts]]), torch.tensor([5]))
    assert segments.ends.tolist() == [[False, True, False, False, True]]
    (segments.vectors.square().sum() + segments.penalty.sum()).backward()
    gradient = made.embedding.weight.grad
    assert gradient is not None
    assert gradient[goes, 1] != 0
    assert gradient[halts, 1] == 0
    assert gradient[halts, 0] != 0


@pytest.mark.parametrize(("regime", "none"), [("one character", True), ("mixed", False)])
def test_the_halting_unit_gets_exactly_no_gradient_where_every_character_halts(
    regime: str, none: bool
) -> None:
    made = layer(1, regime)
    segments = made(*ragged([6, 3], VOCABULARY, torch.Generator().manual_seed(1)))
    (segments.vectors.square().sum() + segments.penalty.sum()).backward()
    for parameter in (made.halting.weight, made.halting.bias):
        assert parameter.grad is not None
        assert (not parameter.grad.any()) is none
    assert made.output.weight.grad is not None
    assert made.output.weight.grad.any()


@pytest.mark.parametrize(
    ("h", "segments", "penalty"),
    [
        (0.995, 100, 0.01),  # every character halts: (1 - 0) / 100
        (0.98, 50, -0.48),  # (1 - 50 * 0.98) / 100
        (0.0099, 1, 0.000199),  # the end alone halts: (1 - 99 * 0.0099) / 100
    ],
)
def test_the_literal_penalty_of_a_hundred_characters(h: float, segments: int, penalty: float) -> None:
    result = steady(h)(torch.zeros(1, 100, dtype=torch.long), torch.tensor([100]))
    assert result.lengths.tolist() == [segments]
    assert result.penalty.tolist() == pytest.approx([penalty])


def test_the_penalty_counts_the_scores_that_did_not_halt() -> None:
    segments = layer(3)(*ragged([9, 4, 1], VOCABULARY, torch.Generator().manual_seed(3)))
    assert segments.scores is not None
    assert segments.penalty.min() < 0
    for b, n in enumerate([9, 4, 1]):
        going = segments.scores[b, :n][~segments.ends[b, :n]].sum()
        close(segments.penalty[b], (1 - going) / n)


@settings(max_examples=15)
@given(seed=st.integers(0, 999), lengths=st.lists(st.integers(1, 10), min_size=2, max_size=5))
def test_batch_mates_and_whatever_stands_in_the_padding_do_not_matter(seed: int, lengths: list[int]) -> None:
    made = layer(seed)
    generator = torch.Generator().manual_seed(seed)
    symbols, sizes = ragged(lengths, VOCABULARY - 1, generator)
    poison = VOCABULARY - 1  # a symbol that is in no sentence, with an embedding that nothing survives
    with torch.no_grad():
        made.embedding.weight[poison] = 1e30
    beyond = torch.arange(symbols.shape[1]) >= sizes[:, None]
    together, poisoned = made(symbols, sizes), made(symbols.masked_fill(beyond, poison), sizes)
    for b, n in enumerate(lengths):
        alone = made(symbols[b : b + 1, :n], sizes[b : b + 1])
        for segments in (together, poisoned):
            count = int(segments.lengths[b])
            assert segments.ends[b, :n].equal(alone.ends[0])
            for name in ("vectors", "weights", "scores", "penalty"):
                whole, expected = getattr(segments, name)[b], getattr(alone, name)[0]
                close(whole[: len(expected)] if expected.dim() else whole, expected, 1e-12, name)
            assert not segments.vectors[b, count:].any()
            assert not segments.weights[b, n:].any()


def test_no_gradient_reaches_the_symbols_in_the_padding() -> None:
    made = layer(5)
    symbols, lengths = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 0, 0, 0]]), torch.tensor([5, 2])
    segments = made(symbols, lengths)
    (segments.vectors.square().sum() + segments.penalty.sum()).backward()
    gradient = made.embedding.weight.grad
    assert gradient is not None
    assert not gradient[0].any()
    assert gradient[1:6].any(1).all()


@st.composite
def cut_sentences(draw: st.DrawFn) -> list[list[int]]:
    """Sizes of the pieces of some sentences, equally many each; only the last must not be empty."""
    pieces = draw(st.integers(1, 5))
    row = st.lists(st.integers(0, 4), min_size=pieces, max_size=pieces).filter(lambda sizes: sizes[-1] > 0)
    return draw(st.lists(row, min_size=1, max_size=3))


@settings(max_examples=30)
@given(seed=st.integers(0, 999), cuts=cut_sentences(), regime=st.sampled_from([*REGIMES]))
def test_sentences_fed_in_pieces_are_segmented_as_if_whole(
    seed: int, cuts: list[list[int]], regime: str
) -> None:
    made = layer(seed, regime)
    generator = torch.Generator().manual_seed(seed)
    symbols, lengths = ragged([sum(row) for row in cuts], VOCABULARY, generator)
    whole = made(symbols, lengths)
    parts: list[dict[str, list[Tensor]]] = [
        {name: [] for name in ("ends", "weights", "scores", "vectors")} for _ in cuts
    ]
    penalty, state, read = torch.zeros(len(cuts), dtype=torch.float64), None, [0] * len(cuts)
    for i, sizes in enumerate(zip(*cuts, strict=True)):
        piece, piece_lengths = ragged([*sizes], VOCABULARY, generator)
        for b, n in enumerate(sizes):
            piece[b, :n] = symbols[b, read[b] : read[b] + n]
            read[b] += n
        segments = made(piece, piece_lengths, state, final=i == len(cuts[0]) - 1)
        state, penalty = segments.state, penalty + segments.penalty
        for b, n in enumerate(sizes):
            for name, rows in parts[b].items():
                rows.append(
                    getattr(segments, name)[b][: int(segments.lengths[b]) if name == "vectors" else n]
                )
    assert state is None
    for b, n in enumerate(lengths.tolist()):
        for name, rows in parts[b].items():
            size = int(whole.lengths[b]) if name == "vectors" else n
            close(torch.cat(rows), getattr(whole, name)[b, :size], 1e-12, name)
    close(penalty, whole.penalty, 1e-12, "penalty")


def test_an_unfinished_piece_leaves_its_last_segment_open() -> None:
    made = layer(0, "whole sentence")
    segments = made(torch.tensor([[1, 2, 3]]), torch.tensor([3]), final=False)
    assert not segments.ends.any()
    assert segments.lengths.tolist() == [0]
    assert segments.vectors.shape == (1, 0, 3)
    assert isinstance(segments.state, ActState)
    close(segments.state.halting_sum, segments.weights.sum(1))


@pytest.mark.parametrize(("lengths", "steps"), [([], 0), ([], 3), ([0, 0], 0), ([0, 0], 2), ([0, 4], 4)])
def test_sentences_without_symbols_have_no_segments_and_no_penalty(lengths: list[int], steps: int) -> None:
    segments = layer()(
        torch.zeros(len(lengths), steps, dtype=torch.long), torch.tensor(lengths, dtype=torch.long)
    )
    most = int(segments.lengths.max()) if lengths else 0
    assert segments.vectors.shape == (len(lengths), most, 3)
    assert segments.ends.shape == segments.weights.shape == (len(lengths), steps)
    assert segments.ends.dtype == torch.bool
    for b, n in enumerate(lengths):
        assert (segments.lengths[b] > 0) == (n > 0)
        if n == 0:
            assert segments.penalty[b] == 0
            assert not segments.vectors[b].any()
            assert not segments.ends[b].any()


def test_under_autocast_the_halting_sum_stays_in_float32() -> None:
    made = layer(1, dtype=torch.float32)
    symbols, lengths = ragged([40, 25], VOCABULARY, torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        segments, open_ended = made(symbols, lengths), made(symbols, lengths, final=False)
    assert isinstance(open_ended.state, ActState)
    for tensor in (
        open_ended.state.halting_sum,
        open_ended.state.hidden,
        segments.weights,
        segments.scores,
        segments.penalty,
    ):
        assert tensor is not None
        assert tensor.dtype == torch.float32
    assert 2 < segments.lengths[0] < 40
    for b, n in enumerate(lengths.tolist()):
        sums = torch.stack(segment_sums(segments.weights[b, :n], segments.ends[b, :n]))
        close(sums, torch.ones_like(sums), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_outputs_have_the_dtype_of_the_weights(dtype: torch.dtype) -> None:
    segments = layer(dtype=dtype)(*ragged([4, 2], VOCABULARY, torch.Generator().manual_seed(0)))
    assert segments.scores is not None
    for tensor in (segments.vectors, segments.weights, segments.scores, segments.penalty):
        assert tensor.dtype == dtype


@pytest.mark.parametrize(
    ("option", "value"),
    [("embedding_dim", 0), ("act_size", 0), ("output_dim", -1), ("epsilon", -0.1), ("epsilon", 1.0)],
)
def test_a_bad_option_is_named_first_in_the_refusal(option: str, value: float) -> None:
    options = {"vocab_size": 4, "embedding_dim": 2, "act_size": 2, "output_dim": 2, option: value}
    with refuses(ValueError, f"{option} ", value):
        ActSegmenter(**options)


def test_the_halting_bias_is_what_was_asked_for() -> None:
    assert ActSegmenter(4, 2, 2, 2).halting.bias.item() == 1.0
    assert ActSegmenter(4, 2, 2, 2, halting_bias=-2.5).halting.bias.item() == -2.5
