"""Stacks with sums and norms against plain compositions; dropout by sentence; first weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import LOOKUP, RECURRENT, close, make_config, ragged, sentences, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from wording import refuses

from caesura.components import resolve
from caesura.data.batching import collate
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.layers.depth import SentenceDropout
from caesura.segmenters.readers.recurrent import BiGru, Gru
from caesura.training.feed import padded
from caesura.training.step import Step

ALL = {"residual": True, "norm": True, "variational": True, "orthogonal": True, "recurrent_dropout": 0.3}
NORMS = st.fixed_dictionaries({"residual": st.booleans(), "norm": st.booleans()})
PAIRS = list(zip(sentences(4, seed=1), sentences(4, seed=2, vocab_size=9), strict=True))
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def shaken(module: nn.Module) -> None:
    """In float64, with norms that are not the identity."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def plain(stack: list[tuple[nn.GRU, ...]], norms: nn.ModuleList, residual: bool, x: Tensor) -> Tensor:
    """x + GRU(LN(x)) by PyTorch's own modules, for one sentence [S, D] without padding."""
    for number, directions in enumerate(stack):
        read = norms[number - 1](x) if number and norms else x
        ahead = directions[0](read)[0]
        made = torch.cat((ahead, *(back(read.flip(0))[0].flip(0) for back in directions[1:])), 1)
        x = x + made if number and residual else made
    return norms[-1](x) if norms else x


def same_gradients(module: nn.Module, leaves: list[Tensor], one: Tensor, other: Tensor) -> None:
    parameters = [*module.named_parameters(), *((f"input {i}", leaf) for i, leaf in enumerate(leaves))]
    names, tensors = zip(*parameters, strict=True)
    for name, a, b in zip(
        names, torch.autograd.grad(one, tensors), torch.autograd.grad(other, tensors), strict=True
    ):
        assert b.any(), name
        close(a, b, 1e-10, name)


@settings(max_examples=20)
@given(LENGTHS, st.integers(2, 4), NORMS, st.integers(0, 99))
def test_an_encoder_is_the_plain_composition_in_outputs_and_gradients(
    lengths: list[int], layers: int, options: dict[str, bool], seed: int
) -> None:
    torch.manual_seed(seed)
    lengths = [*lengths, 3]
    encoder = RecurrentEncoder(4, 3, layers, **(options if layers > 1 else {}))
    shaken(encoder)
    vectors = torch.randn(len(lengths), max(lengths) + 1, 4, dtype=torch.float64, requires_grad=True)
    encoded = encoder(vectors, torch.tensor(lengths))
    stack = list(zip(encoder.forwards, encoder.backwards, strict=True))
    ours, theirs = vectors.new_zeros(()), vectors.new_zeros(())
    for b, n in enumerate(lengths):
        expected = plain(stack, encoder.depth.norms, options["residual"], vectors[b, :n])  # type: ignore[arg-type]
        summary = torch.cat((expected[-1, :3], expected[0, 3:]))
        close(encoded.states[b, :n], expected, what="states")
        close(encoded.summary[b], summary, what="summary")
        assert not encoded.states[b, n:].any()
        ours = ours + encoded.states[b, :n].sin().sum() + encoded.summary[b].cos().sum()
        theirs = theirs + expected.sin().sum() + summary.cos().sum()
    same_gradients(encoder, [vectors], ours, theirs)


@pytest.mark.parametrize("kind", [Gru, BiGru])
@settings(max_examples=10)
@given(lengths=st.lists(st.integers(0, 6), min_size=2, max_size=4), options=NORMS, seed=st.integers(0, 99))
def test_a_reader_is_the_plain_composition_in_outputs_and_gradients(
    kind: type[Gru], lengths: list[int], options: dict[str, bool], seed: int
) -> None:
    torch.manual_seed(seed)
    lengths = [*lengths, 3]
    reader = kind(9, 3, 4, num_layers=3, **options)
    shaken(reader)
    symbols, sizes = ragged(lengths, 9, torch.Generator().manual_seed(seed))
    states = reader(symbols, sizes)
    backs = reader.above_back or [None] * 2
    both = [(reader.ahead, reader.back), *zip(reader.above, backs, strict=True)]
    stack = [tuple(layer for layer in layers if layer is not None) for layers in both]
    ours, theirs = states.new_zeros(()), states.new_zeros(())
    for b, n in enumerate(lengths):
        assert not states[b, n:].any()
        if n:
            embedded = reader.embedding(symbols[b, :n])
            expected = plain(stack, reader.depth.norms, options["residual"], embedded)  # type: ignore[arg-type]
            close(states[b, :n], expected)
            ours, theirs = ours + states[b, :n].sin().sum(), theirs + expected.sin().sum()
    same_gradients(reader, [], ours, theirs)


