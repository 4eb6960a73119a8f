"""The ACT scan's Triton kernels against the reference: outputs and all gradients, by name.

On a GPU also at full size; without one the kernels run, on small shapes, in Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import assert_no_second_derivative, assert_same
from kernels.on_triton import CUDA, DEVICE, MARKS
from test_act_scan import EPSILON, OUTPUTS, in_pieces, run
from test_act_scan import problem as on_cpu
from test_act_scan import reference as every_mean
from torch import Tensor

from caesura.kernels import VARIABLE, act_scan_triton
from caesura.kernels.act_scan import ActCarry, ActScan, ActWeights, act_segments

pytestmark = MARKS
Scan = Callable[..., tuple[Tensor, ...]]


def kernel(inputs: Tensor, *rest: Tensor, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
    """The mean of a segment stands where it ends, as that of the reference."""
    weights, carry = ActWeights(*rest[:4]), ActCarry(*rest[4:8])
    assert act_scan_triton.unsupported(inputs, weights, carry) is None
    result, carry = act_scan_triton.segments(inputs, None, weights, carry, *rest[8:], epsilon)
    (B, T), size = result.ends.shape, weights.weight_hh.shape[1]
    assert torch.equal(result.lengths, result.ends.sum(1))
    rows = result.vectors[torch.arange(T, device=DEVICE) < result.lengths[:, None]][:, :size]
    means = inputs.new_zeros(B, T, size).masked_scatter(result.ends[..., None], rows.to(inputs.dtype))
    return means, *result[2:], *carry


def reference(*args: Tensor, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
    means, ends, *rest = every_mean(*args, epsilon=epsilon)
    return means.masked_fill(~ends[..., None], 0), ends, *rest


def problem(*given: Any, **named: Any) -> list[Tensor]:
    return [argument.to(DEVICE) for argument in on_cpu(*given, **named)]


assert_close = partial(comparing.assert_close, tolerance=1e-5)


def ragged(count: int, longest: int) -> list[int]:
    return [1 + i * 7919 % longest for i in range(count - 1)] + [longest]


CASES = {
    "one symbol": ([1], 3, 1.0),
    "one-character segments": ([4, 3, 2], 5, 9.0),
    "mixed": ([8, 1, 6, 7, 2], 17, 0.0),
    "whole sentences": ([5, 4, 1], 5, -9.0),
    "size one": ([6, 5], 1, 0.0),
    "two programs": (ragged(17, 4), 16, 0.0),
    "wide": ([4, 3], 70, 1.0),
}
if CUDA:
    CASES |= {
        "full size": (ragged(512, 100), 50, 0.0),
        "one-character segments, full size": (ragged(128, 100), 50, 9.0),
        "400 characters": (ragged(33, 400), 50, -1.0),
        "whole sentences of 400": (ragged(33, 400), 50, -9.0),
        "size 64": (ragged(40, 100), 64, 1.0),
        "size 128": (ragged(40, 100), 128, 0.0),
        "size 150": (ragged(40, 100), 150, 0.0),
        "size 256": (ragged(129, 100), 256, 0.0),
    }


@pytest.mark.parametrize("final", [True, False], ids=["final", "streaming"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_the_reference(case, final):
    args = problem(*case, final=final)
    assert_close(run(kernel, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_reference_on_any_batch(seed):
    draw = torch.Generator().manual_seed(seed)
    B, size = torch.randint(1, 19, (2,), generator=draw).tolist()
    lengths = torch.randint(0, 7, (B,), generator=draw).tolist()
    args = problem(lengths, size, bias=seed - 2.0, seed=seed, steps=max(lengths) + seed % 3, final=False)
    assert_close(run(kernel, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize("final", [True, False], ids=["final", "streaming"])
@pytest.mark.parametrize("bias", [-9.0, 0.0])
def test_symbols_inside_of_sentences_may_be_made_to_halt(by, bias, final):
    args = problem([8, 1, 6, 7, 2] + [8] * 12, 17, bias, final=final)
    drawn = torch.rand(args[10].shape, generator=torch.Generator().manual_seed(3)).to(DEVICE) < 0.3
    args[10] |= drawn  # padding too
    assert_close(run(kernel, args, dtype=torch.float32), run(reference, args))
    function = to_segments(args, 11)
    result = run(by("triton", function), args, dtype=torch.float32)
    assert_close(result, run(by("reference", function), args))
    assert result["out ends"][drawn & args[9]].all()
    assert not result["out ends"][~args[9]].any()


@pytest.mark.parametrize("only", [("means",), ("R", "scores"), ("s", "H"), ("weights", "mean")])
def test_any_output_may_go_without_a_gradient(only):
    args = problem([6, 2, 4], 5, 0.0)
    assert_close(run(kernel, args, dtype=torch.float32, only=only), run(reference, args, only=only))


def to_segments(args: list[Tensor], rows: int | None) -> Scan:
    """`act_segments` as a scan of its vectors; with `rows`, a table of so many takes the inputs' place."""
    symbols = None
    if rows is not None:
        draw = torch.Generator().manual_seed(2)
        symbols = torch.randint(0, rows, args[9].shape, generator=draw).to(DEVICE)
        args[0] = torch.randn(rows, args[0].shape[2], generator=draw, dtype=torch.float64).to(DEVICE)

    def function(table: Tensor, *rest: Tensor, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
        weights, carry = ActWeights(*rest[:4]), ActCarry(*rest[4:8])
        segments, carry = act_segments(table, symbols, weights, carry, *rest[8:], epsilon)
        width, (_, lengths, *trace) = weights.weight_hh.shape[1] + 1, segments
        assert torch.equal(lengths, segments.ends.sum(1))
        assert not segments.vectors[..., width:].any()
        return segments.vectors[..., :width], *trace, *carry

    return function


@pytest.fixture
def by(monkeypatch) -> Callable[[str, Scan], Scan]:
    """The same function with another implementation picked."""

    def by(choice: str, function: Scan) -> Scan:
        def with_choice(*args: Tensor, **options: float) -> tuple[Tensor, ...]:
            monkeypatch.setenv(VARIABLE, choice)
            return function(*args, **options)

        return with_choice

    return by


SEGMENT_CASES = {
    "inputs": (([7, 1, 5, 6, 2], 7, 0.0), None),
    "table": (([7, 1, 5, 6, 2], 7, 0.0), 11),
    "one-character segments": (([4, 3], 16, 9.0), 5),
    "whole sentences": (([4, 3], 16, -9.0), 5),
    "wide": (([4, 3], 70, 0.0), 11),
}
if CUDA:
    SEGMENT_CASES |= {
        "full size": ((ragged(512, 100), 50, 0.0), 117),
        "one-character segments, full size": ((ragged(128, 100), 50, 9.0), 117),
        "whole sentences, full size": ((ragged(128, 100), 50, -9.0), 117),
        "size 256": ((ragged(40, 100), 256, 0.0), 117),
    }


@pytest.mark.parametrize("case", SEGMENT_CASES.values(), ids=SEGMENT_CASES)
def test_segments_are_those_of_the_reference(case, by):
    args = problem(*case[0])
    function = to_segments(args, case[1])
    expected = run(by("reference", function), args)
    assert_close(run(by("triton", function), args, dtype=torch.float32), expected)


def test_a_large_table_has_the_same_gradient(by, monkeypatch):
    monkeypatch.setattr(act_scan_triton, "ONE_HOT", 0)
    args = problem([5, 1, 4], 7, 0.0)
    function = to_segments(args, 11)
    expected = run(by("reference", function), args)
    assert_close(run(by("triton", function), args, dtype=torch.float32), expected)


def test_a_symbol_outside_of_the_table_is_nan_and_hurts_no_other():
    args = [a.float() for a in problem([3, 3], 4, 0.0)[:9]]
    symbols = torch.tensor([[1, 2, 0], [0, 9, 1]], device=DEVICE)
    mask = torch.ones(2, 3, dtype=torch.bool, device=DEVICE)
    weights, carry = ActWeights(*args[1:5]), ActCarry(*args[5:9])
    result, _ = act_scan_triton.segments(args[0][0], symbols, weights, carry, mask, mask, EPSILON)
    assert result.vectors[0].isfinite().all()
    assert result.vectors[1, 1, :4].isnan().all()


@pytest.fixture
def poisoned(monkeypatch) -> None:
    """Memory that nothing was written to holds NaN (or True)."""
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def poison(tensor):
        if tensor.dtype in (torch.int8, torch.int64):  # which have no NaN
            return tensor.fill_(-7)
        return tensor.fill_(torch.nan)

    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *a, **k: poison(new_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poison(empty_like(*a, **k)))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("size", "poison"), [(5, float("nan")), (5, float("inf")), (70, float("nan"))])
