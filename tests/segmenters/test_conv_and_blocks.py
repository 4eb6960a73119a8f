"""The readers `conv` and `blocks` against loops from their formulas, and their gradients."""

from __future__ import annotations

import pytest
import torch
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caesura.segmenters.parts import Reader
from caesura.segmenters.readers.blocks import Blocks
from caesura.segmenters.readers.conv import FILTERS, Conv

SYMBOLS, D = 7, 3


def conv(filters: list[int], highway_layers: int = 2) -> Conv:
    torch.manual_seed(0)
    return Conv(SYMBOLS, D, filters, highway_layers).double()


def blocks(largest: int, width: int, calibrate: bool) -> Blocks:
    torch.manual_seed(0)
    return Blocks(SYMBOLS, D, largest, width, calibrate).double()


def around(table: Tensor, symbols: list[int], t: int, width: int) -> list[Tensor]:
    """The embeddings of `width` symbols around t, one more to the right where it is even; zeros outside."""
    places = range(t - (width - 1) // 2, t + width // 2 + 1)
    return [table[symbols[at]] if 0 <= at < len(symbols) else torch.zeros_like(table[0]) for at in places]


def convolved(reader: Conv, symbols: list[int]) -> Tensor:
    """Lee et al.: relu of each filter's product with its window, then highway layers."""
    states = []
    for t in range(len(symbols)):
        values = []
        for width, unit in enumerate(reader.filters, 1):
            window = around(reader.embedding.weight, symbols, t, width)
            for row, bias in zip(unit.weight, unit.bias, strict=True):
                parts = zip(row.split(D), window, strict=True)
                values.append(torch.relu(sum((w @ x for w, x in parts), bias)))
        y = torch.stack(values)
        for layer in reader.highway:
            g = torch.sigmoid(layer.gate.weight @ y + layer.gate.bias)
            y = g * torch.relu(layer.change.weight @ y + layer.change.bias) + (1 - g) * y
        states.append(y)
    return torch.stack(states)


def mixed(reader: Blocks, symbols: list[int]) -> Tensor:
    """Charformer: X_b are means of blocks, P the softmax over b of their scores, and the sum of P_b X_b."""
    table, unit, n = reader.embedding.weight, reader.convolution, len(symbols)
    x = [unit.weight @ torch.cat(around(table, symbols, t, reader.width)) + unit.bias for t in range(n)]
    candidates, shares = [], []
    for t in range(n):
        means = []
        for size in range(1, reader.largest + 1):
            begin = t // size * size
            block = x[begin : min(begin + size, n)]
            means.append(sum(block[1:], block[0]) / len(block))
        candidates.append(torch.stack(means))
        shares.append(torch.softmax(torch.stack([reader.score.weight[0] @ mean for mean in means]), 0))
    if reader.calibrate:
        shares = [
            sum(
                w * p
                for w, p in zip(torch.softmax(torch.stack([q @ p for p in shares]), 0), shares, strict=True)
            )
            for q in shares
        ]
    return torch.stack([p @ means for p, means in zip(shares, candidates, strict=True)])


def compare(reader: Reader, lengths: list[int], seed: int, loop: object) -> None:
    """States of a batch with padding, and all gradients, are those of the loop over each sentence."""
    symbols, sizes = ragged(lengths, SYMBOLS, torch.Generator().manual_seed(seed))
    symbols = torch.cat((symbols, symbols.new_zeros(len(lengths), 2)), 1)
    states = reader(symbols, sizes)
    probe = torch.randn(states.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    total = states.new_zeros(())
    for b, n in enumerate(lengths):
        assert not states[b, n:].any()
        if n:
            expected = loop(reader, symbols[b, :n].tolist())  # type: ignore[operator]
            close(states[b, :n], expected, 1e-12)
            total = total + (expected * probe[b, :n]).sum()
    names, parameters = zip(*reader.named_parameters(), strict=True)
    gradients = torch.autograd.grad((states * probe).sum(), parameters)
    expected = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
    for name, one, other in zip(names, gradients, expected, strict=True):
        close(one, other, 1e-11, name)


some_lengths = st.lists(st.integers(0, 7), min_size=1, max_size=2).filter(any)


@settings(max_examples=4)
@given(some_lengths, st.sampled_from([[2], [1, 2], [1, 1, 1, 1]]), st.integers(0, 99))
def test_conv_is_its_loop(lengths: list[int], filters: list[int], seed: int) -> None:
    compare(conv(filters), lengths, seed, convolved)


@settings(max_examples=8)
@given(some_lengths, st.integers(1, 4), st.sampled_from([1, 2, 5]), st.booleans(), st.integers(0, 99))
def test_blocks_are_their_loop(
    lengths: list[int], largest: int, width: int, calibrate: bool, seed: int
) -> None:
    compare(blocks(largest, width, calibrate), lengths, seed, mixed)


@pytest.mark.parametrize("reader", [conv([1, 2], 1), blocks(3, 2, True)], ids=["conv", "blocks"])
def test_the_gradient_is_the_slope(reader: Reader) -> None:
    symbols, lengths = ragged([5, 2], SYMBOLS, torch.Generator().manual_seed(0))
    names, values = zip(
        *((n, p.detach().requires_grad_()) for n, p in reader.named_parameters()), strict=True
    )

    def states(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(reader, named, (symbols, lengths))

    assert torch.autograd.gradcheck(states, values)


def test_sizes_and_operations() -> None:
    reader = Conv(SYMBOLS, D)
    assert reader.output_dim == sum(FILTERS) == 1050
    assert len(reader.highway) == 4
    weights = sum(p.numel() for name, p in reader.named_parameters() if "weight" in name) - SYMBOLS * D
    assert reader.flops(10) == 2 * 10 * weights
    small = Blocks(SYMBOLS, D, largest=2, width=5)
    assert small.output_dim == D
    assert small.flops(10) == 10 * (2 * 5 * D * D + 5 * 2 * D)


@pytest.mark.parametrize("reader", [Conv(SYMBOLS, D, [2, 2], dropout=0.5), Blocks(SYMBOLS, D, dropout=0.5)])
def test_dropout_is_of_training(reader: Reader) -> None:
    symbols, lengths = torch.tensor([[1, 2, 3]]), torch.tensor([3])
    assert not reader.train()(symbols, lengths).equal(reader(symbols, lengths))
    assert reader.eval()(symbols, lengths).equal(reader(symbols, lengths))
