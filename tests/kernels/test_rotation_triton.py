"""Queries and keys turned by Triton against the reference in float64: on a GPU or in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import (
    assert_a_graph_replays,
    assert_as_good,
    assert_close,
    assert_no_second_derivative,
    assert_same,
    turned,
)
from kernels.compiled import compiles
from kernels.on_triton import DEVICE, MARKS, ON_GPU
from torch import Tensor

from caesura.kernels import VARIABLE, rotation
from caesura.kernels.rotation_triton import turn, unsupported
from caesura.layers.positions import rotation as at

pytestmark = MARKS
OUTPUTS = ("queries", "keys", "values")
# Sentences, symbols, heads, features of a head, and whether each sentence has places of its own.
CASES = {
    "two numbers": (1, 1, 1, 2, False),
    "odd": (3, 5, 3, 6, False),
    "own places": (2, 7, 2, 4, True),
    "several programs": (2, 70, 2, 16, False),
    "wide": (2, 2, 5, 250, True),
}
GPU_CASES = {"characters": (320, 100, 4, 128, False), "own places": (64, 33, 8, 64, True)}


def problem(B: int, Q: int, N: int, D: int, own: bool, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Parts [B, Q, 3, N, D], and places [Q] or [B, Q]."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(B, Q, 3, N, D, generator=generator)
    places = torch.randint(0, 300, (B, Q) if own else (Q,), generator=generator)
    return parts.to(DEVICE), places.to(DEVICE)


def run(function: Any, parts: Tensor, places: Tensor, dtype: torch.dtype) -> comparing.Values:
    by = at(places, parts.shape[-1], dtype)

    def of_parts(parts: Tensor) -> Any:
        return function(parts, by) if function is rotation.turned_reference else function(parts, *by)

    return comparing.run(of_parts, [parts], ["parts"], OUTPUTS, dtype, weights=1)


def check(*case: Any) -> None:
    args = problem(*case)
    expected = run(rotation.turned_reference, *args, torch.float64)
    assert_close(run(turn, *args, torch.float32), expected, 1e-5)
    low = [run(function, *args, torch.bfloat16) for function in (turn, rotation.turned_reference)]
    assert_as_good(*low, expected)
    assert_same(*low, ["out values"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_triton_is_the_reference(case: tuple[Any, ...]) -> None:
    check(*case)


def test_all_symbols_may_have_one_place() -> None:
    """As hypotheses of a search have."""
    parts, _ = problem(2, 5, 2, 4, False)
    places = torch.tensor([7], device=DEVICE)
    expected = run(rotation.turned_reference, parts, places, torch.float64)
    assert_close(run(turn, parts, places, torch.float32), expected, 1e-5)


def test_memory_may_lie_in_any_order_and_hold_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, places = problem(3, 4, 2, 6, False)
    by = at(places, 6, torch.float32)
    directions = [torch.randn(3, 2, 4, 6, device=DEVICE) for _ in OUTPUTS]
    results, new_empty = [], Tensor.new_empty
    for given, order in ((parts, directions), (turned([parts])[0], turned([*directions]))):
        assert given is not None
        leaf = given.requires_grad_()
        outputs = turn(leaf, *by)
        results.append([*outputs, *torch.autograd.grad(outputs, leaf, order)])
        monkeypatch.setattr(Tensor, "new_empty", lambda *a, **b: new_empty(*a, **b).fill_(torch.nan))
    assert all(map(torch.equal, *results))


def test_a_result_may_be_unused_and_a_second_derivative_is_refused() -> None:
    parts, places = problem(1, 2, 1, 2, False)
    leaf = parts.requires_grad_()
    assert_no_second_derivative(turn(leaf, *at(places, 2, torch.float32))[1], leaf)


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "triton")
    parts, places = problem(2, 3, 1, 4, False)
    by, exact = (at(places, 4, dtype) for dtype in (torch.float32, torch.float64))
    assert unsupported(parts, *by) is None
    assert "float64" in str(unsupported(parts.double(), *exact))
    assert "float64" in str(unsupported(parts, *exact))
    assert "nothing" in str(unsupported(parts[:0], *by))
    assert "8192" in str(unsupported(parts.new_empty(1, 1, 3, 2, 8194), *by))
    leaf = parts.requires_grad_()
    assert "TritonTurn" in str(rotation.turned(leaf, by)[0].grad_fn.next_functions)  # type: ignore[union-attr]
    assert torch.equal(
        rotation.turned(leaf.double(), exact)[1], rotation.turned_reference(leaf.double(), exact)[1]
    )
    assert rotation.turned(parts[:0], by)[2].shape == (0, 1, 3, 4)


@pytest.mark.parametrize("back", [False, True])
def test_the_kernel_compiles_for_a_gpu_that_is_not_here(back: bool) -> None:
    places = ("queries", "keys", "values", "to_queries", "to_keys", "to_values", "cosines", "sines")
    types = dict.fromkeys(places, "*bf16") | {"R": "i32", "PLACES": "i32"}
    apart = {"FROM": 512, "TO": 1536} if back else {"FROM": 1536, "TO": 512}
    fixed = apart | {"N": 4, "HALF": 64, "BACK": back, "ROWS": 4, "BLOCK": 256}
    assert "ld.global.v4" in compiles("rotation_triton", "turn_rows", types, fixed, 4)


@ON_GPU
@pytest.mark.parametrize("case", GPU_CASES.values(), ids=GPU_CASES)
def test_sizes_of_real_models(case: tuple[Any, ...]) -> None:
    check(*case)


@ON_GPU
def test_a_captured_graph_gives_what_plain_launches_give() -> None:
    parts, places = problem(3, 40, 4, 64, False)
    leaf, by = parts.bfloat16().requires_grad_(), at(places, 64, torch.bfloat16)
    factors = torch.arange(3.0, device=leaf.device)

    def step() -> tuple[Tensor, ...]:
        outputs = turn(leaf, *by)
        loss = torch.stack([output.float().square().sum() for output in outputs]) @ factors
        return *(output.detach() for output in outputs), *torch.autograd.grad(loss, [leaf])

    assert_a_graph_replays(step, [leaf], [problem(3, 40, 4, 64, False, seed=1)[0].bfloat16()])
