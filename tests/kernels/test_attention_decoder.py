"""AttentionDecode against its reference: outputs and all gradients, on odd, ragged and poisoned batches."""

from __future__ import annotations

import pytest
import torch
from helpers import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
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
    """Arguments in float64 for sentences of these lengths; sizes: hidden, attention, values."""
    generator = torch.Generator().manual_seed(seed)
    B, S, (H, A, M) = len(lengths), max(lengths), sizes

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    memory = random(B, U, 3 * H), random(B, H), random(B, S, A), random(B, S, M), mask
    weights = random(A, H) / H**0.5, random(1, A), random(3 * H, M) / M**0.5, random(3 * H, H) / H**0.5
    return [*memory, *weights, random(3 * H)]


def run(function, args: list[Tensor], dtype: torch.dtype = torch.float64, outputs: tuple[str, ...] = OUTPUTS):
    """Outputs and gradients by name, from fixed random gradients of the named outputs."""
    args = [a if a.dtype == torch.bool else a.detach().to(dtype).requires_grad_() for a in args]
    found = dict(zip(OUTPUTS, function(*args), strict=True))
    generator = torch.Generator().manual_seed(1)
    directions = [
        torch.randn(found[o].shape, generator=generator, dtype=torch.float64).to(dtype) for o in outputs
    ]
    leaves = {name: a for name, a in zip(NAMES, args, strict=True) if a.requires_grad}
    grads = torch.autograd.grad([found[o] for o in outputs], list(leaves.values()), directions)
    return found, dict(zip(leaves, grads, strict=True))


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
    if outputs == OUTPUTS[1:] and case[1] == 1:
        pytest.skip("the only attention depends on neither the inputs nor the gates")
    for found, wanted in zip(
        run(fused, args, outputs=outputs), run(reference, args, outputs=outputs), strict=True
    ):
        assert_close(found, wanted, 1e-10)


@settings(max_examples=12)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.integers(0, 99),
)
def test_fused_is_the_reference_on_any_batch(lengths, U, sizes, seed):
    args = problem(lengths, U, sizes, seed)
    for found, wanted in zip(run(fused, args), run(reference, args), strict=True):
        assert_close(found, wanted, 1e-10)


def test_float32_is_close_to_float64():
    args = problem([19, 38, 7, 1], 21, (64, 32, 48))
    wanted = run(reference, args)
    for function in (fused, reference):
        for found, truth in zip(run(function, args, torch.float32), wanted, strict=True):
            assert_close(found, truth, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("keys", "query"), [(1.0, 300.0), (300.0, 1.0), (300.0, 300.0), (2000.0, 2000.0)])
def test_keys_and_queries_may_be_so_large_that_their_exponentials_are_not_numbers(keys, query, dtype):
    args = problem([6, 3], 4, (4, 5, 3))
    args[2], args[5] = keys * args[2], query * args[5]
    found, wanted = run(fused, args, dtype), run(reference, args, dtype)
    assert_close(found[0], wanted[0], 1e-4 if dtype == torch.float32 else 1e-9)
    assert all(grad.isfinite().all() for grad in found[1].values())


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
    padding, poisoned = ~args[4], list(args)
    for place in (2, 3):
        poisoned[place] = args[place].masked_fill(padding[..., None], poison)
    clean = run(function, args)
    for found, wanted in zip(run(function, poisoned), clean, strict=True):
        for name, value in wanted.items():
            assert torch.equal(found[name], value), name
    assert not clean[0]["attention"].transpose(1, 2)[padding].any()
    assert not clean[1]["keys"][padding].any()
    assert not clean[1]["values"][padding].any()


def test_memory_may_lie_in_any_order():
    args = problem([6, 2, 4], 5, (4, 3, 5))
    turned = [a.transpose(0, 1).contiguous().transpose(0, 1) if a.dim() == 3 else a for a in args]
    wanted, found = fused(*args), fused(*turned)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_second_derivative_is_refused():
    args = problem([3], 2, (2, 2, 2))
    x = args[0].requires_grad_()
    (grad,) = torch.autograd.grad(fused(x, *args[1:])[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


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