def test_padding_is_never_read_and_gets_nothing(size, poison):
    args = problem([4, 1, 3], size, 0.0)
    padding = ~args[9]
    clean, dirty = run(kernel, args, dtype=torch.float32), list(args)
    dirty[0] = args[0].masked_fill(padding[..., None], poison)
    assert_same(run(kernel, dirty, dtype=torch.float32), clean)
    assert all(value.isfinite().all() for value in clean.values())
    for name in ("out weights", "out scores", "out ends", "inputs"):
        assert not clean[name][padding].any(), name


def test_a_sentence_does_not_depend_on_its_batch():
    lengths = [6, 3, 4, 5] * 5
    args = problem(lengths, 6, 0.0)
    together = [o[17] for o in kernel(*(a.float() for a in args[:9]), *args[9:])]
    inputs, *carry, mask, forced = (a[17:18] for a in (args[0], *args[5:]))
    alone = kernel(*(a.float() for a in (inputs, *args[1:5], *carry)), mask, forced)
    for name, result, expected in zip(OUTPUTS, together, alone, strict=True):
        torch.testing.assert_close(result, expected[0], atol=1e-6, rtol=1e-6, msg=name)


def test_pieces_are_the_whole_with_their_gradients():
    args = problem([8, 8, 8], 4, 0.0)
    pieces, whole = (run(function, args, dtype=torch.float32) for function in (in_pieces(kernel), kernel))
    assert_close(pieces, whole, tolerance=1e-6)


