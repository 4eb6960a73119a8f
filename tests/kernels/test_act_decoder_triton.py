"""TritonActDecode against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import Args, Values, assert_a_graph_replays, assert_same, assert_unread, turned
from kernels.on_triton import CUDA, DEVICE, MARKS, ON_GPU, OVERFLOWS
from test_act_decoder import (
    CASES,
    DIFFERENTIABLE,
    EPSILON,
    REGIMES,
    assert_a_sentence_does_not_depend_on_its_batch,
    run,
)
from test_act_decoder import problem as on_cpu
from torch import Tensor

from caesura.decoders.act import ActDecoder
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE, act_decoder_triton, attention_decoder_triton
from caesura.kernels.act_decoder import act_decode, act_decode_reference
from caesura.kernels.act_decoder_triton import TritonActDecode, unsupported
from caesura.kernels.act_decoder_weights import ActDecoderWeights

# source and target lengths; H, A, E, M
PAPER = [(100 - b % 50, 100 - b % 37) for b in range(128)], (1000, 250, 1000, 1000)

pytestmark = [*MARKS, OVERFLOWS]


def fast(*args: Tensor | None, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
    return TritonActDecode.apply(*args[:6], epsilon, *args[6:])


def reference(*args: Tensor | None, epsilon: float = EPSILON) -> tuple[Tensor, ...]:
    return act_decode_reference(*args[:6], ActDecoderWeights.of(args[6:]), epsilon)


def problem(*given: Any, **named: Any) -> Args:
    return [None if a is None else a.to(DEVICE) for a in on_cpu(*given, **named)]


def leaves_of(args: Args, dtype: torch.dtype) -> Args:
    return comparing.leaves_of(args, dtype, weights=6)


def zero(expected: Values) -> float:
    """The scale of errors where the truth is zero, as of one segment's energy.

    There two terms cancel that are made of the gradient of the values: a tenth of that, so that 1e-5 means
    about eight roundings of float32.
    """
    return 0.1 * float(expected["values"].double().norm())


def assert_close(actual: Values, expected: Values, tolerance: float = 1e-5) -> None:
    comparing.assert_close(actual, expected, tolerance, zero(expected))


# In the interpreter, which takes seconds for each: every size, and every regime, but not each with each.
PAIRS = [
    (case, regime) for case in CASES for regime in REGIMES if CUDA or case == "ragged" or regime == "mixed"
]


@pytest.mark.parametrize(("case", "regime"), PAIRS)
def test_triton_is_the_reference(case, regime):
    args = problem(*CASES[case], regime)
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize(
    ("case", "regime"),
    [(case, regime) for case in ("ragged", "equal sizes") for regime in REGIMES if CUDA or regime == "mixed"],
)
def test_the_context_may_be_fed_to_every_inner_step(case, regime):
    args = problem(*CASES[case], regime, fed=True)
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@pytest.mark.parametrize("output", DIFFERENTIABLE)
def test_the_gradient_of_one_output_alone(output):
    args = problem([(5, 4), (3, 6)], (3, 4, 5, 2))
    assert_close(run(fast, args, dtype=torch.float32, only=[output]), run(reference, args, only=[output]))


@pytest.mark.parametrize(("programs", "block"), [(1, 16), (6, 16), (1000, 512)])
def test_the_work_may_be_shared_by_any_number_of_programs(programs, block, monkeypatch):
    monkeypatch.setattr(attention_decoder_triton, "PROGRAMS", programs)
    monkeypatch.setattr(attention_decoder_triton, "BLOCK", block)
    args = problem([(70, 4), (1, 3)], (21, 5, 18, 17))
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


def test_what_nothing_was_written_to_is_never_read(monkeypatch):
    args = problem([(6, 5), (2, 3), (4, 4)], (5, 4, 3, 6), fed=True)
    clean, new = run(fast, args, dtype=torch.float32), act_decoder_triton.new_buffers

    def poisoned(layout, device):
        return {
            name: buffer.fill_(torch.nan if buffer.is_floating_point() else 99)
            for name, buffer in new(layout, device).items()
        }

    monkeypatch.setattr(act_decoder_triton, "new_buffers", poisoned)
    assert all(value.isfinite().all() for value in clean.values())
    assert_same(run(fast, args, dtype=torch.float32), clean)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison):
    args = problem([(6, 3), (2, 4), (4, 2)], (4, 3, 5, 3))
    assert_unread(lambda a: run(fast, a, dtype=torch.float32), args, ~args[4], (2, 3), poison)


def test_memory_may_lie_in_any_order():
    args = problem([(6, 3), (2, 4), (4, 2)], (4, 3, 5, 3))
    assert_close(run(fast, turned(args), dtype=torch.float32), run(fast, args, dtype=torch.float32), 1e-6)


def test_a_sentence_does_not_depend_on_its_batch():
    args = leaves_of(problem([(6, 7), (4, 5), (5, 3)], (5, 4, 3, 6)), torch.float32)
    assert_a_sentence_does_not_depend_on_its_batch(fast, args, 1e-5)


def assert_bf16_is_as_good_as_eager(args: Args) -> None:
    """With the boundaries of float64 imposed, and a threshold that no sum reaches."""
    args = [*(a.bfloat16().double() for a in args[:4]), *args[4:]]
    ends = run(reference, args)["out ends"]
    args = [*args[:5], ends, *args[6:]]
    expected = run(reference, args, epsilon=-torch.inf)
    options = {"dtype": torch.bfloat16, "weights": 6, "epsilon": -torch.inf}
    result, eager = (run(function, args, **options) for function in (fast, reference))
    assert torch.equal(result["out ends"], ends)
    comparing.assert_as_good(result, eager, expected, slack=1e-6, zero=zero(expected))


@pytest.mark.parametrize("fed", [False, True], ids=["", "context fed"])
def test_bf16_is_as_close_to_float64_as_the_eager_reference(fed):
    assert_bf16_is_as_good_as_eager(problem([(9, 8), (7, 5), (1, 6)], (32, 12, 24, 40), fed=fed))


def test_halting_stays_in_float32_under_autocast():
    trace = run(fast, problem([(4, 5), (3, 3)], (8, 4, 4, 8)), dtype=torch.bfloat16, weights=6)
    assert trace["out scores"].dtype == trace["out weights"].dtype == torch.float32
    assert trace["out states"].dtype == torch.bfloat16
    assert all(trace[name].dtype == torch.float32 for name in ActDecoderWeights._fields if name in trace)


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = leaves_of(problem(*CASES["ragged"]), torch.float64)
    weights, inputs = ActDecoderWeights.of(args[6:]), args[0].float()
    wide = weights._replace(inner_hh=torch.empty(1, 5000))
    assert "float64" in unsupported(args[0], args[2], args[3], weights)
    assert "keys or values" in unsupported(inputs, torch.empty(1, 1, 5000), args[3], weights)
    assert "ACT state" in unsupported(inputs, args[2], args[3], wide)
    assert unsupported(inputs, args[2], args[3], weights) is None
    result = act_decode(*args[:6], weights, EPSILON)
    for one, other in zip(result, reference(*args), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_decoder_takes_triton_where_it_can(monkeypatch):
    torch.manual_seed(0)
    sizes, lengths = {"embedding_dim": 3, "hidden_size": 5}, torch.tensor([6, 4], device=DEVICE)
    sizes |= {"act_size": 4, "attention_size": 6}
    made = ActDecoder(9, memory_dim=4, summary_dim=6, **sizes).to(DEVICE)
    encoded = Encoded(torch.randn(2, 5, 4).to(DEVICE), lengths - 1, torch.randn(2, 6).to(DEVICE))
    symbols, within = torch.randint(9, (2, 6)).to(DEVICE), torch.arange(6, device=DEVICE) < lengths[:, None]
    results = []
    for choice in ("triton", "reference"):
        monkeypatch.setenv(VARIABLE, choice)
        decoded = made(encoded, symbols, lengths)
        loss = (decoded.logits.square() * within[..., None]).sum() + decoded.penalty.sum()
        gradients = torch.autograd.grad(loss, [*made.parameters()], materialize_grads=True)
        results.append([decoded.logits, decoded.attention, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@ON_GPU
@pytest.mark.parametrize("regime", REGIMES)
def test_paper_sizes_in_float32(regime):
    args = problem(*PAPER, regime)
    assert_close(run(fast, args, dtype=torch.float32), run(reference, args))


@ON_GPU
@pytest.mark.parametrize("fed", [False, True], ids=["", "context fed"])
def test_paper_sizes_in_bf16(fed):
    assert_bf16_is_as_good_as_eager(problem(*PAPER, fed=fed))


@ON_GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_graph_gives_what_plain_launches_give(dtype):
    sizes = [(40, 33), (7, 21), (23, 40)], (100, 50, 60, 80)
    args, others = (leaves_of(problem(*sizes, seed=seed), dtype) for seed in (0, 1))
    leaves = [a for a in args if a is not None and a.requires_grad]

    def step() -> tuple[Tensor, ...]:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=dtype == torch.bfloat16):
            states, _, ends, p, h = fast(*args)
        loss = states.float().square().sum() + p.square().sum() + h.sum()
        return states.detach(), ends, *torch.autograd.grad(loss, leaves)

    assert_a_graph_replays(step, args, others)  # other weights, and so other segments
