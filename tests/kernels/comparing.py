"""How kernels are compared with their references: outputs and all gradients, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

Args = list[Tensor | None]
Values = dict[str, Tensor]


def leaves_of(args: Args, dtype: torch.dtype, weights: int = 0) -> Args:
    """What is differentiated; bfloat16 is for activations, those before place `weights`."""

    def leaf(place: int, a: Tensor | None) -> Tensor | None:
        if a is None or not a.is_floating_point():
            return a
        kind = torch.float32 if dtype == torch.bfloat16 and place >= weights else dtype
        return a.detach().to(kind).requires_grad_()

    return [leaf(place, a) for place, a in enumerate(args)]


def run(
    function: Callable[..., Sequence[Tensor]],
    args: Args,
    names: Sequence[str],
    outputs: Sequence[str],
    dtype: torch.dtype = torch.float64,
    only: Sequence[str] | None = None,
    weights: int = 0,
    **options: Any,
) -> Values:
    """Outputs, as "out NAME", and gradients, from random gradients of the outputs in `only` (None: all).

    bfloat16 means `leaves_of` under autocast; the random gradients are exact in it.
    """
    leaves = leaves_of(args, dtype, weights)
    device = next(a.device.type for a in args if a is not None)
    with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
        results = dict(zip(outputs, function(*leaves, **options), strict=True))
    generator = torch.Generator().manual_seed(1)
    some = [o for name, o in results.items() if o.is_floating_point() and (only is None or name in only)]
    directions = [torch.randn(o.shape, generator=generator).bfloat16().to(o) for o in some]
    read = {n: a for n, a in zip(names, leaves, strict=True) if a is not None and a.requires_grad}
    # A kernel says zero where autograd knows that there is no gradient at all.
    grads = torch.autograd.grad(some, [*read.values()], directions, allow_unused=True, materialize_grads=True)
    values = {f"out {name}": value.detach() for name, value in results.items()}
    return values | dict(zip(read, grads, strict=True))


def errors(actual: Values, expected: Values, zero: float = 1e-3) -> dict[str, float]:
    """Relative RMS error by name; against `zero` where the truth is zero."""
    assert actual.keys() == expected.keys()

    def error(name: str) -> float:
        truth = expected[name].detach().double()
        scale = max(float(truth.norm()), 1e-3) if truth.norm() > 1e-12 else zero
        if name == "halting_bias":  # one number, near 0 by chance or not: its neighbours give the scale
            scale = max(scale, float(expected["halting_weight"].detach().double().square().mean().sqrt()))
        return float((actual[name].detach().double() - truth).norm()) / scale

    return {name: error(name) for name in expected}


def assert_close(actual: Values, expected: Values, tolerance: float, zero: float = 1e-3) -> None:
    """Fails, by its name, where the relative error of a tensor is larger, or segments end elsewhere."""
    for name, error in errors(actual, expected, zero).items():
        assert error < tolerance, f"{name}: relative error {error:.1e}"
    if "out ends" in expected:
        assert_same(actual, expected, ["out ends"])


def assert_as_good(
    actual: Values, eager: Values, expected: Values, slack: float = 0.0, zero: float = 1e-3
) -> None:
    """Fails where an error in bfloat16 is more than twice that of eager operations."""
    allowed = errors(eager, expected, zero)
    if "halting_bias" in allowed:  # one number, right by chance or not
        allowed["halting_bias"] = max(allowed["halting_bias"], allowed["halting_weight"])
    for name, error in errors(actual, expected, zero).items():
        assert error <= 2 * allowed[name] + slack, f"{name}: {error:.1e}, eager {allowed[name]:.1e}"


def assert_same(actual: Values, expected: Values, names: Sequence[str] | None = None) -> None:
    """Fails where two tensors of a name differ at all."""
    for name in expected if names is None else names:
        assert torch.equal(actual[name], expected[name]), name


def assert_unread(
    run: Callable[[Args], Values],
    args: Args,
    padding: Tensor,
    places: Sequence[int],
    poison: float,
    empty: Sequence[str] = ("out attention", "keys", "values"),
) -> None:
    """Fails where padding [B, S] of the arguments at `places` changes a value, or `empty` is not 0 there."""
    clean, poisoned = run(args), [*args]
    for place in places:
        some = padding.view(padding.shape + (1,) * (args[place].dim() - 2))
        poisoned[place] = args[place].masked_fill(some, poison)
    assert_same(run(poisoned), clean)
    for name in empty:
        value = clean[name].transpose(1, 2) if name in ("out attention", "weights") else clean[name]
        assert not value[padding].any(), name


def turned(args: Args) -> Args:
    """The same tensors, differently laid out in memory."""
    return [a if a is None or a.dim() < 2 else a.transpose(0, 1).contiguous().transpose(0, 1) for a in args]


def assert_no_second_derivative(output: Tensor, leaf: Tensor) -> None:
    (grad,) = torch.autograd.grad(output.square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def assert_a_graph_replays(step: Callable[[], tuple[Tensor, ...]], leaves: Args, others: Args) -> None:
    """Fails where a captured `step`, replayed on the values of `others`, is not that step."""
    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for leaf, other in zip(leaves, others, strict=True):
            if leaf is not None and other is not None:
                leaf.copy_(other)
    graph.replay()
    for actual, expected in zip(captured, step(), strict=True):
        assert torch.equal(actual, expected)