@pytest.mark.parametrize("k", range(1, 65) if CUDA else [1, 2, 3, 7, 64])
def test_a_halting_unit_that_does_not_learn_ends_a_segment_every_k(k):
    args = problem([2 * k + 1, k], 3, math.log(1 / (k - 1)) if k > 1 else 20.0)
    args[3].zero_()  # what it reads with
    args[7].zero_()  # H
    learning, result = ("inputs", "weight_hh", "bias_hh"), {}
    for scan, dtype in ((kernel, torch.float32), (reference, torch.float64)):
        leaves = [a.to(dtype) for a in args[:9]]
        for leaf in leaves[:3]:
            leaf.requires_grad_()
        means, ends, *_ = scan(*leaves, *args[9:])
        assert [int(t) + 1 for t in ends[0].nonzero()] == [k, 2 * k, 2 * k + 1]
        assert [int(t) + 1 for t in ends[1].nonzero()] == [k]
        grads = torch.autograd.grad(means[ends].square().sum(), leaves[:3])
        result[scan] = {"means": means.detach()} | dict(zip(learning, grads, strict=True))
    assert_close(result[kernel], result[reference])


def test_without_a_gradient_the_outputs_are_the_same():
    args = problem([6, 2, 4], 5, 0.0)
    expected = kernel(*(a.float().requires_grad_() for a in args[:9]), *args[9:])
    with torch.no_grad():
        result = kernel(*(a.float().requires_grad_() for a in args[:9]), *args[9:])
    for name, one, other in zip(OUTPUTS, result, expected, strict=True):
        assert torch.equal(one, other), name
        assert not one.requires_grad


BF16_CASES = {"small": (ragged(16, 7), 17, 0.0), "wide": (ragged(16, 3), 130, 0.0)}
if CUDA:
    BF16_CASES |= {"full size": (ragged(512, 100), 50, 0.0), "size 256": (ragged(40, 100), 256, 0.0)}


@pytest.mark.parametrize("table", [False, True], ids=["inputs", "table"])
@pytest.mark.parametrize("case", BF16_CASES.values(), ids=BF16_CASES)
def test_bfloat16_is_no_worse_than_twice_the_eager_error(case, table, by):
    args = problem(*case)
    ours, eager = kernel, reference
    if table:
        function = to_segments(args, 11)
        ours, eager = by("triton", function), by("reference", function)
    ends = eager(*args)[1]
    args[10] = ends  # the reference's boundaries, and a threshold that no sum reaches

    def imposed(function: Scan, enabled: bool) -> Scan:
        def under_autocast(*args: Tensor) -> tuple[Tensor, ...]:
            with torch.autocast(DEVICE, torch.bfloat16, enabled=enabled):
                return function(*args, epsilon=-torch.inf)

        return under_autocast

    truth = run(imposed(eager, False), args)
    theirs, result = (run(imposed(f, True), args, dtype=torch.float32) for f in (eager, ours))
    assert torch.equal(result["out ends"], ends)
    assert result["out H"].dtype == result["out s"].dtype == torch.float32
    theirs["out means"] = theirs["out means"].bfloat16()  # they too are rounded before the output layer
    comparing.assert_as_good(result, theirs, truth, slack=1e-6)


def test_what_it_cannot_scan_is_said_and_left_to_others(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = problem([3, 2], 4, 0.0)

    def why(args: list[Tensor]) -> str | None:
        return act_scan_triton.unsupported(args[0], ActWeights(*args[1:5]), ActCarry(*args[5:9]))

    assert why(args) == "the kernels are for float32, not float64"
    floats = [a.float() for a in args[:9]] + args[9:]
    assert why(floats) is None
    with torch.autocast(DEVICE, torch.float16):
        assert why(floats) == "autocast is on for a dtype other than bfloat16"
    large = problem([1], 257, 0.0)
    assert why([a.float() for a in large]) == "the state has 257 features, and the kernels hold up to 256"
    weights, carry = ActWeights(*args[1:5]), ActCarry(*args[5:9])
    result, carry = act_segments(args[0], None, weights, carry, *args[9:], EPSILON)
    _, *expected = ActScan.apply(*args, EPSILON)
    assert all(torch.equal(one, other) for one, other in zip((*result[2:], *carry), expected, strict=True))


def test_a_second_derivative_is_refused():
    args = problem([3], 2, 0.0)
    x = args[0].float().requires_grad_()
    assert_no_second_derivative(kernel(x, *(a.float() for a in args[1:9]), *args[9:])[0], x)
