"""ActDecoder is Algorithm 2: the machine against the listing's nested loops, numbers by hand, gradients."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from decoders.machines import KINDS, REGIMES, alone, decoder, memory, targets
from helpers import check_away_from_threshold, check_slope, close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.data.vocabulary import BOS
from caesura.decoders.act import ActDecoder
from caesura.decoders.act_listing import Listing, act_dec
from caesura.encoders.base import Encoded


def check_regime(regime: str, rows: list[Listing]) -> None:
    sizes = [sum(row.ends) for row in rows]
    lengths = [len(row.ends) for row in rows]
    if regime == "one character":
        assert sizes == lengths
    elif regime == "whole sentence":
        assert sizes == [1] * len(rows)
    else:
        spans = {b - a for row in rows for a, b in pairwise([-1, *(t for t, f in enumerate(row.ends) if f)])}
        assert len(spans) > 1
        assert any(1 < size < n for size, n in zip(sizes, lengths, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("seed", range(3))
def test_the_machine_is_the_listing_in_outputs_and_in_every_gradient(
    regime: str, seed: int, kind: str
) -> None:
    made = decoder(seed, regime, **KINDS[kind])
    encoded = memory([5, 1, 3, 4, 2], seed, KINDS[kind].get("summary_dim", 6))
    leaves = {"states": encoded.states.requires_grad_(), "summary": encoded.summary.requires_grad_()}
    lengths = [7, 2, 12, 1, 9]
    out, before, sizes = targets(lengths, seed)
    decoded = made(encoded, before, sizes)
    rows = [act_dec(made, alone(encoded, b), out[b, :n]) for b, n in enumerate(lengths)]
    check_regime(regime, rows)

    for b, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        assert decoded.ends[b, :n].tolist() == row.ends
        assert not decoded.ends[b, n:].any()
        close(decoded.logits[b, :n], row.logits, what="logits")
        for name, whole in (("weights", decoded.weights), ("scores", decoded.scores)):
            close(whole[b, :n], getattr(row, name), what=name)
            assert not whole[b, n:].any(), name
        # One row an outer step in the listing; here each symbol has its segment's.
        segment = decoded.ends[b, :n].cumsum(0) - decoded.ends[b, :n].long()
        close(decoded.attention[b, :n, : int(encoded.lengths[b])], row.attention[segment], what="attention")
    close(decoded.penalty, torch.stack([row.penalty for row in rows]), what="penalty")

    generator = torch.Generator().manual_seed(seed)
    probe = torch.randn(decoded.logits.shape, generator=generator, dtype=torch.float64)
    tilt = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    probe.masked_fill_((torch.arange(max(lengths)) >= sizes[:, None])[..., None], 0)
    literal = sum(
        (row.logits * probe[b, : lengths[b]]).sum() + row.penalty * tilt[b] for b, row in enumerate(rows)
    )
    inputs = leaves | dict(made.named_parameters())
    actual = torch.autograd.grad(
        (decoded.logits * probe).sum() + (decoded.penalty * tilt).sum(), inputs.values()
    )
    expected = torch.autograd.grad(literal, inputs.values(), allow_unused=True, materialize_grads=True)
    for name, ours, theirs in zip(inputs, actual, expected, strict=True):
        close(ours, theirs, what=name)
        # Without a halt before the end nothing goes back to the outer RNN; with one everywhere, no h is free.
        silent = {"whole sentence": "leave", "one character": "halting"}.get(regime, "-")
        assert bool(theirs.any()) is not name.startswith(silent), name


@pytest.mark.parametrize("kind", ["plain", pytest.param("context fed", marks=pytest.mark.slow)])
def test_gradients_agree_with_finite_differences_away_from_the_threshold(kind: str) -> None:
    small = {"embedding_dim": 2, "hidden_size": 2, "act_size": 3, "attention_size": 2, "summary_dim": 2}
    made = decoder(3, vocab_size=7, **small, **KINDS[kind])
    encoded = memory([3, 2], summary_dim=2)
    before, lengths = torch.tensor([[BOS, 4, 6, 5, 4], [BOS, 5, 5, 0, 0]]), torch.tensor([5, 3])
    decoded = made(encoded, before, lengths)
    assert 2 < decoded.ends.sum() < 8
    check_away_from_threshold(decoded.scores, decoded.ends, lengths, made.epsilon)
    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in made.named_parameters()), strict=True)
    within = (torch.arange(5) < lengths[:, None])[..., None]

    def run(states: Tensor, summary: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        given = replace(encoded, states=states, summary=summary), before, lengths
        result = torch.func.functional_call(made, dict(zip(names, parameters, strict=True)), given)
        return result.logits * within, result.penalty

    leaves = encoded.states.requires_grad_(), encoded.summary.requires_grad_(), *values
    check_slope(run, leaves)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 999),
    bias=st.floats(-6, 6),
    epsilon=st.sampled_from([0.0, 0.01, 0.3]),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_the_weights_of_every_segment_sum_to_one(
    seed: int, bias: float, epsilon: float, lengths: list[int]
) -> None:
    made = decoder(seed, epsilon=epsilon)
    torch.nn.init.constant_(made.halting.bias, bias)
    decoded = made(memory([3] * len(lengths), seed), *targets(lengths, seed)[1:])
    for b, n in enumerate(lengths):
        cuts = [0, *(decoded.ends[b, :n].nonzero().squeeze(1) + 1).tolist()]
        assert cuts[-1] == n
        sums = torch.stack([decoded.weights[b, i:j].sum() for i, j in pairwise(cuts)])
        close(sums, torch.ones_like(sums), 1e-12)
    assert (decoded.weights >= 0).all()


def hand_made(h: float, **options: Any) -> ActDecoder:
    """All sizes 1, every score h, one source state of 1: a machine that can be worked by hand.

    R is s_rnn <- tanh(e + c / 2 + s_rnn / 2), S is s <- tanh(i + s / 2); symbol 4 is scored s, others 0.
    """
    sizes = {"memory_dim": 1, "summary_dim": 1, "embedding_dim": 1, "hidden_size": 1, "act_size": 1}
    made = ActDecoder(vocab_size=6, **sizes, attention_size=1, **options).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.embedding.weight.copy_(torch.tensor([[0.0], [0.0], [0.3], [9.0], [0.4], [-0.2]]))
        for cell in (made.outer, made.inner):
            cell.bias_ih[0] = 40.0  # r = 1
            cell.bias_ih[1] = -40.0  # z = 0
            cell.weight_ih[2, 0] = 1.0
            cell.weight_hh[2] = 0.5
        made.outer.weight_ih[2, 1] = 0.5
        made.halting.bias.fill_(math.log(h / (1 - h)))
        made.output.weight.fill_(1.0)
        made.symbols.weight[4] = 1.0
    return made


def test_halting_at_every_character_is_what_the_equations_say() -> None:
    # Every segment is one character: p = 1, so s_mean is its state and e its embedding.
    made = hand_made(0.995)
    decoded = made(
        Encoded(torch.ones(1, 1, 1).double(), torch.tensor([1]), torch.full((1, 1), 0.2).double()),
        torch.tensor([[BOS, 4, 5]]),
        torch.tensor([3]),
    )
    tanh, s_rnn, states = math.tanh, 0.2, []
    for e in (0.3, 0.4, -0.2):
        s_rnn = tanh(e + 0.5 * 1 + 0.5 * s_rnn)  # R(s_rnn, [e; c]), c = 1
        s = tanh(e + 0.5 * s_rnn)  # S(P(s_rnn), e), P the identity
        s_rnn = s  # Q(s_mean)
        states.append(s)
    assert decoded.logits[0, :, 4].tolist() == pytest.approx(states)
    assert not decoded.logits[0, :, [0, 1, 2, 3, 5]].any()
    assert decoded.ends.all()
    assert decoded.weights.tolist() == [[1.0, 1.0, 1.0]]
    assert decoded.penalty.tolist() == pytest.approx([1 / 3])


def test_a_sentence_worked_by_hand() -> None:
    # Every score is 0.6: a segment is two characters, p = 0.6 and 0.4. <s> 4 5 5 </s>: [4 5] [5 </s>].
    made = hand_made(0.6)
    decoded = made(
        Encoded(torch.ones(1, 1, 1).double(), torch.tensor([1]), torch.full((1, 1), 0.2).double()),
        torch.tensor([[BOS, 4, 5, 5]]),
        torch.tensor([4]),
    )
    tanh = math.tanh
    s_rnn = tanh(0.3 + 0.5 + 0.5 * 0.2)
    s1 = tanh(0.3 + 0.5 * s_rnn)  # scores "4", from <s>
    s2 = tanh(0.4 + 0.5 * s1)  # scores "5", from "4"
    e, s_rnn = 0.6 * 0.4 + 0.4 * -0.2, 0.6 * s1 + 0.4 * s2
    s_rnn = tanh(e + 0.5 + 0.5 * s_rnn)
    s3 = tanh(e + 0.5 * s_rnn)  # scores the second "5", from the mean of "4" and "5"
    s4 = tanh(-0.2 + 0.5 * s3)  # scores </s>
    assert decoded.logits[0, :, 4].tolist() == pytest.approx([s1, s2, s3, s4])
    assert decoded.ends.tolist() == [[False, True, False, True]]
    assert decoded.weights[0].tolist() == pytest.approx([0.6, 0.4, 0.6, 0.4])
    assert decoded.penalty.tolist() == pytest.approx([(1 - 0.6 - 0.6) / 4])


@pytest.mark.parametrize("regime", REGIMES)
def test_attention_moves_once_a_segment(regime: str) -> None:
    made, lengths = decoder(2, regime), [6, 4]
    decoded = made(memory([5, 3], 2), *targets(lengths, 2)[1:])
    for b, n in enumerate(lengths):
        moved = (decoded.attention[b, 1:n] != decoded.attention[b, : n - 1]).any(1)
        assert moved.equal(decoded.ends[b, : n - 1])
        looked = len({tuple(row.tolist()) for row in decoded.attention[b, :n]})
        assert looked == decoded.ends[b, :n].sum()
        assert regime != "whole sentence" or looked == 1


@settings(max_examples=15)
@given(
    seed=st.integers(0, 999),
    regime=st.sampled_from([*REGIMES]),
    lengths=st.lists(st.integers(1, 8), min_size=2, max_size=4),
)
def test_batch_mates_and_whatever_stands_in_the_padding_do_not_matter(
    seed: int, regime: str, lengths: list[int]
) -> None:
    made = decoder(seed, regime)
    places = [1 + (seed + b) % 4 for b in range(len(lengths))]
    encoded, (_, before, sizes) = memory(places, seed), targets(lengths, seed)
    padding = (torch.arange(encoded.states.shape[1]) >= encoded.lengths[:, None])[..., None]
    beyond = torch.arange(before.shape[1]) >= sizes[:, None]
    poisoned = replace(encoded, states=encoded.states.masked_fill(padding, torch.nan))
    for decoded in (made(encoded, before, sizes), made(poisoned, before.masked_fill(beyond, 0), sizes)):
        for b, n in enumerate(lengths):
            single = made(alone(encoded, b), before[b : b + 1, :n], sizes[b : b + 1])
            for name in ("logits", "ends", "weights", "scores", "penalty"):
                whole, one = getattr(decoded, name)[b], getattr(single, name)[0]
                close(whole[: len(one)] if one.dim() else whole, one, 1e-12, name)
    gradients = torch.autograd.grad(
        made(poisoned, before, sizes).penalty.sum(), [*made.parameters()], materialize_grads=True
    )
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_row_of_padding_costs_nothing_and_teaches_nothing() -> None:
    made, (_, before, _) = decoder(4), targets([5, 5], 4)
    decoded = made(memory([3, 3]), before, torch.tensor([5, 0]))
    assert decoded.penalty[1] == 0
    assert not decoded.ends[1].any()
    gradients = torch.autograd.grad(decoded.penalty.sum(), [*made.parameters()], materialize_grads=True)
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("regime", "by_logits", "by_penalty"),
    [("one character", False, False), ("mixed", True, True), ("whole sentence", False, True)],
)
def test_the_halting_unit_gets_exactly_no_gradient_at_the_ends(
    regime: str, by_logits: bool, by_penalty: bool
) -> None:
    made = decoder(1, regime)
    decoded = made(memory([4, 2], 1), *targets([6, 3], 1)[1:])
    for part, some in (
        (decoded.logits[0].square().sum() + decoded.logits[1, :3].square().sum(), by_logits),
        (decoded.penalty.sum(), by_penalty),
    ):
        for gradient in torch.autograd.grad(part, [*made.halting.parameters()], retain_graph=True):
            assert bool(gradient.any()) is some


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_keeps_state_and_halting_in_float32(dtype: torch.dtype) -> None:
    made, encoded = decoder(1).float(), memory([4, 2], 1)
    encoded = replace(encoded, states=encoded.states.to(dtype), summary=encoded.summary.to(dtype))
    _, before, lengths = targets([6, 4], 1)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        decoded = made(encoded, before, lengths)
        step, state = made.step(made.start(encoded), before[:, :1])
    assert decoded.scores.dtype == decoded.penalty.dtype == state.s.dtype == state.H.dtype == torch.float32
    assert decoded.logits.dtype == step.logits.dtype == dtype
    exact = decoder(1)(memory([4, 2], 1), before, lengths)
    torch.testing.assert_close(
        decoded.scores.double(), exact.scores, atol=0.05 if dtype == torch.bfloat16 else 1e-5, rtol=0
    )


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": 0},
        {"act_size": 0},
        {"hidden_size": 0},
        {"embedding_dim": -1},
        {"output_dim": 0},
        {"attention_size": 0},
        {"epsilon": 1.0},
        {"dropout": 1.0},
        {"halting_bias": math.nan},
        {"share": True, "feed_context": True},
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    with refuses(ValueError, *options):
        decoder(**options)


def test_a_layer_tells_how_it_was_made() -> None:
    assert "\n  epsilon=0.2\n" in repr(decoder(epsilon=0.2))
    assert decoder(share=True).extra_repr() == "epsilon=0.01, share=True"


@pytest.mark.parametrize(
    ("sources", "lengths", "wrong"),
    [(2, [4], "trg_lengths "), (2, [4, 5], "trg_lengths "), (1, [4, 3], "encoded ")],
)
def test_a_target_that_does_not_fit_is_refused(sources: int, lengths: list[int], wrong: str) -> None:
    _, before, _ = targets([4, 3], 0)
    with refuses(ValueError, wrong):
        decoder()(memory([3] * sources), before, torch.tensor(lengths))
