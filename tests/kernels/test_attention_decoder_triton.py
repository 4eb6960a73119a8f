"""TritonDecode against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import assert_same, assert_unread, turned
from kernels.on_triton import DEVICE, MARKS, ON_GPU, OVERFLOWS
from test_attention_decoder import NAMES, OUTPUTS, reference
from test_attention_decoder import problem as on_cpu
from torch import Tensor

from caesura.kernels import VARIABLE, attention_decoder_triton
from caesura.kernels.attention_decoder import DecoderWeights, decode
from caesura.kernels.attention_decoder_triton import TritonDecode, unsupported

PAPER = [100, 1, *range(51, 89)], 100, (1000, 1000, 1000)

pytestmark = [*MARKS, OVERFLOWS]


def fast(*args: Tensor) -> tuple[Tensor, Tensor]:
    return TritonDecode.apply(*args)


def problem(*given: Any) -> list[Tensor]:
    return [argument.to(DEVICE) for argument in on_cpu(*given)]


run = partial(comparing.run, names=NAMES, outputs=OUTPUTS, weights=5)
assert_close = partial(comparing.assert_close, tolerance=1e-5, zero=1e-2)  # one segment's energy has no slope


CASES = {
    "ragged": ([7, 1, 4], 3, (4, 6, 5)),
    "hidden and attention size are the same": ([3, 5], 3, (6, 6, 9)),
    "one sentence": ([5], 3, (3, 2, 7)),
    "one segment": ([1, 1], 2, (5, 3, 2)),
    "one step": ([3, 2], 1, (2, 3, 4)),
    "all ones": ([1], 1, (1, 1, 1)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_triton_is_the_reference(case):
    args = problem(*case)
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[1:]], ids="+".join)
@pytest.mark.parametrize("case", [CASES["ragged"], CASES["one segment"]], ids=["ragged", "one segment"])
def test_the_gradient_of_one_output_alone(case, outputs):
    args = problem(*case)
    assert_close(run(fast, args, dtype=torch.float32, only=outputs), run(reference, args, only=outputs))


@pytest.mark.parametrize("programs", [1, 6, 1000])
def test_a_sentence_may_be_shared_by_any_number_of_programs(programs, monkeypatch):
    monkeypatch.setattr(attention_decoder_triton, "PROGRAMS", programs)
    args = problem([70, 1], 2, (5, 18, 17))
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison):
    args = problem([6, 2, 4], 2, (4, 3, 5))
    assert_unread(lambda a: run(fast, a, dtype=torch.float32), args, ~args[4], (2, 3), poison)


def test_a_mask_may_have_holes():
    args = problem([9, 5], 2, (4, 3, 5))
    args[4][0, [0, 4, 8]] = False
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


def test_memory_may_lie_in_any_order():
    args = problem([6, 2, 4], 2, (4, 3, 5))
    assert_same(run(fast, turned(args), dtype=torch.float32), run(fast, args, dtype=torch.float32))


def test_a_sentence_does_not_depend_on_its_batch():
    args = problem([9, 4, 6], 3, (4, 3, 5))
    alone = [a[1:2] if place < 5 else a for place, a in enumerate(args)]
    alone[2:5] = [a[:, :4] for a in alone[2:5]]
    together, single = (fast(*(a if a.dtype == torch.bool else a.float() for a in x)) for x in (args, alone))
    torch.testing.assert_close(together[0][1:2], single[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(together[1][1:2, :, :4], single[1], rtol=0, atol=1e-5)


def test_energies_may_be_large_and_tanh_saturated():
    args = problem([6, 3], 2, (4, 5, 3))
    args[2], args[6] = 100 * args[2], 100 * args[6]
    result, expected = (run(function, args, dtype=torch.float32) for function in (fast, reference))
    outputs = [{name: values[f"out {name}"] for name in OUTPUTS} for values in (result, expected)]
    assert_close(*outputs, tolerance=1e-4)
    assert all(value.isfinite().all() for value in result.values())


def assert_bf16_is_as_good_as_eager(args: list[Tensor]) -> None:
    low = [run(function, args, dtype=torch.bfloat16) for function in (fast, reference)]
    comparing.assert_as_good(*low, run(reference, args), zero=1e-2)


def test_bf16_is_as_close_to_float64_as_the_eager_reference():
    assert_bf16_is_as_good_as_eager(problem([19, 7, 1], 3, (32, 24, 40)))


def test_dtypes_are_those_of_the_reference():
    args = problem([3, 2], 2, (4, 4, 4))
    for dtype in (torch.float32, torch.bfloat16):
        result, expected = run(fast, args, dtype=dtype), run(reference, args, dtype=dtype)
        # As softmax under CUDA's autocast, not the CPU's.
        assert result.pop("out attention").dtype == torch.float32
        for name, value in result.items():
            assert value.dtype == expected[name].dtype, name


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = problem([3, 2], 2, (4, 3, 5))
    assert "float64" in unsupported(args[0], args[2], args[3])
    assert "features" in unsupported(args[0].float(), args[2].new_empty(1, 1, 5000), args[3])
    assert unsupported(args[0].float(), args[2], args[3]) is None
    weights = DecoderWeights(*args[5:])
    for result, expected in zip(decode(*args[:5], weights), reference(*args), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


def test_decode_takes_triton_where_it_can(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = [a if a.dtype == torch.bool else a.float().requires_grad_() for a in problem([3, 2], 2, (4, 3, 5))]
    states, _ = decode(*args[:5], DecoderWeights(*args[5:]))
    assert "TritonDecode" in str(states.grad_fn)


@ON_GPU
def test_paper_sizes_in_float32():
    args = problem(*PAPER)
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@ON_GPU
def test_paper_sizes_in_bf16():
    assert_bf16_is_as_good_as_eager(problem(*PAPER))
