"""Searches in CUDA graphs are the searches without."""

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attentive import Attentive, sources
from helpers import ACT, BIGRU, LOOKUP, RECURRENT, TRANSFORMER, sentences, tiny_model

from caesura.data.batching import collate
from caesura.data.vocabulary import EOS
from caesura.decoders.cache import Cache
from caesura.encoders.base import Encoded
from caesura.inference import Translator
from caesura.kernels import graphs as kernels
from caesura.kernels.graphs import VARIABLE
from caesura.search import graphs, rounds
from caesura.search.beam import beam_search
from caesura.search.greedy import greedy
from caesura.search.hypothesis import Hypothesis
from caesura.search.sampling import sample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(autouse=True)
def _with_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    yield
    graphs._graphs.clear()


def encode(model: Translator, texts: list[list[int]]) -> Encoded:
    batch = collate([(text, None) for text in texts]).to(model.device)
    with torch.no_grad():
        return model.encode(batch.src, batch.src_lengths)[1]


def searched(model: Translator, texts: list[list[int]], low: bool = False) -> list[list[Hypothesis]]:
    limits = torch.arange(len(texts), device=model.device) * 7 % 50 + 1
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        memory = encode(model, texts)
        return [
            *beam_search(model.decoder, memory, limits, 5),
            greedy(model.decoder, memory, limits),
            sample(model.decoder, memory, limits, [*range(len(texts))]),
        ]


def without(model: Translator, texts: list[list[int]], low: bool = False) -> list[list[Hypothesis]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "0")
        return searched(model, texts, low)


def same(hypotheses: list[list[Hypothesis]], expected: list[list[Hypothesis]], tolerance: float) -> None:
    for one, other in zip(hypotheses, expected, strict=True):
        assert [h.symbols for h in one] == [h.symbols for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=tolerance)


@pytest.mark.parametrize(
    ("segmenter", "encoder", "decoder"),
    [(LOOKUP, BIGRU, RECURRENT), (ACT, BIGRU, RECURRENT), (ACT, TRANSFORMER, TRANSFORMER)],
    ids=["lookup", "act", "transformer"],
)
def test_graphs_give_what_is_found_without_whatever_the_weights(
    segmenter: dict[str, Any], encoder: dict[str, Any], decoder: dict[str, Any]
) -> None:
    scale = 3.0 if decoder is RECURRENT else 1.0
    model = tiny_model(segmenter, seed=1, encoder=encoder, decoder=decoder, scale=scale).cuda()
    seen = set()
    for factor in (1.0, 1.0, 1.0, 0.8, 1.1):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(factor)
        for count in (5, 30):
            texts = sentences(count, seed=count)
            hypotheses = searched(model, texts)
            same(hypotheses, without(model, texts), 1e-9)
            seen.add(str([h.symbols for pool in hypotheses for h in pool]))
    assert len(seen) == 6
    assert len(graphs._graphs[model.decoder].graphs) > 8


def test_a_cache_in_graphs_gives_what_is_found_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROOM", 16)
    decoder, limits = Attentive(), torch.arange(30) * 7 % 60 + 1
    with torch.no_grad():
        decoder.output.bias[EOS] -= 12
    results = []
    for device in ("cpu", "cuda", "cuda", "cuda"):  # there plain, captured, replayed
        decoder.to(device)
        source = sources(30, device=device)
        pools = beam_search(decoder, source, limits.to(device), 4)
        results.append([*pools, greedy(decoder, source, limits.to(device))])
        same(results[-1], results[0], 1e-9)
    assert {len(h.symbols) for pool in results[0] for h in pool} >= {57, 1}
    assert len(graphs._graphs[decoder].graphs) > 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_of_usual_sizes_attends_as_on_a_cpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    B, N, K, D = 5, 8, 4, 64
    parents = torch.tensor([0, 0, 2, 1]).expand(B, -1)
    mine = Cache.empty(torch.zeros(B, 1, dtype=torch.float64), 1, N, D, 8)
    theirs = Cache.empty(torch.zeros(B, 1, dtype=dtype, device="cuda"), 1, N, D, 8)
    mine, theirs = (c.reorder(None, torch.zeros_like(parents).to(c.position.device)) for c in (mine, theirs))
    for u in range(20):
        if u == 8:
            mine, theirs = mine.grow(24), theirs.grow(24)
        new = torch.randn(3, B, N, K, D).to(dtype)
        expected = mine.attend(0, *new.double(), mine.mask())
        result = theirs.attend(0, *new.cuda(), theirs.mask())
        within = 1e-4 if dtype == torch.float32 else 0.03
        torch.testing.assert_close(result.double().cpu(), expected, rtol=within, atol=within)
        mine, theirs = (c.advanced().reorder(None, parents.to(c.position.device)) for c in (mine, theirs))


