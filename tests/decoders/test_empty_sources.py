"""A source of no symbols: its numbers are finite, and the other sentences of its batch do not notice it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from caesura.decoders.act import ActDecoder
from caesura.decoders.base import Decoder
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.encoders.transformer import TransformerEncoder
from caesura.kernels import VARIABLE
from caesura.search.beam import beam_search
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.cutters.routing import Routing
from caesura.segmenters.hmrnn import HmrnnSegmenter
from caesura.segmenters.lookup import LookupSegmenter
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Attention, Weighted
from caesura.segmenters.rate import Rate
from caesura.segmenters.readers.conv import Conv
from caesura.segmenters.readers.recurrent import BiGru

SEGMENTERS = {
    "lookup": lambda: LookupSegmenter(9, 5),
    "act": lambda: ActSegmenter(9, 4, 3, 5, halting_bias=0.0),
    "hmrnn": lambda: HmrnnSegmenter(9, 4, 3, 5),
    "cif": lambda: Segmenter(BiGru(9, 4, 3), Cif(6), Weighted(), output_dim=5, rate=Rate(2.0)),
    "routing": lambda: Segmenter(Conv(9, 4, [3, 3]), Routing(6), Attention(6, 4), output_dim=5),
}
DECODERS = {
    "recurrent": lambda: RecurrentDecoder(8, 6, 6, 4, 5, 3),
    "act": lambda: ActDecoder(8, 6, 6, 4, 5, 3, 3, halting_bias=0.0),
    "act, fed": lambda: ActDecoder(8, 6, 6, 4, 5, 3, 3, halting_bias=0.0, feed_context=True),
    "transformer": lambda: TransformerDecoder(8, 6, 4, 2, 5, 2, 0.0),
    "transformer, tied": lambda: TransformerDecoder(8, 6, 4, 2, 5, 2, 0.0, tied=True),
}
ENCODERS = {
    "recurrent": lambda: RecurrentEncoder(5, 3),
    "transformer": lambda: TransformerEncoder(5, 6, 3, 4, 2, 0.0),
}
# Each encoder also serves one decoder of the other kind.
READ = {"act, fed": "transformer", "transformer": "transformer"}
SYMBOLS, LENGTHS = torch.tensor([[4, 5, 6, 3], [7, 7, 7, 7], [8, 3, 0, 0]]), torch.tensor([4, 0, 2])
TARGETS, TARGET_LENGTHS = torch.tensor([[2, 4, 5], [2, 6, 7], [2, 5, 0]]), torch.tensor([3, 3, 2])
KEPT = torch.tensor([0, 2])


def made(segmenter: str, decoder: str) -> nn.ModuleDict:
    torch.manual_seed(0)
    parts = {"segmenter": SEGMENTERS[segmenter](), "encoder": ENCODERS[READ.get(decoder, "recurrent")]()}
    return nn.ModuleDict(parts | {"decoder": DECODERS[decoder]()}).double()


def run(model: nn.ModuleDict, rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """What the layers return for some of the sentences, by name, and the loss of each."""
    segments = model["segmenter"](SYMBOLS[rows], LENGTHS[rows])
    encoded = model["encoder"](segments.vectors, segments.lengths)
    decoded = model["decoder"](encoded, TARGETS[rows], TARGET_LENGTHS[rows])
    tensors = {"vectors": segments.vectors, "states": encoded.states, "logits": decoded.logits}
    with torch.no_grad():  # which a Transformer's attention wants
        attention = model["decoder"](encoded, TARGETS[rows], TARGET_LENGTHS[rows]).attention
    tensors |= {"penalty": segments.penalty, "attention": attention}
    return tensors, decoded.logits.square().sum((1, 2)) + segments.penalty + decoded.penalty


@pytest.mark.parametrize("choice", ["reference", "fused"])
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("segmenter", SEGMENTERS)
def test_an_empty_source_is_finite_and_changes_no_other_sentence(
    segmenter: str, decoder: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    model = made(segmenter, decoder)
    tensors, losses = run(model, torch.arange(3))
    for name, value in tensors.items():
        assert value.isfinite().all(), name
    assert not tensors["attention"][1].any()
    torch.testing.assert_close(tensors["attention"][KEPT].sum(2), torch.ones(2, 3, dtype=torch.float64))
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, gradient in zip(names, torch.autograd.grad(losses.sum(), parameters), strict=True):
        assert gradient.isfinite().all(), name
    # In the loss of the others alone, it is as if it were not there.
    gradients = torch.autograd.grad(run(model, torch.arange(3))[1][KEPT].sum(), parameters)
    reference, others = run(model, KEPT)
    for name, value in reference.items():
        torch.testing.assert_close(tensors[name][KEPT], value, rtol=0, atol=1e-12, msg=name)
    expected = torch.autograd.grad(others.sum(), parameters)
    for name, one, other in zip(names, gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("decoder", DECODERS)
def test_both_forms_agree_on_an_empty_source(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, results = made("act", decoder), []
    for choice in ("reference", "fused"):
        monkeypatch.setenv(VARIABLE, choice)
        tensors, losses = run(model, torch.arange(3))
        gradients = torch.autograd.grad(losses.sum(), [*model.parameters()])
        results.append(tensors | dict(zip(dict(model.named_parameters()), gradients, strict=True)))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value, rtol=0, atol=1e-10, msg=name)


@pytest.mark.parametrize("choice", ["reference", "fused"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_search_writes_something_for_an_empty_source(
    decoder: str, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    model = made("lookup", decoder)
    machine, segmenter = model["decoder"], model["segmenter"]
    assert isinstance(machine, Decoder)
    assert isinstance(segmenter, BaseSegmenter)
    with torch.no_grad():
        segments = segmenter(SYMBOLS, LENGTHS)
        encoded = model["encoder"](segments.vectors, segments.lengths)
        others = encoded.rows(KEPT)
        hypotheses = beam_search(machine, encoded, torch.full((3,), 5), beam=2)
        alone = beam_search(machine, others, torch.full((2,), 5), beam=2)
    assert all(hypothesis.log_prob < 0 for hypothesis in hypotheses[1])
    assert hypotheses[1]
    for one, other in zip((hypotheses[0], hypotheses[2]), alone, strict=True):
        assert [h.symbols for h in one] == [h.symbols for h in other]
