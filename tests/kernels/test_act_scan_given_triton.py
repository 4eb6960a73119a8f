"""The ACT scan's Triton kernels under given cuts against the reference: outputs and all gradients, by name.

On a GPU also at full size; without one the kernels run, on small shapes, in Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch
from kernels.comparing import assert_same
from kernels.on_triton import CUDA, DEVICE, MARKS
from test_act_scan import problem as on_cpu
from test_act_scan import run, with_cuts
from test_act_scan_triton import assert_close, by, kernel, problem, ragged, reference, to_segments
from torch import Tensor

from caesura.kernels import VARIABLE
from caesura.segmenters.act import ActSegmenter

__all__ = ["by"]  # a fixture
pytestmark = MARKS

CASES = {
    "mixed": (ragged(5, 8), 17, 0.0),
    "one-character segments": ([4, 3, 2], 5, 9.0),
    "whole sentences": ([5, 4, 1], 5, -9.0),
    "two programs": (ragged(17, 5), 16, 1.0),
    "wide": ([4, 3], 70, 1.0),
}
if CUDA:
    CASES |= {
        "full size": (ragged(512, 100), 50, 0.0),
        "400 characters": (ragged(33, 400), 50, -1.0),
        "size 256": (ragged(129, 100), 256, 0.0),
    }


def given(case, final: bool = True) -> list[Tensor]:
    """A problem with random cuts."""
    return [a.to(DEVICE) for a in with_cuts(on_cpu(*case, final=final), 0)]


@pytest.mark.parametrize("final", [True, False], ids=["final", "streaming"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_the_reference(case, final):
    args = given(case, final=final)
    result = run(kernel, args, dtype=torch.float32)
    assert_close(result, run(reference, args))
    ends, real = result["out ends"], args[9]
    assert ends[(args[10] > 0) & real].all()
    assert not ends[(args[10] < 0) | ~real].any()


@pytest.mark.parametrize("rows", [None, 11], ids=["inputs", "table"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_segments_are_those_of_the_reference(case, rows, by):
    args = given(case)
    function = to_segments(args, rows)
    expected = run(by("reference", function), args)
    assert_close(run(by("triton", function), args, dtype=torch.float32), expected)


def test_cuts_in_int8_that_only_make_halt_are_those_in_bool():
    args = problem([6, 3, 5], 4, 0.0)
    args[10] |= torch.rand(args[10].shape, generator=torch.Generator().manual_seed(0)).to(DEVICE) < 0.3
    int8 = [*args[:10], args[10].to(torch.int8)]
    assert_same(run(kernel, int8, dtype=torch.float32), run(kernel, args, dtype=torch.float32))


@pytest.mark.parametrize("choice", ["fused", "triton"])
def test_a_layer_under_given_cuts_is_the_layer_by_the_reference(choice, monkeypatch):
    torch.manual_seed(0)
    layer = ActSegmenter(11, 4, 5, 3, halting_bias=0.0).to(DEVICE)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(2)
    symbols, lengths = torch.randint(11, (5, 9)).to(DEVICE), torch.tensor([9, 4, 0, 1, 7], device=DEVICE)
    cuts = torch.randint(-1, 2, (5, 9), dtype=torch.int8).to(DEVICE)
    results = {}
    for name, dtype in ((choice, torch.float32), ("reference", torch.float64)):
        monkeypatch.setenv(VARIABLE, name)
        layer = layer.to(dtype)
        result = layer(symbols, lengths, given=cuts)
        probe = torch.linspace(-1, 1, 3, device=DEVICE, dtype=dtype)
        loss = (result.vectors * probe).sum() + result.penalty.sum() + result.weights.square().sum()
        grads = dict(
            zip(dict(layer.named_parameters()), torch.autograd.grad(loss, [*layer.parameters()]), strict=True)
        )
        outputs = {
            "ends": result.ends,
            "vectors": result.vectors,
            "weights": result.weights,
            "live": result.live,
        }
        results[name] = outputs | {"penalty": result.penalty, "scores": result.scores} | grads
    for name, expected in results["reference"].items():
        torch.testing.assert_close(
            results[choice][name].double(), expected.double(), rtol=0, atol=2e-5, msg=name
        )