@settings(max_examples=20)
@given(LENGTHS, NORMS, st.integers(1, 3), st.integers(0, 99))
def test_a_sentence_does_not_depend_on_padding_or_its_batch(
    lengths: list[int], options: dict[str, bool], layers: int, seed: int
) -> None:
    torch.manual_seed(seed)
    encoder = RecurrentEncoder(4, 3, layers, **(options if layers > 1 else {}))
    shaken(encoder)
    vectors = torch.randn(len(lengths), max(lengths) + 2, 4, dtype=torch.float64)
    together = encoder(vectors, torch.tensor(lengths))
    for b, n in enumerate(lengths):
        alone = encoder(vectors[b : b + 1, :n], torch.tensor([n]))
        close(together.states[b, :n], alone.states[0], what="states")
        close(together.summary[b], alone.summary[0], what="summary")


def test_without_options_nothing_is_added_or_drawn() -> None:
    torch.manual_seed(3)
    plain_encoder, after = RecurrentEncoder(4, 3, 2), torch.rand(())
    torch.manual_seed(3)
    [nn.GRU(size, 3, batch_first=True) for _ in range(2) for size in (4, 6)]
    assert torch.equal(after, torch.rand(()))
    assert all(name.startswith(("forwards.", "backwards.")) for name in plain_encoder.state_dict())
    torch.manual_seed(3)
    orthogonal = RecurrentEncoder(4, 3, 2, orthogonal=True)
    for (name, one), (_, other) in zip(
        plain_encoder.named_parameters(), orthogonal.named_parameters(), strict=True
    ):
        assert torch.equal(one, other) == ("weight_hh" not in name), name


@pytest.mark.parametrize("make", [lambda: RecurrentEncoder(4, 3, 2, orthogonal=True),
                                  lambda: BiGru(9, 4, 3, num_layers=2, orthogonal=True),
                                  lambda: Gru(9, 4, 3, orthogonal=True)])  # fmt: skip
def test_each_gates_recurrent_weights_are_orthogonal(make: Callable[[], nn.Module]) -> None:
    gates = [g for n, p in make().named_parameters() if "weight_hh" in n for g in p.detach().chunk(3)]
    assert len(gates) in (3, 12)
    for gate in gates:
        close(gate @ gate.T, torch.eye(3), 1e-6)
    assert len({tuple(gate.flatten().tolist()) for gate in gates}) == len(gates)


def test_dropout_by_sentence_has_one_mask_for_all_symbols_of_a_sentence() -> None:
    torch.manual_seed(0)
    dropped = SentenceDropout(0.5)
    states = torch.rand(50, 7, 8) + 1
    masks = dropped(states) / states
    assert torch.equal(masks, masks[:, :1].expand_as(masks))
    assert {*masks.unique().tolist()} == {0.0, 2.0}
    assert 0.4 < float((masks == 0).float().mean()) < 0.6
    assert len({tuple(mask.tolist()) for mask in masks[:, 0]}) > 40  # each sentence has its own
    assert dropped.eval()(states) is states


@pytest.mark.parametrize("kind", [Gru, BiGru])
def test_every_layers_input_has_dropout_by_sentence(kind: type[Gru]) -> None:
    reader = kind(9, 3, 4, dropout=0.5, num_layers=3, variational=True)
    symbols, lengths = ragged([7], 9, torch.Generator().manual_seed(0))
    shapes: list[tuple[int, ...]] = []

    def check(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        shapes.append(tuple(output.shape))
        dropped = output == 0
        assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))

    reader.dropout.register_forward_hook(check)
    reader(symbols, lengths)
    width = reader.output_dim
    assert shapes == [(1, 7, 3), (1, 7, width), (1, 7, width)]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"residual": True}, "residual"),
        ({"variational": True}, "variational"),
        ({"num_layers": 2, "norm": "post"}, "norm"),
        ({"num_layers": 0}, "num_layers"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], key: str) -> None:
    config = make_config(LOOKUP, {"hidden_size": 3} | options, RECURRENT)
    with refuses(InputError, "", "model.encoder", key):
        resolve(config)
    reader = {"type": "bigru", "embedding_dim": 4, "size": 3} | options
    segmenter = {"reader": reader, "cutter": "every", "pooling": "mean"}
    with refuses(InputError, "", "model.segmenter", key):
        resolve(make_config(segmenter, {"hidden_size": 3}, RECURRENT))


