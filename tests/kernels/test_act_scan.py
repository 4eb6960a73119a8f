"""ActScan against its reference: outputs and all gradients, on odd, ragged, streamed and poisoned batches."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import comparing
from kernels.comparing import assert_close, assert_no_second_derivative, assert_same
from torch import Tensor
from wording import refuses

from caesura.errors import InputError
from caesura.kernels import VARIABLE, pick, used
from caesura.kernels.act_scan import ActCarry, ActScan, ActWeights, act_scan_reference, act_segments

NAMES = ("inputs", *ActWeights._fields, *ActCarry._fields, "mask", "forced")
OUTPUTS = ("means", "ends", "weights", "scores", *ActCarry._fields)
EPSILON = 0.01


def fused(*args: Tensor) -> tuple[Tensor, ...]:
    return ActScan.apply(*args, EPSILON)


def reference(inputs: Tensor, *rest: Tensor, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
    weights, carry = ActWeights(*rest[:4]), ActCarry(*rest[4:8])
    trace, carry = act_scan_reference(inputs, weights, carry, *rest[8:], epsilon)
    return *trace, *carry


def problem(
    lengths: list[int], size: int, bias: float, seed: int = 0, steps: int | None = None, final: bool = True
):
    """Arguments in float64: a random incoming carry, segments whose length the halting bias decides."""
    generator = torch.Generator().manual_seed(seed)
    steps = max(lengths) if steps is None else steps

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    B, count = len(lengths), torch.tensor(lengths)[:, None]
    mask = torch.arange(steps) < count
    forced = (torch.arange(steps) == count - 1) & final
    weights = (
        random(3 * size, size) / size**0.5,
        random(3 * size),
        0.3 * random(1, size),
        torch.full((1,), bias, dtype=torch.float64),
    )
    carry = random(B, size), 0.3 * random(B, size), 0.4 * random(B).sigmoid(), random(B).abs()
    return [random(B, steps, 3 * size), *weights, *carry, mask, forced]


run = partial(comparing.run, names=NAMES, outputs=OUTPUTS)


CASES = {
    "one symbol": ([1], 3, 1.0),
    "one sentence": ([9], 5, 1.0),
    "one-character segments": ([7, 3, 5], 5, 9.0),
    "mixed": ([13, 1, 8, 11, 2], 7, 0.0),
    "whole sentences": ([9, 4, 1], 5, -9.0),
    "size one": ([6, 5], 1, 0.0),
}


@pytest.mark.parametrize("final", [True, False], ids=["final", "streaming"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fused_is_the_reference(case, final):
    args = problem(*case, final=final)
    assert_close(run(fused, args), run(reference, args), 1e-10)


ANY = given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),  # lengths
    st.integers(1, 6),  # size
    st.floats(-3, 5),  # bias
    st.integers(0, 99),  # seed
    st.booleans(),
)


@settings(max_examples=12)
@ANY
def test_fused_is_the_reference_on_any_batch(lengths, size, bias, seed, inside):
    args = problem(lengths, size, bias, seed, steps=max(lengths) + 1 + seed % 2, final=False)
    if inside:  # of sentences, and of padding, symbols must halt
        args[10] = torch.rand(args[10].shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    assert_close(run(fused, args), run(reference, args), 1e-10)


def with_cuts(args: list[Tensor], seed: int) -> list[Tensor]:
    """The same with random cuts, in padding too: 1 must halt, -1 must not, 0 as the score decides."""
    drawn = torch.randint(-1, 2, args[10].shape, generator=torch.Generator().manual_seed(seed))
    return [*args[:10], torch.where(args[10], 1, drawn).to(torch.int8)]


@settings(max_examples=12)
@ANY
def test_fused_is_the_reference_under_given_cuts(lengths, size, bias, seed, final):
    args = with_cuts(problem(lengths, size, bias, seed, steps=max(lengths) + 1, final=final), seed)
    result, real = run(fused, args), args[9]
    assert_close(result, run(reference, args), 1e-10)
    assert result["out ends"][(args[10] > 0) & real].all()
    assert not result["out ends"][(args[10] < 0) | ~real].any()
    assert not result["out weights"][~real].any()
    assert (result["out weights"] >= 0).all()


@pytest.mark.parametrize("function", [fused, reference])
def test_cuts_in_int8_that_only_make_halt_are_those_in_bool(function):
    args = problem([8, 3, 6], 4, 0.0)
    args[10] |= torch.rand(args[10].shape, generator=torch.Generator().manual_seed(0)) < 0.3
    assert_same(run(function, [*args[:10], args[10].to(torch.int8)]), run(function, args))


@pytest.mark.parametrize("case", [([37, 20, 31, 1], 48, 1.0), ([37, 20, 31, 1], 48, -2.0)])
def test_float32_is_close_to_float64(case):
    args = problem(*case)
    expected = run(reference, args)
    for function in (fused, reference):
        assert_close(run(function, args, dtype=torch.float32), expected, 1e-5)


@pytest.mark.parametrize("function", [fused, reference])
@pytest.mark.parametrize("bias", [-9.0, 0.0, 9.0])
@pytest.mark.parametrize("given", [False, True], ids=["free", "given"])
def test_the_gradient_is_the_slope(function, bias, given):
    args = problem([4, 2], 2, bias)
    if given:  # one goes on far beyond a sum of 1, one ends early
        args[10] = torch.tensor([[-1, -1, -1, 1], [1, 1, 0, 0]], dtype=torch.int8)
    # No sum so near the threshold that gradcheck's steps cross it: f is not differentiable there.
    near = [reference(*args, epsilon=EPSILON + shift)[1] for shift in (-1e-4, 1e-4)]
    assert torch.equal(*near)

    def floats(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(o for o in function(*leaves, *args[9:]) if o.is_floating_point())

    assert torch.autograd.gradcheck(floats, [a.requires_grad_() for a in args[:9]])


@pytest.mark.parametrize("function", [fused, reference])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e30])
def test_padding_is_never_read_and_gets_nothing(function, poison):
    args = problem([6, 2, 4], 5, 0.0)
    clean, poisoned = run(function, args), list(args)
    padding = ~args[9]
    poisoned[0] = args[0].masked_fill(padding[..., None], poison)
    assert_same(run(function, poisoned), clean)
    for name in ("out weights", "out scores", "out ends", "inputs"):
        assert not clean[name][padding].any(), name


def in_pieces(function):
    """The same scan in four pieces, one of them empty, each going on from the carry of the one before."""

    def whole(*args: Tensor) -> tuple[Tensor, ...]:
        traces, carry = [], args[5:9]
        for begin, end in ((0, 3), (3, 3), (3, 4), (4, 8)):
            inputs, mask, forced = (args[place][:, begin:end] for place in (0, 9, 10))
            results = function(inputs, *args[1:5], *carry, mask, forced)
            traces.append(results[:4])
            carry = results[4:]
        return *(torch.cat(parts, 1) for parts in zip(*traces, strict=True)), *carry

    return whole


def test_pieces_are_the_whole_with_their_gradients():
    args = problem([8, 8, 8], 4, 0.0)
    assert_close(run(in_pieces(fused), args), run(fused, args), 1e-12)


def test_a_second_derivative_is_refused():
    args = problem([3], 2, 0.0)
    x = args[0].requires_grad_()
    assert_no_second_derivative(fused(x, *args[1:])[0], x)


def test_what_a_kernel_ran_and_why_is_kept(monkeypatch):
    args = problem([3], 2, 0.0)
    for choice in ("reference", "fused"):
        monkeypatch.setenv(VARIABLE, choice)
        act_segments(args[0], None, ActWeights(*args[1:5]), ActCarry(*args[5:9]), *args[9:], EPSILON)
        assert used["act_scan"] == (choice, "CAESURA_KERNELS asks for it")


def test_a_gpu_that_is_not_the_current_one_takes_the_reference(monkeypatch):
    unsupported = pytest.importorskip("caesura.kernels.launch").unsupported
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kinds = torch.float32, torch.float32
    assert "torch.cuda.set_device(1)" in unsupported(torch.device("cuda:1"), *kinds)
    assert unsupported(torch.device("cuda:0"), *kinds) is None


def test_one_place_picks_and_says_why(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert pick("cpu")[0] == "fused"
    assert pick("cpu", "linear") == ("reference", "there is no fused form")
    assert pick(torch.device("cuda"))[0] == ("triton" if find_spec("triton") else "fused")
    with torch.autocast("cpu", torch.bfloat16):
        assert pick("cpu")[0] == "reference"
        assert "autocast" in pick("cpu")[1]
    monkeypatch.setenv(VARIABLE, "reference")
    assert pick("cpu") == ("reference", "CAESURA_KERNELS asks for it")
    monkeypatch.setenv(VARIABLE, "fast")
    with refuses(InputError, "CAESURA_KERNELS ", "'fast'"):
        pick("cpu")
