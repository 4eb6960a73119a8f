"""CIF's kernels against the reference in float64: on a GPU, or without one in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from kernels.on_triton import DEVICE, MARKS
from torch import Tensor

from caesura.kernels import VARIABLE, cif_triton
from caesura.kernels.cif import Fired, fire, fire_reference

pytestmark = MARKS


def problem(longest: int, spread: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [B, T], counts from 0 to T, numbers from 1 to the count."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([longest, longest, 1, 0, *range(0, longest + 1, max(1, longest // 5))])
    numbers = [int(torch.randint(1, max(1, n) + 1, (), generator=generator)) for n in counts.tolist()]
    numbers[:2] = [1, longest]  # one segment for all, and one for each
    scores = spread * torch.randn(len(counts), longest, generator=generator)
    return scores.to(DEVICE), counts.to(DEVICE), torch.tensor(numbers).to(DEVICE)


def gradient(fired: Fired, scores: Tensor) -> Tensor:
    """Of random sums of what comes out."""
    generator = torch.Generator().manual_seed(1)
    parts = (fired.weights, fired.spill, fired.a)
    weights = [torch.randn(scores.shape, generator=generator).to(scores) for _ in parts]
    total = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
    (slope,) = torch.autograd.grad(total, scores)
    return slope


@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
@pytest.mark.parametrize("longest", [1, 2, 7, 33, 130])
def test_the_kernels_fire_as_the_reference_does(longest: int, spread: float) -> None:
    scores, counts, numbers = problem(longest, spread)
    exact, single = scores.double().requires_grad_(), scores.requires_grad_()
    expected, result = fire_reference(exact, counts, numbers), cif_triton.fire(single, counts, numbers)
    if spread:  # with equal scores, rounding decides which side of a boundary it falls on
        assert result.ends.equal(expected.ends)
    else:
        assert result.ends.sum(1).equal(expected.ends.sum(1))
        return
    sure = numbers < counts  # where every character is a segment, nothing is made of a
    for name in ("a", "weights", "spill"):
        rows = slice(None) if name == "weights" else sure
        one, other = getattr(result, name)[rows].double(), getattr(expected, name)[rows]
        torch.testing.assert_close(one, other, rtol=0, atol=3e-6, msg=name)
    torch.testing.assert_close(
        gradient(result, single).double(), gradient(expected, exact), rtol=1e-4, atol=1e-4
    )


def test_padding_is_never_read_and_gets_nothing() -> None:
    scores, counts, numbers = problem(12, 1.0)
    beyond = torch.arange(12, device=DEVICE) >= counts[:, None]
    clean = scores.masked_fill(beyond, 0.0).requires_grad_()
    dirty = scores.masked_fill(beyond, torch.nan).requires_grad_()
    one, other = (cif_triton.fire(s, counts, numbers) for s in (clean, dirty))
    for name, part in one._asdict().items():
        assert part.equal(getattr(other, name)), name
        assert not part[beyond].any(), name
    assert gradient(one, clean).equal(gradient(other, dirty))
    assert not gradient(cif_triton.fire(dirty, counts, numbers), dirty)[beyond].any()


def test_which_form_runs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "triton")
    scores, counts, numbers = problem(9, 1.0)
    assert fire(scores, counts, numbers).a.dtype == torch.float32
    assert fire(scores.double(), counts, numbers).a.dtype == torch.float64
    assert "float64" in str(cif_triton.unsupported(scores.double()))
    assert "symbols" in str(cif_triton.unsupported(scores[:, :0]))
