"""TritonResidualNorm against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import pytest
import torch
from helpers import TRANSFORMER, sentences, tiny_model
from kernels import comparing
from kernels.comparing import (
    assert_a_graph_replays,
    assert_as_good,
    assert_close,
    assert_no_second_derivative,
    assert_same,
    errors,
    turned,
)
from kernels.compiled import compiles
from kernels.on_triton import DEVICE, MARKS, ON_GPU
from torch import Tensor

from caesura.data.batching import collate
from caesura.kernels import VARIABLE, residual_norm_triton, used
from caesura.kernels.residual_norm import residual_norm, residual_norm_reference
from caesura.kernels.residual_norm_triton import add, unsupported
from caesura.training.step import Step

pytestmark = MARKS

NAMES, OUTPUTS = ("states", "update", "weight", "bias"), ("sum", "normed")
SHAPES = {
    "one number": (1, 1),
    "odd": (2, 3, 5),
    "one row": (1, 33),
    "several programs": (150, 20),
    "wide": (3, 3000),
}
GPU_SHAPES = {"a batch of characters": (320, 100, 512), "one sentence": (7, 512), "largest": (9, 8192)}


def problem(*shape: int, start: bool = False, seed: int = 0) -> list[Tensor | None]:
    """States, update, weight and bias; without states at the `start` of a stack."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (shape, shape, shape[-1:], shape[-1:])
    states, update, weight, bias = (torch.randn(size, generator=generator).to(DEVICE) for size in sizes)
    return [None if start else 3 * states + 1, update, weight, bias]


def run(
    function: Callable[..., Sequence[Tensor]], args: comparing.Args, dtype: torch.dtype, **options: Any
) -> comparing.Values:
    """bfloat16: states and weights are float32, as under autocast; the update and the norm are bfloat16."""
    if dtype != torch.bfloat16:
        return comparing.run(function, args, NAMES, OUTPUTS, dtype, **options)

    def short(states: Tensor | None, update: Tensor, *weights: Tensor) -> Sequence[Tensor]:
        return function(states, update.bfloat16(), *weights, dtype=torch.bfloat16, **options)

    return comparing.run(short, args, NAMES, OUTPUTS, torch.float32)


def check(shape: tuple[int, ...], start: bool) -> None:
    args = problem(*shape, start=start)
    expected = run(residual_norm_reference, args, torch.float64)
    assert_close(run(add, args, torch.float32), expected, 1e-5)
    low = [run(function, args, torch.bfloat16) for function in (add, residual_norm_reference)]
    assert_as_good(*low, expected, slack=1e-5)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_triton_is_the_reference(shape: tuple[int, ...], start: bool) -> None:
    check(shape, start)


def test_a_program_adds_up_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual_norm_triton, "PROGRAMS", 2)
    check((350, 20), start=False)


@pytest.mark.parametrize("only", OUTPUTS)
def test_a_result_may_be_unused(only: str) -> None:
    args = problem(4, 9)
    expected = run(residual_norm_reference, args, torch.float64, only=(only,))
    assert_close(run(add, args, torch.float32, only=(only,)), expected, 1e-5)


