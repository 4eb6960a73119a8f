"""Several cuttings of each sentence in one batch: the reader runs once, all else as if each came alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import ACT_DECODER, BIGRU, RECURRENT, TRANSFORMER, close, sentences, tiny_model
from torch import Tensor

from caesura.components import resolve
from caesura.data.batching import collate
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.segmenters.cutters.bernoulli import Bernoulli
from caesura.segmenters.parts import Segmenter
from caesura.training.step import SUMS, Step

PAIRS = list(zip(sentences(6, seed=1, longest=14), sentences(6, seed=2, vocab_size=9), strict=True))
SEGMENTER: dict[str, Any] = {
    "reader": {"type": "bigru", "embedding_dim": 4, "size": 3},
    "cutter": {"type": "bernoulli", "gradient": "score", "cuttings": 3},
    "pooling": "mean",
    "output_dim": 5,
}


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cuttings that follow from the scores, so that the same ones come again."""

    def chosen(self: Bernoulli, scores: Tensor, free: Tensor) -> Tensor:
        return torch.stack([torch.sigmoid(scores) > share for share in (0.35, 0.5, 0.65)][: self.cuttings])

    monkeypatch.setattr(Bernoulli, "_draw", chosen)


def model_with(
    decoder: dict[str, Any] = RECURRENT, encoder: dict[str, Any] = BIGRU, **training: Any
) -> Translator:
    model = tiny_model(SEGMENTER, decoder=decoder, encoder=encoder, training=training).train()
    with torch.no_grad():
        model.segmenter.cutter.score.weight.mul_(4)  # type: ignore[union-attr,operator]
        model.segmenter.cutter.score.bias.zero_()  # type: ignore[union-attr,operator]
    return model


def gradients(model: Translator) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("decoder", "encoder"),
    [(RECURRENT, BIGRU), (ACT_DECODER, BIGRU), (TRANSFORMER, TRANSFORMER | {"places": "symbols"})],
    ids=["recurrent", "act", "transformer"],
)
@pytest.mark.parametrize("normalization", ["symbols", "sentences"])
def test_the_loss_is_the_mean_over_cuttings(
    decoder: dict[str, Any], encoder: dict[str, Any], normalization: str
) -> None:
    model = model_with(decoder, encoder, normalization=normalization, label_smoothing=0.1)
    batch = collate(PAIRS)
    calls: list[int] = []
    assert isinstance(model.segmenter, Segmenter)
    model.segmenter.reader.register_forward_hook(lambda reader, inputs, output: calls.append(len(output)))
    loss = model(batch)
    assert calls == [6]
    loss.total.backward()
    together = gradients(model)
    model.zero_grad()
    with torch.no_grad():
        ends = model.segmenter(batch.src, batch.src_lengths).ends.view(3, 6, -1)
    assert len({tuple(row.flatten().tolist()) for row in ends}) == 3
    model.segmenter.eval()
    each = []
    for cutting in ends:
        given = torch.where(cutting, 1, -1).to(torch.int8)
        each.append(model.loss(batch, model.segmenter(batch.src, batch.src_lengths, given=given)))
    mean = sum(loss.total for loss in each) / 3
    close(loss.total, mean, 1e-12)
    close(loss.cross_entropy, sum(one.cross_entropy for one in each) / 3, 1e-10)
    for name in ("source_symbols", "segments"):
        close(loss.counts[name], sum(one.counts[name] for one in each) / 3, 1e-12, name)
    mean.backward()
    alone = gradients(model)
    for name, value in alone.items():
        if not name.startswith(("segmenter.reader", "segmenter.cutter")):  # these also learn from feedback
            close(together[name], value, 1e-10, name)
    assert together["segmenter.cutter.score.weight"].abs().max() > 1e-6
    assert "segmenter.cutter.score.weight" not in alone


def test_padding_and_pieces_of_a_batch_change_nothing() -> None:
    model = model_with(label_smoothing=0.1)
    step, outcomes = Step(model, model.config.training), []
    for shape in ((0, 0, 0), (9, 20, 12)):
        sums = step(collate(PAIRS, shape=shape))
        outcomes.append(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)))
    whole = collate(PAIRS).as_part()
    sums = step([whole.rows(slice(begin, begin + 2)) for begin in (0, 2, 4)])
    outcomes.append(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)))
    for other in outcomes[1:]:
        for name, value in outcomes[0].items():
            close(other[name], value, 1e-10, name)


def test_a_batch_is_repeated_as_a_whole() -> None:
    batch = collate(PAIRS[:2])
    twice = batch.repeated(2)
    assert len(twice) == 4
    assert np.array_equal(twice.indices, [0, 1, 0, 1])
    assert twice.src[2:].equal(batch.src)
    assert batch.repeated(1) is batch


def test_minimum_risk_does_not_go_with_several_cuttings() -> None:
    with pytest.raises(InputError, match=r"training\.risk_candidates"):
        resolve(model_with().config.model_copy(update={"training": _risk(model_with())}))


def _risk(model: Translator) -> Any:
    return model.config.training.model_copy(update={"risk_candidates": 2})
