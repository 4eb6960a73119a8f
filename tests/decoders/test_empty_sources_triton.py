"""Triton's kernels on a source of no symbols: as the reference, outputs and all gradients, by name."""

from __future__ import annotations

import pytest
import torch
from kernels.on_triton import CUDA, DEVICE, MARKS
from test_empty_sources import DECODERS, LENGTHS, SYMBOLS, TARGET_LENGTHS, TARGETS, made
from torch import Tensor

from caesura.kernels import VARIABLE, used

pytestmark = MARKS


def run(decoder: str, dtype: torch.dtype, segments: int = 4) -> dict[str, Tensor]:
    """Outputs and gradients of the layers; `segments` is how many a sentence has room for."""
    model = made("lookup", decoder).to(DEVICE, dtype)
    symbols = torch.nn.functional.pad(SYMBOLS, (0, segments - SYMBOLS.shape[1])).to(DEVICE)
    result = model["segmenter"](symbols, LENGTHS.to(DEVICE))
    encoded = model["encoder"](result.vectors, result.lengths)
    decoded = model["decoder"](encoded, TARGETS.to(DEVICE), TARGET_LENGTHS.to(DEVICE))
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(decoded.logits.square().sum() + decoded.penalty.sum(), parameters)
    results = {"logits": decoded.logits.detach(), "attention": decoded.attention.detach()}
    with torch.no_grad():
        state = model["decoder"].start(encoded)
        step, _ = model["decoder"].step(state, torch.full((3, 1), 2, device=DEVICE))
        results |= {"step's logits": step.logits, "step's attention": step.attention}
    return results | dict(zip(names, grads, strict=True))


@pytest.mark.parametrize("segments", [4, 130])  # one part of a sentence per program, and several
@pytest.mark.parametrize("decoder", [name for name in DECODERS if not name.startswith("transformer")])
def test_it_is_the_reference(decoder: str, segments: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if segments > 4 and not CUDA and decoder != "recurrent":
        pytest.skip("takes long in the interpreter, and the kernel that sums parts up is the same")
    monkeypatch.setenv(VARIABLE, "triton")
    result = run(decoder, torch.float32, segments)
    kernel = "attention_decoder" if decoder == "recurrent" else "act_decoder"
    assert used[kernel][0] == "triton"
    monkeypatch.setenv(VARIABLE, "reference")
    expected = run(decoder, torch.float64, segments)
    for name, value in expected.items():
        assert value.isfinite().all(), name
        torch.testing.assert_close(result[name].double(), value, rtol=1e-4, atol=1e-5, msg=name)
    assert not result["attention"][1].any()
    assert not result["step's attention"][1].any()