def test_weights_elsewhere_are_captured_anew() -> None:
    model, texts = tiny_model(LOOKUP, seed=2).cuda(), sentences(9, seed=1)
    for _ in range(2):
        for _ in range(3):
            same(searched(model, texts), without(model, texts), 1e-9)
        model.cpu()
        torch.cuda.empty_cache()
        poison = torch.full((1 << 20,), torch.nan, device="cuda")  # where the weights were
        model.cuda()
        del poison


def test_under_autocast_graphs_read_the_weights_of_today() -> None:
    model, texts = tiny_model(LOOKUP, seed=3, scale=1.0).float().cuda(), sentences(12, seed=2)
    with torch.no_grad():
        model.decoder.output.weight.mul_(20.0)  # distributions in which bfloat16 does not decide
    for _ in range(4):
        hypotheses, expected = searched(model, texts, low=True), without(model, texts, low=True)
        best = [[pool[0].score for pool in pools] for pools in (hypotheses[:-2], expected[:-2])]
        assert best[0] == pytest.approx(best[1], rel=0.02, abs=0.02)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)


def test_shapes_that_recur_are_captured_once() -> None:
    model = tiny_model(LOOKUP, seed=4).cuda()
    with torch.no_grad():
        model.decoder.output.bias[EOS] = -1e9  # the limits decide on shapes
    counts = []
    for seed in range(6):
        texts = sentences(20, seed=seed)
        texts[0] = [5] * 9  # the longest, always
        searched(model, texts)
        counts.append(len(graphs._graphs[model.decoder].graphs))
    assert counts[2] > 0
    assert counts[2:] == [counts[2]] * 4


def test_memory_is_flat_over_batches_of_many_shapes_and_goes_with_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "MOST", 24)
    gc.collect()
    start = torch.cuda.memory_allocated()
    model = tiny_model(LOOKUP, seed=5).cuda()
    generator = torch.Generator().manual_seed(0)
    used = []
    for _ in range(200):
        count, longest = torch.randint(1, 90, (2,), generator=generator).tolist()
        limits = torch.arange(count, device="cuda") % 20 + 1
        beam_search(model.decoder, encode(model, sentences(count, seed=count, longest=longest)), limits)
        used.append(torch.tensor([torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]))
    assert 12 < len(graphs._graphs[model.decoder].graphs) <= 24
    early, late = (torch.stack(part).amax(0) for part in (used[:100], used[100:]))
    assert (late <= 1.1 * early).all(), (early, late)
    del model
    gc.collect()
    assert torch.cuda.memory_allocated() <= start + (1 << 25)  # cuBLAS keeps its workspaces


def test_graphs_can_be_had_in_inference_mode_and_out_of_it() -> None:
    model, texts = tiny_model(LOOKUP, seed=6).cuda(), sentences(9, seed=1)
    expected = without(model, texts)
    for inference in (True, False, True, False):
        with torch.inference_mode(inference):
            same(searched(model, texts), expected, 1e-9)


def test_the_variable_turns_them_off() -> None:
    model, texts = tiny_model(LOOKUP, seed=7).cuda(), sentences(4, seed=1)
    assert VARIABLE not in os.environ
    without(model, texts)
    assert model.decoder not in graphs._graphs
    searched(model, texts)
    assert model.decoder in graphs._graphs
