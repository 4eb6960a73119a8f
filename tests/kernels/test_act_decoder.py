"""ActDecode against its reference: outputs and all gradients, on segments of every kind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import comparing
from kernels.comparing import Args, assert_close, assert_no_second_derivative, turned
from torch import Tensor

from caesura.decoders.act import ActDecoder
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE
from caesura.kernels.act_decoder import ActDecoderTrace, act_decode, act_decode_reference
from caesura.kernels.act_decoder_fused import ActDecode, at_beginnings
from caesura.kernels.act_decoder_weights import ActDecoderWeights

NAMES = ("inputs", "outer", "keys", "values", "mask", "forced", *ActDecoderWeights._fields)
DIFFERENTIABLE = ("states", "attention", "weights", "scores")
EPSILON = 0.01
# halting bias and the factor on its weights that give each kind of segments
REGIMES = {"one character": (9.0, 1.0), "mixed": (0.5, 3.0), "whole sentence": (-9.0, 1.0)}


def fused(*args: Tensor | None) -> tuple[Tensor, ...]:
    return ActDecode.apply(*args[:6], EPSILON, *args[6:])


def reference(*args: Any) -> ActDecoderTrace:
    return act_decode_reference(*args[:6], ActDecoderWeights(*args[6:]), EPSILON)


def problem(
    lengths: list[tuple[int, int]],
    sizes: tuple[int, int, int, int],
    regime: str = "mixed",
    fed: bool = False,
    seed: int = 0,
) -> Args:
    """Arguments in float64 for sentences of these source and target lengths; sizes: H, A, E, M.

    Maps between the states where H and A differ; symbols that must end a segment are the last ones.
    """
    generator = torch.Generator().manual_seed(seed)
    B, (S, U), (H, A, E, M) = len(lengths), map(max, zip(*lengths, strict=True)), sizes
    bias, scale = REGIMES[regime]

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def linear(rows: int, columns: int) -> Tensor:
        return random(rows, columns) / columns**0.5

    sources, targets = (torch.tensor(column)[:, None] for column in zip(*lengths, strict=True))
    mask, forced = torch.arange(S) < sources, torch.arange(U) == targets - 1
    memory = [random(B, S, width).masked_fill(~mask[..., None], 0) for width in (E, M)]
    weights = ActDecoderWeights(
        query=linear(E, H),
        energy=3 * linear(1, E),
        context=linear(3 * H, M),
        outer_hh=linear(3 * H, H),
        outer_bias=random(3 * H),
        inner_context=linear(3 * A, M) if fed else None,
        inner_hh=linear(3 * A, A),
        inner_bias=random(3 * A),
        halting_weight=scale * linear(1, A),
        halting_bias=torch.full((1,), bias, dtype=torch.float64),
        enter_weight=None if H == A else linear(A, H),
        enter_bias=None if H == A else random(A),
        leave_weight=None if H == A else linear(H, A),
        leave_bias=None if H == A else random(H),
    )
    return [random(B, U, 3 * H + 3 * A), random(B, H), *memory, mask, forced, *weights]


run = partial(comparing.run, names=NAMES, outputs=ActDecoderTrace._fields)


CASES: dict[str, tuple[list[tuple[int, int]], tuple[int, int, int, int]]] = {
    "ragged": ([(7, 6), (1, 9), (4, 1), (5, 12)], (5, 4, 6, 3)),
    "equal sizes": ([(3, 5), (5, 8)], (4, 4, 3, 5)),
    "a wider ACT state": ([(3, 7), (2, 4)], (3, 6, 2, 4)),
    "one segment": ([(1, 4), (1, 6)], (5, 3, 2, 4)),
    "one step": ([(3, 1), (2, 1)], (2, 3, 4, 3)),
    "all ones": ([(1, 1)], (1, 1, 1, 1)),
}


@pytest.mark.parametrize("fed", [False, True], ids=["", "context fed"])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fused_is_the_reference(case, regime, fed):
    args = problem(*case, regime, fed)
    assert_close(run(fused, args), run(reference, args), 1e-10)


@pytest.mark.parametrize("regime", REGIMES)
def test_the_cases_have_segments_of_every_kind(regime):
    ends = reference(*problem(*CASES["ragged"], regime)).ends
    if regime == "one character":
        assert ends.all()
    elif regime == "whole sentence":
        assert ends.sum(1).tolist() == [1] * len(ends)
    else:
        assert 0.3 < ends.double().mean() < 0.7


@settings(max_examples=20)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 8)), min_size=1, max_size=4),
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    regime=st.sampled_from([*REGIMES]),
    fed=st.booleans(),
    outputs=st.sets(st.sampled_from(DIFFERENTIABLE), min_size=1),
    seed=st.integers(0, 99),
)
def test_fused_is_the_reference_on_any_batch(lengths, sizes, regime, fed, outputs, seed):
    args = problem(lengths, sizes, regime, fed, seed)
    some = tuple(sorted(outputs))
    assert_close(run(fused, args, only=some), run(reference, args, only=some), 1e-9)


def test_float32_is_close_to_float64():
    args = problem([(19, 21), (38, 17), (7, 9), (1, 21)], (48, 20, 32, 40))
    expected = run(reference, args)
    for function in (fused, reference):
        assert_close(run(function, args, dtype=torch.float32), expected, 1e-5)


@pytest.mark.parametrize(("keys", "query"), [(1.0, 300.0), (300.0, 1.0), (2000.0, 2000.0)])
def test_keys_and_queries_may_be_so_large_that_their_exponentials_are_not_numbers(keys, query):
    args = problem([(6, 5), (3, 4)], (4, 3, 5, 3))
    args[2], args[6] = keys * args[2], query * args[6]
    result, expected = run(fused, args), run(reference, args)
    outputs = ("out states", "out attention", "out ends")
    assert_close({name: result[name] for name in outputs}, {name: expected[name] for name in outputs}, 1e-9)
    assert all(value.isfinite().all() for value in result.values())


def assert_a_sentence_does_not_depend_on_its_batch(function, args: Args, tolerance: float) -> None:
    """The second sentence, of 4 segments and 5 symbols, is decoded alone as in company."""
    alone = [a[1:2] if place < 6 else a for place, a in enumerate(args)]
    alone[0], alone[5] = alone[0][:, :5], alone[5][:, :5]
    alone[2:5] = [a[:, :4] for a in alone[2:5]]
    together, single = (ActDecoderTrace(*function(*x))._asdict() for x in (args, alone))
    together["attention"] = together["attention"][..., :4]
    for name, value in single.items():
        torch.testing.assert_close(together[name][1:2, :5], value, rtol=0, atol=tolerance, msg=name)


def test_a_sentence_does_not_depend_on_its_batch():
    args = problem([(6, 7), (4, 5), (5, 3)], (5, 4, 3, 6))
    assert_a_sentence_does_not_depend_on_its_batch(fused, args, 1e-12)


def test_memory_may_lie_in_any_order():
    args = problem(*CASES["ragged"])
    assert_close(run(fused, turned(args)), run(fused, args), 1e-12)


def test_a_second_derivative_is_refused():
    args = problem([(3, 2)], (2, 3, 2, 2))
    x = args[0].requires_grad_()
    assert_no_second_derivative(fused(x, *args[1:])[0], x)


@settings(max_examples=12)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6))
def test_sums_over_segments_stand_where_they_begin(new):
    flags = torch.tensor([[True] * 4, *new])
    rows = torch.randn(*flags.shape, 3, dtype=torch.float64)
    expected = torch.zeros_like(rows)
    for b in range(4):
        begin = 0
        for t, begins in enumerate(flags[:, b].tolist()):
            begin = t if begins else begin
            expected[begin, b] += rows[t, b]
    torch.testing.assert_close(at_beginnings(rows, flags[..., None]), expected)


@pytest.mark.parametrize(
    ("choice", "name"), [("fused", "ActDecodeBackward"), ("", "ActDecodeBackward"), ("reference", "Cat")]
)
def test_what_is_asked_for_runs(choice, name, monkeypatch):
    monkeypatch.setenv(VARIABLE, choice)
    args = problem(*CASES["ragged"])
    args[0].requires_grad_()
    trace = act_decode(*args[:6], ActDecoderWeights(*args[6:]), EPSILON)
    assert name in str(trace.states.grad_fn)


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("regime", REGIMES)
def test_a_decoder_has_the_same_gradients_either_way(regime, fed, monkeypatch):
    torch.manual_seed(0)
    sizes = {"embedding_dim": 3, "hidden_size": 5, "act_size": 4, "attention_size": 6}
    made = ActDecoder(9, memory_dim=4, summary_dim=6, feed_context=fed, **sizes).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if not name.startswith(("initial", "enter", "leave")):  # these in a row would grow without bound
                parameter.mul_(REGIMES[regime][1])
        made.halting.bias.fill_(REGIMES[regime][0])
    encoded = Encoded(torch.randn(3, 5, 4).double(), torch.tensor([5, 1, 3]), torch.randn(3, 6).double())
    symbols, lengths = torch.randint(9, (3, 7)), torch.tensor([7, 4, 1])
    probe, within = torch.randn(3, 7, 9).double(), torch.arange(7) < lengths[:, None]
    results = []
    for choice in ("fused", "reference"):
        monkeypatch.setenv(VARIABLE, choice)
        decoded = made(encoded, symbols, lengths)
        loss = (decoded.logits * probe * within[..., None]).sum() + decoded.penalty.sum()
        gradients = torch.autograd.grad(loss, [*made.parameters()], materialize_grads=True)
        results.append((decoded.logits, decoded.penalty, decoded.ends.double(), *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
