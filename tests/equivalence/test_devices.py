"""The same layer in other precisions and on other devices."""

import pytest
import torch
from analysis.test_fidelity import CARRY, CIF, HMRNN
from helpers import ACT, LOOKUP, TRANSFORMER, ragged, sentences, tiny_model

from caesura.data.batching import collate
from caesura.segmenters.act import ActSegmenter

ROUTING = {
    "type": "parts",
    "reader": {"type": "conv", "embedding_dim": 4, "filters": [3, 3, 2]},
    "cutter": "routing",
    "pooling": "max",
    "output_dim": 5,
}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def layer(dtype: torch.dtype = torch.float32) -> ActSegmenter:
    torch.manual_seed(3)
    return ActSegmenter(30, 16, 12, 8, halting_bias=0.0).to(dtype)


def gradients(act: ActSegmenter, device: str, autocast: bool) -> dict[str, torch.Tensor]:
    """Of a fixed function of vectors, weights and penalty, by parameter."""
    act = act.to(device)
    symbols, lengths = ragged([9, 1, 14, 6], 30, torch.Generator().manual_seed(1))
    with torch.autocast(device, torch.bfloat16, enabled=autocast):
        segments = act(symbols.to(device), lengths.to(device))
    probe = torch.linspace(-1, 1, segments.vectors.numel(), device=device).view(segments.vectors.shape)
    ((segments.vectors * probe).sum() + segments.penalty.sum()).backward()
    return {name: value.grad.detach().cpu().double() for name, value in act.named_parameters()}


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).detach().norm() / other.detach().norm())


def test_under_bf16_autocast_the_gradients_are_those_of_float32_within_bf16() -> None:
    exact, rounded = gradients(layer(), "cpu", False), gradients(layer(), "cpu", True)
    for name, value in exact.items():
        assert 0 < distance(rounded[name], value) < 0.03, name


def test_a_bfloat16_module_segments_like_a_float32_one() -> None:
    symbols, lengths = ragged([9, 1, 14, 6], 30, torch.Generator().manual_seed(1))
    low, full = layer(torch.bfloat16)(symbols, lengths), layer()(symbols, lengths)
    assert low.vectors.dtype == torch.bfloat16
    assert low.weights.dtype == torch.float32
    assert torch.equal(low.ends, full.ends)
    assert distance(low.vectors.double(), full.vectors.double()) < 0.03


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT, ROUTING])
def test_translations_in_bfloat16_are_scored_like_those_in_float32_within_bf16(
    segmenter: dict[str, object],
) -> None:
    scores = []
    for precision in ("float32", "bfloat16"):
        model = tiny_model(segmenter, scale=1.0, testing={"precision": precision}).float()
        texts = [model.src_vocabulary.decode(source) for source in sentences(7, seed=1)]
        outputs = model.process(texts, model.searcher())
        scores.append(torch.tensor([output.hypotheses[0].score for output in outputs]))
    assert 0 < distance(scores[1], scores[0]) < 0.03


@needs_cuda
@pytest.mark.parametrize("autocast", [False, True])
def test_a_gpu_gives_the_gradients_of_the_cpu(autocast: bool) -> None:
    exact, theirs = gradients(layer(), "cpu", False), gradients(layer(), "cuda", autocast)
    for name, value in exact.items():
        assert distance(theirs[name], value) < (0.03 if autocast else 1e-4), name


@needs_cuda
@pytest.mark.parametrize("transformer", [False, True])
@pytest.mark.parametrize("segmenter", [LOOKUP, ACT, ROUTING, CIF, CARRY, HMRNN])
def test_a_gpu_gives_the_loss_and_the_translations_of_the_cpu(
    segmenter: dict[str, object], transformer: bool
) -> None:
    parts = {"encoder": TRANSFORMER, "decoder": TRANSFORMER | {"tied": True}}
    model = tiny_model(segmenter, **parts if transformer else {})
    sources, targets = sentences(7, seed=1), sentences(7, seed=2, vocab_size=9)
    batch = collate(list(zip(sources, targets, strict=True)))
    texts = [model.src_vocabulary.decode(source) for source in sources]
    loss, translations = float(model(batch).total.detach()), model.translate(texts)
    model.cuda()
    assert float(model(batch.to("cuda")).total.detach()) == pytest.approx(loss, abs=1e-9)
    assert model.translate(texts) == translations
