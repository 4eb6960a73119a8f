"""TritonDecode against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.on_triton import DEVICE, MARKS, ON_GPU, OVERFLOWS
from test_attention_decoder import NAMES, OUTPUTS, reference
from torch import Tensor

from caesura.kernels import VARIABLE, attention_decoder_triton
from caesura.kernels.attention_decoder import DecoderWeights, decode
from caesura.kernels.attention_decoder_triton import TritonDecode, unsupported

PAPER = [100, 1, *range(51, 89)], 100, (1000, 1000, 1000)

pytestmark = [*MARKS, OVERFLOWS]


def fast(*args: Tensor) -> tuple[Tensor, Tensor]:
    return TritonDecode.apply(*args)


def problem(lengths: list[int], U: int, sizes: tuple[int, int, int], seed: int = 0) -> list[Tensor]:
    """Arguments in float64, activations exact in bfloat16; sizes: hidden, attention, values."""
    generator = torch.Generator().manual_seed(seed)
    B, S, (H, A, M) = len(lengths), max(lengths), sizes

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    memory = [a.bfloat16() for a in (random(B, U, 3 * H), random(B, H), random(B, S, A), random(B, S, M))]
    weights = [
        random(rows, columns) / columns**0.5 for rows, columns in ((A, H), (1, A), (3 * H, M), (3 * H, H))
    ]
    args = [*memory, mask, *weights, random(3 * H)]
    return [a.to(DEVICE) if a.dtype == torch.bool else a.to(DEVICE, torch.float64) for a in args]


def run(
    function,
    args: list[Tensor],
    dtype: torch.dtype = torch.float64,
    outputs: tuple[str, ...] = OUTPUTS,
) -> dict[str, Tensor]:
    """Outputs and gradients by name; bfloat16 means float32 weights under autocast."""
    low = dtype == torch.bfloat16
    kinds = [torch.float32 if low and place > 4 else dtype for place in range(len(args))]
    leaves = [
        a if a.dtype == torch.bool else a.detach().to(kind).requires_grad_()
        for a, kind in zip(args, kinds, strict=True)
    ]
    with torch.autocast(DEVICE, torch.bfloat16, enabled=low):
        found = dict(zip(OUTPUTS, function(*leaves), strict=True))
    generator = torch.Generator().manual_seed(1)
    directions = [torch.randn(found[o].shape, generator=generator).bfloat16() for o in outputs]
    directions = [d.to(DEVICE, found[o].dtype) for d, o in zip(directions, outputs, strict=True)]
    wanted = {name: a for name, a in zip(NAMES, leaves, strict=True) if a.requires_grad}
    grads = torch.autograd.grad([found[o] for o in outputs], list(wanted.values()), directions)
    return {name: value.detach() for name, value in [*found.items(), *zip(wanted, grads, strict=True)]}


def errors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, float]:
    """Relative RMS error by name; where the truth is zero, as of one segment's energy, against 1e-2."""

    def error(name: str) -> float:
        truth = wanted[name].double()
        scale = max(float(truth.norm()), 1e-3 if truth.norm() > 1e-12 else 1e-2)
        return float((found[name].double() - truth).norm()) / scale

    return {name: error(name) for name in wanted}


def assert_close(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    for name, error in errors(found, wanted).items():
        assert error < tolerance, f"{name}: relative error {error:.1e}"


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
    assert_close(run(fast, args, torch.float32), run(reference, args))


@pytest.mark.parametrize("outputs", [OUTPUTS[:1], OUTPUTS[1:]], ids="+".join)
@pytest.mark.parametrize("case", [CASES["ragged"], CASES["one segment"]], ids=["ragged", "one segment"])
def test_the_gradient_of_one_output_alone(case, outputs):
    args = problem(*case)
    assert_close(run(fast, args, torch.float32, outputs), run(reference, args, outputs=outputs))


@pytest.mark.parametrize("programs", [1, 6, 1000])
def test_a_sentence_may_be_shared_by_any_number_of_programs(programs, monkeypatch):
    monkeypatch.setattr(attention_decoder_triton, "PROGRAMS", programs)
    args = problem([70, 1], 2, (5, 18, 17))
    assert_close(run(fast, args, torch.float32), run(reference, args))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison):
    args = problem([6, 2, 4], 2, (4, 3, 5))
    padding, poisoned = ~args[4], list(args)
    for place in (2, 3):
        poisoned[place] = args[place].masked_fill(padding[..., None], poison)
    clean, found = run(fast, args, torch.float32), run(fast, poisoned, torch.float32)
    for name, value in clean.items():
        assert torch.equal(found[name], value), name
    assert not clean["attention"].transpose(1, 2)[padding].any()
    assert not clean["keys"][padding].any()
    assert not clean["values"][padding].any()


def test_a_mask_may_have_holes():
    args = problem([9, 5], 2, (4, 3, 5))
    args[4][0, [0, 4, 8]] = False
    assert_close(run(fast, args, torch.float32), run(reference, args))


def test_memory_may_lie_in_any_order():
    args = problem([6, 2, 4], 2, (4, 3, 5))
    turned = [a.transpose(0, 1).contiguous().transpose(0, 1) if a.dim() == 3 else a for a in args]
    wanted, found = run(fast, args, torch.float32), run(fast, turned, torch.float32)
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


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
    found, wanted = run(fast, args, torch.float32), run(reference, args, torch.float32)
    assert_close({o: found[o] for o in OUTPUTS}, {o: wanted[o] for o in OUTPUTS}, 1e-4)
    assert all(value.isfinite().all() for value in found.values())


def assert_bf16_is_as_good_as_eager(args: list[Tensor]) -> None:
    wanted = run(reference, args)
    ours, eager = (errors(run(f, args, torch.bfloat16), wanted) for f in (fast, reference))
    for name, error in ours.items():
        assert error <= 2 * eager[name], f"{name}: {error:.1e}, eager {eager[name]:.1e}"


def test_bf16_is_as_close_to_float64_as_the_eager_reference():
    assert_bf16_is_as_good_as_eager(problem([19, 7, 1], 3, (32, 24, 40)))


def test_dtypes_are_those_of_the_reference():
    args = problem([3, 2], 2, (4, 4, 4))
    for dtype in (torch.float32, torch.bfloat16):
        found, wanted = run(fast, args, dtype), run(reference, args, dtype)
        assert (
            found.pop("attention").dtype == torch.float32
        )  # as softmax under CUDA's autocast, not the CPU's
        for name, value in found.items():
            assert value.dtype == wanted[name].dtype, name


def test_what_is_not_supported_falls_back_and_says_why(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = problem([3, 2], 2, (4, 3, 5))
    assert "float64" in unsupported(args[0], args[2], args[3])
    assert "features" in unsupported(args[0].float(), args[2].new_empty(1, 1, 5000), args[3])
    assert unsupported(args[0].float(), args[2], args[3]) is None
    weights = DecoderWeights(*args[5:])
    for found, wanted in zip(decode(*args[:5], weights), reference(*args), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_decode_takes_triton_where_it_can(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    args = [a if a.dtype == torch.bool else a.float().requires_grad_() for a in problem([3, 2], 2, (4, 3, 5))]
    states, _ = decode(*args[:5], DecoderWeights(*args[5:]))
    assert "TritonDecode" in str(states.grad_fn)


@ON_GPU
def test_paper_sizes_in_float32():
    args = problem(*PAPER)
    assert_close(run(fast, args, torch.float32), run(reference, args))


@ON_GPU
def test_paper_sizes_in_bf16():
    assert_bf16_is_as_good_as_eager(problem(*PAPER))
