"""Readers of several recurrent layers against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from helpers import close, ragged
from torch import nn

from caesura.segmenters.readers.recurrent import BiGru, Gru


@pytest.mark.parametrize("kind", [Gru, BiGru])
def test_layers_are_stacked_as_pytorch_stacks_them(kind: type[Gru]) -> None:
    torch.manual_seed(0)
    reader = kind(9, 3, 4, num_layers=3).double()
    wanted = nn.GRU(3, 4, num_layers=3, batch_first=True, bidirectional=kind is BiGru).double()
    layers = [(reader.ahead, reader.back), *zip(reader.above, reader.above_back or [None] * 2, strict=True)]
    for number, directions in enumerate(layers):
        for suffix, layer in zip(("", "_reverse"), directions, strict=True):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if layer is not None else ():
                weight = layer.get_parameter(f"{name}_l0")
                wanted.get_parameter(f"{name}_l{number}{suffix}").data.copy_(weight.data)
    symbols, lengths = ragged([7, 2, 0, 5], 9, torch.Generator().manual_seed(0))
    states = reader(symbols, lengths)
    assert states.shape[2] == reader.output_dim == (8 if kind is BiGru else 4)
    for b, n in enumerate(lengths.tolist()):
        assert not states[b, n:].any()
        if n:
            close(states[b, :n], wanted(reader.embedding(symbols[b : b + 1, :n]))[0][0], 1e-12)


@pytest.mark.parametrize(("kind", "modules"), [(Gru, {"ahead"}), (BiGru, {"ahead", "back"})])
def test_one_layer_has_the_names_that_older_models_have(kind: type[Gru], modules: set[str]) -> None:
    names = {name.split(".")[0] for name, _ in kind(9, 3, 4).named_parameters()}
    assert names == {"embedding", *modules}


def test_every_layers_input_has_dropout() -> None:
    reader = Gru(9, 3, 4, dropout=0.5, num_layers=2)
    symbols, lengths = ragged([7], 9, torch.Generator().manual_seed(0))
    calls: list[tuple[int, ...]] = []
    reader.dropout.register_forward_hook(lambda module, inputs, output: calls.append(tuple(output.shape)))
    reader(symbols, lengths)
    assert calls == [(1, 7, 3), (1, 7, 4)]
