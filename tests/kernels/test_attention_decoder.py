"""AttentionDecode against its reference: outputs and all gradients, on odd, ragged and poisoned batches."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import comparing
from kernels.comparing import assert_close, assert_no_second_derivative, assert_same, assert_unread, turned
from torch import Tensor

from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE
from caesura.kernels.attention_decoder import AttentionDecode, DecoderWeights, Sigmoids, decode_reference

NAMES = ("inputs", "hidden", "keys", "values", "mask", *DecoderWeights._fields)
OUTPUTS = ("states", "attention")


def fused(*args: Tensor) -> tuple[Tensor, Tensor]:
    return AttentionDecode.apply(*args)


def reference(*args: Tensor) -> tuple[Tensor, Tensor]:
    return decode_reference(*args[:5], DecoderWeights(*args[5:]))


def problem(lengths: list[int], U: int, sizes: tuple[int, int, int], seed: int = 0) -> list[Tensor]:
    """Arguments in float64, activations exact in bfloat16; sizes: hidden, attention, values."""
    generator = torch.Generator().manual_seed(seed)
    B, S, (H, A, M) = len(lengths), max(lengths), sizes

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    memory = random(B, U, 3 * H), random(B, H), random(B, S, A), random(B, S, M)
    weights = [
        random(rows, columns) / columns**0.5 for rows, columns in ((A, H), (1, A), (3 * H, M), (3 * H, H))
    ]
    return [*(a.bfloat16().double() for a in memory), mask, *weights, random(3 * H)]


run = partial(comparing.run, names=NAMES, outputs=OUTPUTS)


CASES = {
    "ragged": ([7, 1, 4], 5, (4, 6, 5)),
    "one sentence": ([5], 3, (3, 2, 7)),
    "one segment": ([1, 1], 4, (5, 3, 2)),
    "one step": ([3, 2], 1, (2, 3, 4)),
    "all ones": ([1], 1, (1, 1, 1)),
}


@pytest.mark.parametrize("outputs", [OUTPUTS, OUTPUTS[:1], OUTPUTS[1:]], ids="+".join)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fused_is_the_reference(case, outputs):
    args = problem(*case)
    assert_close(run(fused, args, only=outputs), run(reference, args, only=outputs), 1e-10)


@settings(max_examples=12)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.integers(0, 99),
)
def test_fused_is_the_reference_on_any_batch(lengths, U, sizes, seed):
    args = problem(lengths, U, sizes, seed)
    assert_close(run(fused, args), run(reference, args), 1e-10)


def test_float32_is_close_to_float64():
    args = problem([19, 38, 7, 1], 21, (64, 32, 48))
    expected = run(reference, args)
    for function in (fused, reference):
        assert_close(run(function, args, dtype=torch.float32), expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("keys", "query"), [(1.0, 300.0), (300.0, 1.0), (300.0, 300.0), (2000.0, 2000.0)])
def test_keys_and_queries_may_be_so_large_that_their_exponentials_are_not_numbers(keys, query, dtype):
    args = problem([6, 3], 4, (4, 5, 3))
    args[2], args[5] = keys * args[2], query * args[5]
    result, expected = run(fused, args, dtype=dtype), run(reference, args, dtype=dtype)
    outputs = [{name: values[f"out {name}"] for name in OUTPUTS} for values in (result, expected)]
    assert_close(*outputs, 1e-4 if dtype == torch.float32 else 1e-9)
    assert all(value.isfinite().all() for value in result.values())


def test_both_forms_of_the_sigmoid_agree():
    keys, query = torch.linspace(-20, 20, 41)[None, :, None], torch.tensor([[[3.0]]])
    results = []
    for sigmoids in (Sigmoids.of(keys), Sigmoids.of(keys, safe=True)):
        doubled, out = 2 * query, torch.empty_like(keys)
        sigmoids.prepare_(doubled)
        sigmoids.at(doubled, out)
        results.append(out)
        torch.testing.assert_close(1 - 2 * out, torch.tanh(keys + query), atol=1e-6, rtol=0)
    torch.testing.assert_close(*results, atol=0, rtol=1e-5)


@pytest.mark.parametrize("function", [fused, reference])
def test_the_gradient_is_the_slope(function):
    args = problem([2, 1], 2, (2, 2, 2))
    leaves = [a if a.dtype == torch.bool else a.requires_grad_() for a in args]
    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("function", [fused, reference])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_padding_is_never_read_and_gets_nothing(function, poison):
    args = problem([6, 2, 4], 5, (4, 3, 5))
    assert_unread(lambda a: run(function, a), args, ~args[4], (2, 3), poison)


def test_memory_may_lie_in_any_order():
    args = problem([6, 2, 4], 5, (4, 3, 5))
    assert_same(run(fused, turned(args)), run(fused, args))


def test_a_second_derivative_is_refused():
    args = problem([3], 2, (2, 2, 2))
    x = args[0].requires_grad_()
    assert_no_second_derivative(fused(x, *args[1:])[0], x)


@pytest.mark.parametrize("choice", ["reference", "fused"])
def test_a_decoder_run_at_once_is_the_decoder_run_step_by_step(choice, monkeypatch):
    monkeypatch.setenv(VARIABLE, choice)
    torch.manual_seed(0)
    decoder = RecurrentDecoder(
        9, memory_dim=6, summary_dim=5, embedding_dim=4, hidden_size=7, attention_size=3
    ).double()
    encoded = Encoded(torch.randn(3, 5, 6).double(), torch.tensor([5, 1, 3]), torch.randn(3, 5).double())
    symbols = torch.randint(9, (3, 4))
    whole, state = decoder(encoded, symbols, torch.tensor([4, 4, 4])), decoder.start(encoded)
    for u in range(4):
        step, state = decoder.step(state, symbols[:, u, None])
        torch.testing.assert_close(whole.logits[:, u], step.logits[:, 0], atol=1e-12, rtol=0)
        torch.testing.assert_close(whole.attention[:, u], step.attention[:, 0], atol=1e-12, rtol=0)
