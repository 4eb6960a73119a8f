"""TritonGruLayer against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import (
    assert_a_graph_replays,
    assert_no_second_derivative,
    assert_same,
    assert_unread,
    errors,
    turned,
)
from kernels.on_triton import DEVICE, MARKS, ON_GPU, OVERFLOWS
from test_gru_layer import problem as on_cpu
from test_gru_layer import run
from torch import Tensor

from caesura.encoders.recurrent import RecurrentEncoder
from caesura.kernels import VARIABLE, gru_layer_triton
from caesura.kernels.gru_layer import gru_layer, gru_layer_reference
from caesura.kernels.gru_layer_triton import Tile, layer, unsupported

# A case for every choice of tiles, and a sentence of 400 segments beside one of a single segment.
PAPER = {
    "40 sentences": ([100, 1, *range(51, 89)], 500),
    "128 sentences": ([1, 20] * 64, 500),
    "256 sentences": ([20, 1, 13, 7] * 64, 500),
    "300 sentences": ([*range(1, 21)] * 15, 500),
    "long and short": ([400, 1, 33], 500),
}

pytestmark = [*MARKS, OVERFLOWS]


def problem(*given: Any, **named: Any) -> list[Tensor]:
    return [argument.to(DEVICE) for argument in on_cpu(*given, **named)]


def leaves_of(args: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return comparing.leaves_of(args, dtype, weights=1)


assert_close = partial(comparing.assert_close, tolerance=1e-5, zero=1.0)  # one step's hidden weights: 0


CASES = {
    "ragged": ([7, 1, 4], 5),
    "padding for all": ([2, 4], 3, 2),
    "one sentence": ([5], 17),
    "one segment": ([1, 1], 6),
    "all ones": ([1], 1),
    "an empty sentence": ([2, 0, 3], 4),
    "several tiles": ([3] * 66 + [1], 70),
}


@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_triton_is_the_reference(case, N):
    args = problem(*case, N=N)
    assert_close(run(layer, args, torch.float32), run(gru_layer_reference, args))


@pytest.mark.parametrize("tile", [Tile(16, 16, 16, 2, 2), Tile(32, 32, 64, 3, 4)])
def test_any_tile_will_do(tile, monkeypatch):
    monkeypatch.setattr(gru_layer_triton, "tiles", lambda *_: (tile, tile))
    args = problem([2, 3, 1] * 6, 40)
    assert_close(run(layer, args, torch.float32), run(gru_layer_reference, args))


@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison, N):
    args = problem([5, 2, 0], 5, extra=1, N=N)
    padding, empty = torch.arange(6, device=DEVICE) >= args[1][:, None], ("out states", "inputs")
    assert_unread(lambda a: run(layer, a, torch.float32), args, padding, [0], poison, empty)


@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_may_hold_anything_before(dtype, N, monkeypatch):
    args = problem([5, 2, 0, 3], 5, extra=1, N=N)
    expected = run(layer, args, dtype)
    new_empty = Tensor.new_empty

    def poisoned(*args, **options):
        tensor = new_empty(*args, **options)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    assert_same(run(layer, args, dtype), expected)


def test_memory_may_lie_in_any_order():
    args = problem([4, 2, 3], 5)
    assert_same(run(layer, turned(args), torch.float32), run(layer, args, torch.float32))


def test_a_sentence_does_not_depend_on_its_batch():
    inputs, lengths, *weights = (a.float() if a.is_floating_point() else a for a in problem([6, 3, 5], 4))
    together = layer(inputs, lengths, *weights)
    alone = layer(inputs[1:2, :3], lengths[1:2], *weights)
    torch.testing.assert_close(together[1:2, :3], alone, rtol=0, atol=1e-6)


def test_without_gradients_the_states_are_the_same():
    leaves = leaves_of(problem([6, 1, 3], 5), torch.float32)
    with torch.no_grad():
        states = layer(*leaves)
    assert torch.equal(states, layer(*leaves))


def test_gates_may_be_saturated():
    args = problem([6, 3], 4)
    args[0] = 100 * args[0]
    result = run(layer, args, torch.float32)
    assert errors(result, run(gru_layer_reference, args))["out states"] < 1e-5
    assert all(value.isfinite().all() for value in result.values())


def test_a_second_derivative_is_refused():
    leaves = leaves_of(problem([3], 2), torch.float32)
    assert_no_second_derivative(layer(*leaves), leaves[0])


def assert_bf16_is_as_good_as_eager(args: list[Tensor]) -> None:
    low = [run(function, args, torch.bfloat16) for function in (layer, gru_layer_reference)]
    comparing.assert_as_good(*low, run(gru_layer_reference, args), zero=1.0)


@pytest.mark.parametrize("N", [1, 2])
def test_bf16_is_as_close_to_float64_as_the_eager_reference(N):
    assert_bf16_is_as_good_as_eager(problem([9, 4, 1], 24, N=N))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_dtypes_are_those_of_the_reference(kind):
    args = problem([3, 2], 4)
    result, expected = run(layer, args, kind), run(gru_layer_reference, args, kind)
    assert {n: v.dtype for n, v in result.items()} == {n: v.dtype for n, v in expected.items()}


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = problem([3, 2], 4)
    assert "float64" in unsupported(args[0])
    assert "nothing" in unsupported(args[0][:0].float())
    assert unsupported(args[0].float()) is None
    assert torch.equal(gru_layer(*args), gru_layer_reference(*args))


def test_gru_layer_takes_triton_where_it_can(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    inputs, lengths, *weights = problem([3, 2], 4)
    states = gru_layer(inputs.float().requires_grad_(), lengths, *(w.float() for w in weights))
    assert "TritonGruLayer" in str(states.grad_fn)


@pytest.mark.parametrize("layers", [1, 2])
def test_an_encoder_by_triton_is_the_encoder_by_the_reference(layers, monkeypatch):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(4, 3, layers).to(DEVICE)
    vectors, lengths = torch.randn(3, 5, 4, device=DEVICE), torch.tensor([5, 2, 1], device=DEVICE)
    results = {}
    for choice, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        monkeypatch.setenv(VARIABLE, choice)
        leaves = {"vectors": vectors.to(dtype).requires_grad_(), **dict(encoder.to(dtype).named_parameters())}
        encoded = encoder(leaves["vectors"], lengths)
        probe = torch.linspace(-1, 1, 6, device=DEVICE, dtype=dtype)
        loss = (encoded.states * probe).sum() + (encoded.summary * probe.flip(0)).sum()
        grads = torch.autograd.grad(loss, list(leaves.values()))
        results[choice] = {"states": encoded.states.detach(), "summary": encoded.summary.detach()}
        results[choice] |= dict(zip(leaves, grads, strict=True))
    assert_close(results["triton"], results["reference"])


@ON_GPU
@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("case", PAPER.values(), ids=PAPER)
def test_paper_sizes_in_float32(case, N):
    args = problem(*case, N=N)
    assert_close(run(layer, args, torch.float32), run(gru_layer_reference, args))


@ON_GPU
@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("case", PAPER.values(), ids=PAPER)
def test_paper_sizes_in_bf16(case, N):
    assert_bf16_is_as_good_as_eager(problem(*case, N=N))


@ON_GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_graph_gives_what_plain_launches_give(dtype):
    args, others = problem([40, 7, 23], 100), problem([23, 40, 1], 100, seed=1)
    leaves = leaves_of(args, dtype)

    def step() -> tuple[Tensor, ...]:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            states = layer(*leaves)
        inputs = [leaf for leaf in leaves if leaf.requires_grad]
        return states.detach(), *torch.autograd.grad(states.float().square().sum(), inputs)

    assert_a_graph_replays(step, leaves, others)
