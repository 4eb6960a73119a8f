"""The reference of a sum and its norm is PyTorch's layers, and states stay precise."""

import pytest
import torch
from torch import nn

from caesura.encoders.transformer import TransformerEncoder
from caesura.kernels.residual_norm import residual_norm, residual_norm_reference


def test_the_reference_is_pytorchs_layers() -> None:
    states, update = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    norm, dropout = nn.LayerNorm(6, eps=1e-3).double(), nn.Dropout(0.4)
    nn.init.normal_(norm.weight)
    for before in (states, None):
        torch.manual_seed(1)
        total, normed = residual_norm_reference(before, update, norm.weight, norm.bias, 1e-3, 0.4)
        torch.manual_seed(1)
        expected = dropout(update) if before is None else before + dropout(update)
        assert torch.equal(total, expected)
        assert torch.equal(normed, norm(expected))


@pytest.mark.parametrize("before", [False, True])
def test_states_are_as_precise_as_the_weights_and_norms_as_asked(before: bool) -> None:
    states = torch.randn(3, 4) if before else None
    total, normed = residual_norm(
        states, torch.randn(3, 4).bfloat16(), torch.ones(4), torch.zeros(4), dtype=torch.bfloat16
    )
    assert (total.dtype, normed.dtype) == (torch.float32, torch.bfloat16)


def test_autocast_shortens_products_not_the_states_of_an_encoder() -> None:
    """Also where a product makes its input."""
    encoder = TransformerEncoder(5, 8, 2, 7)
    with torch.autocast("cpu", torch.bfloat16):
        encoded = encoder(torch.randn(2, 3, 5), torch.tensor([3, 2]))
    assert encoded.states.dtype == torch.float32
