"""The reference of a GRU layer against PyTorch's own, on odd, ragged and poisoned batches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import comparing
from kernels.comparing import assert_unread
from torch import Tensor, nn

from caesura.encoders.recurrent import RecurrentEncoder
from caesura.kernels import VARIABLE
from caesura.kernels.gru_layer import gru_layer_reference
from caesura.segmenters.readers.recurrent import BiGru, Gru

NAMES = ("inputs", "lengths", "weight_hh", "bias_hh")


def problem(lengths: list[int], H: int, extra: int = 0, seed: int = 0, N: int = 2) -> list[Tensor]:
    """Arguments in float64, inputs exact in bfloat16, with `extra` places of padding for all."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (len(lengths), max(lengths) + extra, N, 3 * H), (N, 3 * H, H), (N, 3 * H)
    inputs, weight, bias = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [inputs.bfloat16().double(), torch.tensor(lengths), weight / H**0.5, bias]


def run(function, args: list[Tensor], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """States and gradients by name."""
    return comparing.run(lambda *leaves: [function(*leaves)], args, NAMES, ["states"], dtype, weights=1)


def pytorch(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """nn.GRU over packed sentences, its input weights such that they pass `inputs` through."""
    N, H = len(weight_hh), weight_hh.shape[2]
    through, zeros = torch.eye(3 * N * H, dtype=inputs.dtype), inputs.new_zeros(3 * H)
    gru = nn.GRU(3 * N * H, H, batch_first=True, bidirectional=N == 2).to(inputs.dtype)
    weights = {}
    for d, end in enumerate(("_l0", "_l0_reverse")[:N]):
        weights |= {f"weight_ih{end}": through[3 * H * d : 3 * H * (d + 1)], f"bias_ih{end}": zeros}
        weights |= {f"weight_hh{end}": weight_hh[d], f"bias_hh{end}": bias_hh[d]}
    packed = nn.utils.rnn.pack_padded_sequence(
        inputs.flatten(2), lengths, batch_first=True, enforce_sorted=False
    )
    states, _ = torch.func.functional_call(gru, weights, (packed,))
    return nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=inputs.shape[1])[0]


def assert_close(result: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(result[name], value, rtol=0, atol=1e-11, msg=lambda t, n=name: f"{n}: {t}")


@settings(max_examples=12)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(0, 99),
    st.integers(1, 2),
)
def test_the_reference_is_a_gru_in_one_direction_or_two(lengths, H, extra, seed, N):
    args = problem(lengths, H, extra, seed, N)
    assert_close(run(gru_layer_reference, args), run(pytorch, args))


@pytest.mark.parametrize("N", [1, 2])
def test_the_gradient_is_the_slope(N):
    inputs, lengths, *weights = problem([3, 1], 2, N=N)
    leaves = [a.requires_grad_() for a in (inputs, *weights)]
    assert torch.autograd.gradcheck(lambda x, *w: gru_layer_reference(x, lengths, *w), leaves)


@pytest.mark.parametrize("N", [1, 2])
def test_a_sentence_does_not_depend_on_its_batch(N):
    inputs, lengths, *weights = problem([4, 1, 6], 3, N=N)
    together = gru_layer_reference(inputs, lengths, *weights)
    for b, n in enumerate(lengths.tolist()):
        alone = gru_layer_reference(inputs[b : b + 1, :n], lengths[b : b + 1], *weights)
        torch.testing.assert_close(together[b : b + 1, :n], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("N", [1, 2])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison, N):
    args = problem([6, 2, 4], 3, extra=1, N=N)
    padding, empty = torch.arange(7) >= args[1][:, None], ("out states", "inputs")
    assert_unread(lambda a: run(gru_layer_reference, a), args, padding, [0], poison, empty)


@pytest.mark.parametrize("N", [1, 2])
def test_an_empty_sentence_has_zeros_and_gives_nothing(N):
    args = problem([3, 0, 2], 3, N=N)
    result = run(gru_layer_reference, args)
    assert not result["out states"][1].any()
    assert not result["inputs"][1].any()
    others = [args[0][[0, 2]], args[1][[0, 2]], *args[2:]]
    torch.testing.assert_close(result["out states"][[0, 2]], gru_layer_reference(*others), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
def test_an_encoder_by_the_reference_is_the_encoder_by_pytorch(layers, monkeypatch):
    torch.manual_seed(0)
    encoder = RecurrentEncoder(4, 3, layers).double()
    vectors, lengths = torch.randn(3, 5, 4, dtype=torch.float64).requires_grad_(), torch.tensor([5, 2, 1])
    inside = (torch.arange(5) < lengths[:, None])[..., None]
    leaves, results = {"vectors": vectors, **dict(encoder.named_parameters())}, {}
    for choice in ("reference", "fused"):
        monkeypatch.setenv(VARIABLE, choice)
        encoded = encoder(vectors, lengths)
        states = encoded.states.where(inside, 0)
        grads = torch.autograd.grad(
            states.square().sum() + encoded.summary.exp().sum(), list(leaves.values())
        )
        results[choice] = {"states": states, "summary": encoded.summary}
        results[choice] |= dict(zip(leaves, grads, strict=True))
    assert_close(results["reference"], results["fused"])


@pytest.mark.parametrize("reader", [Gru, BiGru])
def test_a_reader_by_the_reference_is_the_reader_by_pytorch(reader, monkeypatch):
    torch.manual_seed(0)
    layer, results = reader(9, 4, 3).double(), {}
    symbols, lengths = torch.randint(9, (4, 6)), torch.tensor([6, 2, 0, 1])
    for choice in ("reference", "fused"):
        monkeypatch.setenv(VARIABLE, choice)
        states = layer(symbols, lengths)
        grads = torch.autograd.grad(states.sin().square().sum(), [*layer.parameters()])
        results[choice] = {"states": states} | dict(zip(dict(layer.named_parameters()), grads, strict=True))
    assert_close(results["reference"], results["fused"])
    assert not results["fused"]["states"][torch.arange(6) >= lengths[:, None]].any()
