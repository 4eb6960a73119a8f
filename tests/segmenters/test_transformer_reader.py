"""The Transformer reader is PyTorch's encoder with a mask that hides all but the neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from theirs import gradients, layer, products
from torch import Tensor, nn
from wording import refuses

from caesura.layers.local import Local
from caesura.layers.masks import positions_mask
from caesura.layers.positions import sinusoids
from caesura.segmenters.cutters.hard import Every
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Mean
from caesura.segmenters.readers.transformer import Transformer


def made(window: int, seed: int = 0, **options: Any) -> Transformer:
    """Two layers in float64, with other biases and norms than a new reader's."""
    torch.manual_seed(seed)
    reader = Transformer(9, 8, 2, 7, window, dropout=0.0, **options).double()
    with torch.no_grad():
        for parameter in reader.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return reader


def hidden(size: int, window: int, causal: bool) -> Tensor:
    """[T, T] bool, by a loop: query i must not see key j."""
    ahead = 0 if causal else window
    rows = [[not i - window <= j <= i + ahead for j in range(size)] for i in range(size)]
    return torch.tensor(rows, dtype=torch.bool).view(size, size)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("window", "lengths"), [(1, [11, 4, 1]), (3, [9, 9, 2]), (2, [7, 3, 5]), (40, [5, 6])]
)
def test_it_is_pytorchs_encoder_with_a_banded_mask_in_values_and_all_gradients(
    window: int, lengths: list[int], causal: bool, dtype: torch.dtype, within: float
) -> None:
    reader = made(window, positions="sinusoidal", causal=causal).to(dtype)
    symbols, sizes = ragged(lengths, 9, torch.Generator().manual_seed(0))
    T = symbols.shape[1]
    mask = positions_mask(sizes, T)
    layers = [layer(block, nn.TransformerEncoderLayer) for block in reader.blocks]
    norm = nn.LayerNorm(8, dtype=dtype)
    norm.load_state_dict(reader.norm.state_dict())
    table = reader.embedding.weight.detach().clone().requires_grad_()
    expected = []
    for b, n in enumerate(lengths):  # one by one, because PyTorch returns NaN for padding that sees nothing
        states = table[symbols[b : b + 1, :n]] + sinusoids(torch.arange(n), 8).to(dtype)
        for one in layers:
            states = one(states, src_mask=hidden(n, window, causal))
        expected.append(norm(states)[0])
    wanted, states = torch.cat(expected), reader(symbols, sizes)
    close(states[mask], wanted, within, "states")
    assert not states[~mask].any()
    probe = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    (states[mask] * probe).sum().backward()
    (wanted * probe).sum().backward()
    close(reader.embedding.weight.grad, table.grad, within, "embedding")
    for i, (block, one) in enumerate(zip(reader.blocks, layers, strict=True)):
        for name, gradient, other in gradients(block, one):
            assert other.any()
            close(gradient, other, within, f"{name} of layer {i}")
    for name, parameter in norm.named_parameters():
        close(reader.norm.get_parameter(name).grad, parameter.grad, within, f"norm.{name}")


@settings(max_examples=40)
@given(
    st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 15), min_size=1, max_size=4), st.integers(0, 9)
)
def test_blocks_of_a_window_are_one_mask_over_all(
    window: int, causal: bool, lengths: list[int], spare: int
) -> None:
    T, sizes, ahead = max(lengths) + spare, torch.tensor(lengths), 0 if causal else window
    generator = torch.Generator().manual_seed(T)
    parts = [torch.randn(len(lengths), 2, T, 4, generator=generator, dtype=torch.float64) for _ in range(3)]
    context = Local.of(sizes, T, window, ahead)(*parts)
    assert context.shape == parts[0].shape
    assert context.isfinite().all()
    for b, n in enumerate(lengths):
        queries, keys, values = (part[b, :, :n] for part in parts)
        scores = queries @ keys.transpose(1, 2) / 2
        weights = scores.masked_fill(hidden(n, window, causal), -torch.inf).softmax(2)
        close(context[b, :, :n], weights @ values, 1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_distances_count_and_not_places(causal: bool) -> None:
    """Rotary: the same symbols further to the right have the same states."""
    reader, text = made(2, causal=causal), torch.arange(1, 9)[None]
    both = torch.cat((text, text), 1)
    states = reader(both, torch.tensor([16]))
    reach = 2 * 2  # two layers
    end = 8 if causal else 8 - reach
    close(states[:, 8 + reach : 8 + end], states[:, reach:end], 1e-10)
    assert (states[:, 8] - states[:, 0]).abs().max() > 1e-3


def test_one_that_looks_ahead_takes_whole_sentences_only() -> None:
    symbols = torch.tensor([[1, 2, 3]])
    with refuses(ValueError, "", "pieces", "causal"):
        Segmenter(made(2), Every(), Mean())(symbols, [3], final=False)
    assert Segmenter(made(2, causal=True), Every(), Mean())(symbols, [3], final=False).state is not None


@pytest.mark.parametrize(("window", "causal"), [(3, False), (3, True), (90, False), (90, True)])
@pytest.mark.parametrize("size", [1, 3, 11])
def test_its_operations_are_those_of_its_products(window: int, causal: bool, size: int) -> None:
    reader = made(window, causal=causal)
    counted = products(reader, torch.zeros(1, size, dtype=torch.long), torch.tensor([size]))
    pairs = int((~hidden(size, window, causal)).sum())
    assert reader.flops(size) == counted + 2 * 2 * 2 * pairs * 8  # scores and contexts of two layers
