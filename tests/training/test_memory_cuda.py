"""A GPU's memory runs out for real, as PyTorch's allocator is given less of it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, make_config, sentences, vocabulary
from training.test_step import close, gradients

from caesura.data.batching import Batch, collate
from caesura.inference import Translator
from caesura.kernels import graphs
from caesura.training.step import SUMS, Step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
SYSTEMS = pytest.mark.parametrize(
    ("segmenter", "decoder"), [(LOOKUP, RECURRENT), (ACT, ACT_DECODER)], ids=["plain", "act"]
)

SENTENCES, SYMBOLS = 48, 8000  # the scores of a batch [B, U, V], in float64: about 120 MB, some times over
BATCH = collate(
    [*zip(sentences(SENTENCES, seed=1), sentences(SENTENCES, 2, SYMBOLS, longest=40), strict=True)]
)


def large_model(segmenter: dict[str, Any], decoder: dict[str, Any]) -> Translator:
    torch.manual_seed(0)
    config = make_config(segmenter, {"hidden_size": 3}, decoder)
    return Translator.build(config, vocabulary(12), vocabulary(SYMBOLS)).double().cuda()


def reserved() -> int:
    """Bytes that the allocator holds when what is free has been given back."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@contextmanager
def at_most(size: float) -> Iterator[None]:
    """Have no more than so many bytes."""
    torch.cuda.set_per_process_memory_fraction(size / torch.cuda.get_device_properties(0).total_memory)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Of every loss computed from now on: how many sentences, and whether it was captured."""
    tried: list[tuple[int, bool]] = []
    loss = Translator.loss

    def noted(self: Translator, batch: Batch, *given: Any) -> Any:
        tried.append((batch.shape[0], torch.cuda.is_current_stream_capturing()))
        return loss(self, batch, *given)

    monkeypatch.setattr(Translator, "loss", noted)
    return tried


def result(step: Step) -> dict[str, torch.Tensor]:
    sums = step(BATCH)
    return {**gradients(step.model), **dict(zip((*SUMS, *step.model.counted), sums.clone(), strict=True))}


@SYSTEMS
@pytest.mark.parametrize("captured", ["0", "1"])  # also in the graphs' memory, when a shape first comes
def test_a_batch_that_does_not_fit_is_split(
    segmenter: dict[str, Any], decoder: dict[str, Any], captured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(graphs.VARIABLE, captured)
    messages: list[str] = []
    model = large_model(segmenter, decoder)
    step = Step(model, model.config.training, messages.append)
    before = reserved()
    torch.cuda.reset_peak_memory_stats()
    expected = result(step)
    # What was in use at once: the allocator holds more, and what is free of that would serve again.
    needed = torch.cuda.max_memory_allocated() - before
    assert needed > 200e6, "or what else there is would matter"
    if step.graphs is not None:
        step.graphs.forget()
    tried = watched(monkeypatch)
    with at_most(reserved() + 0.6 * needed):
        close(result(step), expected, 1e-9)
    assert tried[0] == (SENTENCES, False)
    assert sum(size for size, _ in tried if size < SENTENCES) >= SENTENCES
    assert messages == [f"a batch of {SENTENCES} sentences does not fit into memory; such are split now"]
    tried.clear()
    close(result(step), expected, 1e-9)
    assert tried == [(SENTENCES, False)], "with memory enough it is whole again"


@SYSTEMS
def test_so_it_is_when_memory_runs_out_while_a_graph_is_captured(
    segmenter: dict[str, Any], decoder: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    model = large_model(segmenter, decoder)
    step = Step(model, model.config.training, messages.append)
    assert step.graphs is not None
    before = reserved()
    expected = result(step)
    needed = torch.cuda.memory_reserved() - before
    assert needed > 200e6, "or what else there is would matter"
    if model.segmenter.room(9) is None:
        result(step)  # the cuts are captured first, and what follows them comes anew
    tried = watched(monkeypatch)
    # The memory of the first time is somebody else's now.
    side = step.graphs.side
    taken, side._pool = side._pool, torch.cuda.MemPool()
    with at_most(torch.cuda.memory_reserved() + 0.4 * needed):
        close(result(step), expected, 1e-9)
    assert tried[0] == (SENTENCES, True)
    assert not any(capturing for _, capturing in tried[1:])
    assert sum(size for size, _ in tried if size < SENTENCES) >= SENTENCES
    assert messages == [f"a batch of {SENTENCES} sentences does not fit into memory; such are split now"]
    assert len(step.graphs) == 0
    del taken
    tried.clear()
    for _ in range(4):  # until it is captured, and once more
        close(result(step), expected, 1e-9)
    assert (SENTENCES, True) in tried, "with memory enough it is whole again"
    assert len(step.graphs) == (2 if model.segmenter.room(9) is None else 1)