@pytest.mark.parametrize("kernels", ["reference", "fused"])
def test_recurrent_dropout_leaves_out_weights_the_same_at_all_positions(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESURA_KERNELS", kernels)
    torch.manual_seed(5)
    encoder = RecurrentEncoder(4, 3, 2, recurrent_dropout=0.5).double()
    vectors, lengths = torch.randn(2, 5, 4, dtype=torch.float64), torch.tensor([5, 3])
    dropped: list[Tensor] = []

    def drop(weight: Tensor, share: float) -> Tensor:
        if not share:
            return weight
        assert share == 0.5
        dropped.append((torch.rand_like(weight) < 0.5) * 2.0)
        return weight * dropped[-1]

    monkeypatch.setattr("caesura.layers.recurrent.thinned", drop)
    ours = encoder(vectors, lengths).states
    ours.sum().backward()
    masks = [mask for both in dropped for mask in both.view(-1, 9, 3)]
    assert len(masks) == 4  # two layers, two directions
    layers = [one for pair in zip(encoder.forwards, encoder.backwards, strict=True) for one in pair]
    plain_encoder = RecurrentEncoder(4, 3, 2).double()
    plain_encoder.load_state_dict(encoder.state_dict())
    with torch.no_grad():
        for layer, mask in zip(layers, masks, strict=True):
            gradient = layer.weight_hh_l0.grad
            assert gradient is not None
            assert torch.equal(gradient != 0, mask != 0)
        both = zip(plain_encoder.forwards, plain_encoder.backwards, strict=True)
        for layer, mask in zip([one for pair in both for one in pair], masks, strict=True):
            layer.weight_hh_l0 *= mask
    close(ours, plain_encoder(vectors, lengths).states, 1e-10)
    dropped.clear()
    encoder.eval()(vectors, lengths)
    assert not dropped


def deep_model(**sections: Any) -> Translator:
    """A model whose reader and encoder have every option, in float64."""
    reader = {"type": "bigru", "embedding_dim": 4, "size": 2, "num_layers": 2, "dropout": 0.3} | ALL
    segmenter = {"reader": reader, "cutter": "every", "pooling": "mean", "output_dim": 5}
    encoder = {"hidden_size": 3, "num_layers": 3, "dropout": 0.3} | ALL
    torch.manual_seed(0)
    config = make_config(segmenter, encoder, RECURRENT, **sections)
    return Translator.build(config, vocabulary(12), vocabulary(9)).double()


def test_a_saved_model_comes_back_and_an_older_config_has_the_defaults(tmp_path: Any) -> None:
    model = deep_model().float().eval()
    model.save_pretrained(tmp_path / "model")
    again = Translator.from_pretrained(tmp_path / "model")
    texts = ["abc", "hgfe abcde"]
    assert again.translate(texts) == model.translate(texts)
    options = resolve(make_config(LOOKUP, {"hidden_size": 3}, RECURRENT)).model.encoder.options
    assert not any(options[name] for name in ALL)


def test_a_step_draws_new_masks_and_reaches_every_weight() -> None:
    model = deep_model().train()
    step = Step(model, model.config.training)
    batch = collate(PAIRS)
    losses = {float(step(batch)[0]) for _ in range(3)}
    assert len(losses) == 3
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_masks_are_drawn_anew_in_every_replay() -> None:
    model = deep_model().cuda().train()
    step = Step(model, model.config.training)
    batch = padded(PAIRS, np.arange(4))
    losses = {float(step(batch)[0]) for _ in range(6)}
    assert step.graphs is not None
    assert len(step.graphs) == 1
    assert len(losses) == 6
