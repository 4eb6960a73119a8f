"""The gradient of a bias by Triton against autograd in float64: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import assert_a_graph_replays, assert_close, assert_no_second_derivative, assert_same
from kernels.compiled import compiles
from kernels.on_triton import DEVICE, MARKS, ON_GPU
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels import VARIABLE, linear_triton
from caesura.kernels.linear import linear
from caesura.kernels.linear_triton import unsupported

pytestmark = MARKS
NAMES, OUTPUTS = ("inputs", "weight", "bias"), ("mapped",)
SHAPES = {"one number": (1, 1), "odd": (2, 3, 5), "several programs": (150, 130), "wide": (3, 3000)}
GPU_SHAPES = {
    "a batch of characters": (320, 100, 1536),
    "a vocabulary": (400, 10_000),
    "a tall one": (70_000, 8),
}


@pytest.fixture(autouse=True)
def _by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "triton")


def problem(*shape: int, seed: int = 0) -> list[Tensor]:
    """Inputs of 4 features, weight and bias for outputs of this shape."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((*shape[:-1], 4), (shape[-1], 4), shape[-1:])
    return [torch.randn(size, generator=generator).to(DEVICE) for size in sizes]


def run(function: Any, args: list[Tensor], dtype: torch.dtype, **options: Any) -> comparing.Values:
    return comparing.run(
        lambda *given: (function(*given, **options),), args, NAMES, OUTPUTS, dtype, weights=1
    )


def check(*shape: int) -> None:
    args = problem(*shape)
    exact = run(F.linear, args, torch.float64)
    assert_close(run(linear, args, torch.float32), exact, 1e-5)
    # The sum itself is exact in float32: the gradients that it reads are.
    low, eager = run(linear, args, torch.bfloat16), run(F.linear, args, torch.bfloat16)
    assert_close({"bias": low.pop("bias")}, {"bias": exact["bias"]}, 1e-5)
    eager.pop("bias")
    assert_same(low, eager)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_all_gradients_are_those_of_the_reference(shape: tuple[int, ...]) -> None:
    check(*shape)


def test_a_program_adds_up_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_triton, "PROGRAMS", 4)
    check(150, 130)


def test_a_gradient_may_lie_in_any_order_and_memory_may_hold_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = [argument.requires_grad_() for argument in problem(4, 70, 6)]
    mapped, direction = linear(*args), torch.randn(6, 70, 4, device=DEVICE).permute(2, 1, 0)
    expected = torch.autograd.grad(mapped, args, direction.contiguous(), retain_graph=True)
    new_empty = Tensor.new_empty
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **b: new_empty(*a, **b).fill_(torch.nan))
    for gradient, other in zip(torch.autograd.grad(mapped, args, direction), expected, strict=True):
        assert torch.equal(gradient, other)


def test_a_second_derivative_is_refused() -> None:
    inputs, weight, bias = (argument.requires_grad_() for argument in problem(3, 4))
    assert_no_second_derivative(linear(inputs, weight, bias), bias)


def test_what_is_not_supported_falls_back_and_says_why() -> None:
    inputs, weight, bias = problem(2, 4)
    assert unsupported(inputs, bias) is None
    assert "float64" in str(unsupported(inputs.double(), bias))
    assert "bfloat16" in str(unsupported(inputs, bias.bfloat16()))
    assert "nothing" in str(unsupported(inputs[:0], bias))
    assert "TritonBias" in str(linear(inputs, weight, bias.requires_grad_()).grad_fn)
    exact = [argument.double() for argument in (inputs, weight, bias)]
    assert "TritonBias" not in str(linear(*exact).grad_fn)
    assert linear(inputs[:0], weight, bias).shape == (0, 4)


def test_the_kernel_compiles_for_a_gpu_that_is_not_here() -> None:
    fixed = {"ROWS": linear_triton.ROWS, "BLOCK": linear_triton.BLOCK}
    types = {"values": "*bf16", "parts": "*fp32", "N": "i32"}
    for features, width in ((1536, 4), (300, 2)):
        ptx = compiles("linear_triton", "column_sums", types, fixed | {"M": features}, 4)
        assert f"ld.global.v{width}" in ptx


@ON_GPU
@pytest.mark.parametrize("shape", GPU_SHAPES.values(), ids=GPU_SHAPES)
def test_sizes_of_real_models(shape: tuple[int, ...]) -> None:
    check(*shape)


@ON_GPU
def test_a_captured_graph_gives_what_plain_launches_give() -> None:
    leaves = [argument.requires_grad_() for argument in problem(1000, 512)]

    def step() -> tuple[Tensor, ...]:
        mapped = linear(*leaves)
        return mapped.detach(), *torch.autograd.grad(mapped.square().sum(), leaves)

    assert_a_graph_replays(step, leaves, problem(1000, 512, seed=1))