@pytest.mark.parametrize("shape", [(30, 40), (150, 20)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_drop_the_same(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The mask, which the sum shows, makes the reference do what the kernels did."""
    args, drop = problem(*shape), 0.3
    args[1] = args[1].abs() + 1  # no number of the update is 0
    torch.manual_seed(5)
    _, update, *_ = args
    mask = (add(None, *args[1:], drop=drop)[0] != 0) / (1 - drop)
    torch.testing.assert_close(add(None, update, *args[2:], drop=0.0)[0], update, rtol=0, atol=0)

    def masked(states: Tensor, update: Tensor, *weights: Tensor, **options: Any) -> Sequence[Tensor]:
        return residual_norm_reference(states, update.double() * mask.to(update.device), *weights, **options)

    torch.manual_seed(5)
    result = run(add, args, dtype, drop=drop)
    expected = run(masked, args, torch.float64)
    assert_close(result, expected, 1e-5 if dtype == torch.float32 else 0.02)
    dropped = mask == 0
    assert not result["update"][dropped].any()
    assert result["update"][~dropped].all()


def test_the_share_asked_for_is_dropped_everywhere_alike_and_the_mean_stays() -> None:
    ones, weights = torch.ones(200, 100, device=DEVICE), torch.ones(2, 100, device=DEVICE)
    for drop in (0.1, 0.5, 0.9):
        torch.manual_seed(1)
        one, other = (add(None, ones, *weights, drop=drop)[0] for _ in range(2))
        assert one.unique().tolist() == [0.0, pytest.approx(1 / (1 - drop))]
        dropped = (one == 0).float()
        # Five standard deviations of 20,000 draws, of a row's or a column's, and of two calls' agreement.
        deviation = (drop * (1 - drop)) ** 0.5
        assert abs(float(dropped.mean()) - drop) < 6 * deviation / 20_000**0.5
        assert float((dropped.mean(1) - drop).abs().max()) < 6 * deviation / 100**0.5
        assert float((dropped.mean(0) - drop).abs().max()) < 6 * deviation / 200**0.5
        both = float((dropped * (other == 0)).mean())
        assert abs(both - drop**2) < 6 * drop * (1 - drop**2) ** 0.5 / 20_000**0.5
        for one_side, other_side in ((dropped[1:], dropped[:-1]), (dropped[:, 1:], dropped[:, :-1])):
            together = float((one_side * other_side).mean())
            assert abs(together - drop**2) < 6 * drop * (1 - drop**2) ** 0.5 / 19_000**0.5


def test_torchs_generator_decides_what_is_dropped() -> None:
    args = [a.float() if a is not None else None for a in problem(6, 10)]
    torch.manual_seed(1)
    one, other = (add(*args, drop=0.5)[0] for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(add(*args, drop=0.5)[0], one)
    assert not torch.equal(one, other)
    state = torch.get_rng_state() if DEVICE == "cpu" else torch.cuda.get_rng_state()
    add(*args)
    assert torch.equal(torch.get_rng_state() if DEVICE == "cpu" else torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_the_same_in_every_run_whatever_memory_held(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    args, new_empty = problem(150, 20), Tensor.new_empty
    torch.manual_seed(2)
    expected = run(add, args, dtype, drop=0.2)

    def poisoned(*args: Any, **options: Any) -> Tensor:
        tensor = new_empty(*args, **options)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(Tensor, "new_empty", poisoned)
    torch.manual_seed(2)
    assert_same(run(add, args, dtype, drop=0.2), expected)


def test_memory_may_lie_in_any_order() -> None:
    args = problem(4, 3, 5)
    assert_same(run(add, turned(args), torch.float32), run(add, args, torch.float32))


def test_a_second_derivative_is_refused() -> None:
    leaves = comparing.leaves_of(problem(3, 4), torch.float32)
    assert leaves[1] is not None
    assert_no_second_derivative(add(*leaves)[1], leaves[1])


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "triton")
    states, update, weight, bias = problem(2, 4)
    assert unsupported(states, update, weight) is None
    assert "float64" in str(unsupported(states, update.double(), weight))
    assert "bfloat16" in str(unsupported(states, update, weight.bfloat16()))
    assert "bfloat16" in str(unsupported(states.bfloat16(), update, weight))
    assert "nothing" in str(unsupported(None, update[:0], weight))
    assert "8192" in str(unsupported(None, update.new_empty(1, 8193), weight))
    assert "Triton" in str(residual_norm(states, update, weight.requires_grad_(), bias)[0].grad_fn)
    exact = [tensor.double() for tensor in (states, update, weight, bias)]
    assert "Triton" not in str(residual_norm(*exact)[0].grad_fn)
    assert residual_norm(None, update[:0], weight, bias)[1].shape == (0, 4)


NEAR = {
    "reader": TRANSFORMER | {"window": 2},
    "cutter": {"type": "fixed", "k": 2},
    "pooling": "mean",
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_model_by_triton_is_the_model_by_the_reference(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reader, encoder and decoder."""
    training = {"precision": precision}
    model = tiny_model(NEAR, scale=1.0, encoder=TRANSFORMER, decoder=TRANSFORMER, training=training)
    model = model.to(DEVICE)
    off: dict[str, list[float]] = {"triton": [], "reference": []}
    for seed in range(2 if precision == "bfloat16" else 1):
        sides = sentences(60, seed=2 * seed + 1, longest=9), sentences(60, seed=2 * seed + 2, vocab_size=9)
        batch, results = collate(list(zip(*sides, strict=True))), {}
        for name in ("triton", "reference", "exact"):
            monkeypatch.setenv(VARIABLE, "reference" if name == "exact" else name)
            step = Step(model.to(torch.float64 if name == "exact" else torch.float32), model.config.training)
            results[name] = {"out sums": step(batch)}
            results[name] |= {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            assert used["residual_norm"][0] == ("triton" if name == "triton" else "reference")
        for name, each in off.items():
            each += errors(results[name], results["exact"]).values()
    if precision == "bfloat16":  # rounding turns ReLUs off and on, so single gradients say little
        assert fmean(off["triton"]) < 2 * fmean(off["reference"])
    else:
        assert max(off["triton"]) < 1e-4


@pytest.mark.parametrize(
    ("features", "drop", "states", "kind"), [(512, 0.1, "*fp32", "*bf16"), (300, 0, None, "*fp32")]
)
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_the_kernels_compile_for_a_gpu_that_is_not_here(
    kernel: str, features: int, drop: float, states: str | None, kind: str
) -> None:
    types = dict.fromkeys(("weight", "bias", "total", "of_weights"), "*fp32") | {"N": "i32"}
    types |= dict.fromkeys(("update", "normed", "of_update", "of_normed"), kind)
    optional = {
        "seeds": "*i64" if drop else None,
        **dict.fromkeys(("states", "of_states", "of_total"), states),
    }
    types |= {name: type for name, type in optional.items() if type is not None}
    options = residual_norm_triton.options(features)
    warps = options.pop("num_warps")
    fixed = {
        "D": features,
        "EPS": 1e-5,
        "DROP": drop,
        **options,
        **dict.fromkeys(optional.keys() - types.keys()),
    }
    ptx = compiles("residual_norm_triton", kernel, types, fixed, warps)
    assert "ld.global.v4" in ptx
    assert "atom." not in ptx


@ON_GPU
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("shape", GPU_SHAPES.values(), ids=GPU_SHAPES)
def test_sizes_of_real_models(shape: tuple[int, ...], start: bool) -> None:
    check(shape, start)


def captured(leaves: comparing.Args, drop: float) -> Callable[[], tuple[Tensor, ...]]:
    def step() -> tuple[Tensor, ...]:
        total, normed = add(*leaves, drop=drop, dtype=torch.bfloat16)
        loss = total.square().sum() + normed.float().square().sum()
        return total.detach(), normed.detach(), *torch.autograd.grad(loss, leaves)

    return step


@ON_GPU
def test_a_captured_graph_gives_what_plain_launches_give() -> None:
    leaves = comparing.leaves_of(problem(1000, 512), torch.float32)
    assert_a_graph_replays(captured(leaves, 0.0), leaves, problem(1000, 512, seed=1))


@ON_GPU
def test_every_replay_of_a_graph_draws_anew_and_the_same_again_from_the_same_seed() -> None:
    leaves = comparing.leaves_of(problem(1000, 512), torch.float32)
    step, graph, results = captured(leaves, 0.1), torch.cuda.CUDAGraph(), []
    step()
    with torch.cuda.graph(graph):
        outputs = step()
    for _ in range(2):
        torch.manual_seed(1)
        for _ in range(2):
            graph.replay()
            results.append([output.clone() for output in outputs])
    assert not torch.equal(results[0][0], results[1][0])
    for first, again in zip(results[:2], results[2:], strict=True):
        assert all(map(torch.equal, first, again))
