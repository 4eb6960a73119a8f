"""Memory: a batch that does not fit is split into pieces with the same gradients; what is used stays flat."""

import gc
import re
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import caesura, refusal, write_config, write_corpus
from folders.test_strangers import little_memory
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, TRANSFORMER, tiny_model
from training.outcomes import Listener, configured, outcome, run
from training.test_step import PAIRS, close, gradients
from wording import refuses

from caesura.data.batching import Batch, collate
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.base import Encoded
from caesura.errors import InputError, TrainingError, explain, out_of_memory
from caesura.inference import Translator
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress
from caesura.training.loop import train
from caesura.training.step import SUMS, Step

NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def too_large(monkeypatch: pytest.MonkeyPatch, most: int, problem: RuntimeError = NO_MEMORY) -> list[int]:
    """Have memory for `most` sentences at once; what was tried."""
    tried: list[int] = []
    cut = Translator.loss

    def loss(self: Translator, batch: Batch, *given: Any) -> Any:
        tried.append(batch.shape[0])
        if batch.shape[0] > most:
            raise problem
        return cut(self, batch, *given)

    monkeypatch.setattr(Translator, "loss", loss)
    return tried


@pytest.mark.parametrize(
    ("segmenter", "decoder"),
    [(LOOKUP, RECURRENT), (ACT, ACT_DECODER), (LOOKUP, TRANSFORMER)],
    ids=["plain", "act", "transformer"],
)
@pytest.mark.parametrize(
    ("normalization", "smoothing", "most"),
    [("symbols", 0.0, 4), ("symbols", 0.3, 1), ("sentences", 0.0, 1), ("sentences", 0.3, 4)],
)
def test_a_batch_in_pieces_has_the_gradients_and_sums_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    segmenter: dict[str, Any],
    decoder: dict[str, Any],
    normalization: str,
    smoothing: float,
    most: int,
) -> None:
    training = {"normalization": normalization, "label_smoothing": smoothing}
    model = tiny_model(segmenter, decoder=decoder, training=training)
    batch = collate(PAIRS[:11], shape=(13, 40, 20))
    whole = Step(model, model.config.training)(batch)
    expected = gradients(model) | dict(zip((*SUMS, *model.counted), whole, strict=True))
    tried = too_large(monkeypatch, most)
    messages: list[str] = []
    step = Step(model, model.config.training, messages.append)
    for _ in range(2):
        sums = step(batch)
        close(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)), expected, 1e-12)
    assert messages == ["a batch of 11 sentences does not fit into memory; such are split now"]
    assert tried[0] == 13
    assert [n for n in tried if n <= most]


def test_risk_in_pieces_is_that_of_the_whole() -> None:
    model = tiny_model(ACT, training={"risk_candidates": 3})
    batch = collate(PAIRS[:6])
    step = Step(model, model.config.training)
    whole = step(batch, 4)
    expected = gradients(model) | dict(zip((*SUMS, *model.counted), whole, strict=True))
    sums = step._in_pieces([batch], 4, True)
    close(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)), expected, 1e-12)


def test_memory_that_runs_out_amid_gradients_leaves_nothing_of_them() -> None:
    model = tiny_model(ACT)
    batch = collate(PAIRS[:8])
    step = Step(model, model.config.training)
    step(batch)
    expected = gradients(model)
    first = next(model.segmenter.parameters())  # its gradient is the last
    left = [3]

    def full(gradient: torch.Tensor) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    handle = first.register_hook(full)
    step(batch)
    handle.remove()
    assert left[0] < 0
    close(gradients(model), expected, 1e-12)


@pytest.mark.parametrize(
    "problem",
    [
        NO_MEMORY,
        torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=["gpu", "graphs", "library", "kernel", "cpu"],
)
def test_so_is_a_batch_on_either_device(monkeypatch: pytest.MonkeyPatch, problem: RuntimeError) -> None:
    model = tiny_model(LOOKUP)
    tried = too_large(monkeypatch, 3, problem)
    Step(model, model.config.training)(collate(PAIRS[:6]))
    assert tried == [6, 3, 3]


def test_the_error_of_a_cpu_without_memory_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(caught.value)


@pytest.mark.parametrize("sizes", [(1 << 60,), (1 << 40, 1 << 40)])
def test_where_memory_is_short_the_sentence_is_ours(
    capsys: pytest.CaptureFixture[str], sizes: tuple[int, ...]
) -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(sizes, dtype=torch.uint8)
    for problem in (caught.value, MemoryError(), NO_MEMORY):
        assert explain(problem) == 1
        message = capsys.readouterr().err
        assert message.startswith("caesura: there is not enough memory")
        assert message.count("\n") == 1


def test_sizes_that_no_memory_holds_are_refused_by_section(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    path = write_config(tmp_path / "config.yaml", "act")
    for size in (60_000, 1 << 30):
        with little_memory(1 << 28):
            done = caesura(
                "train", path, "--out", tmp_path / "out", "--set", f"model.decoder.hidden_size={size}"
            )
        message = refusal(done)
        assert message.startswith(f"{path}:10: model.decoder: ")
        assert not {"alloc", "Storage"} & {*re.findall("[A-Za-z]+", message)}


def searched_too_large(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Have memory to search for `most` sentences at once; what was tried."""
    tried: list[int] = []
    start = RecurrentDecoder.start

    def within(self: RecurrentDecoder, encoded: Encoded, room: int) -> Any:
        tried.append(len(encoded.lengths))
        if tried[-1] > most:
            raise NO_MEMORY
        return start(self, encoded, room)

    monkeypatch.setattr(RecurrentDecoder, "start", within)
    return tried


@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_that_do_not_fit_together_are_translated_in_halves(
    monkeypatch: pytest.MonkeyPatch, beam: int
) -> None:
    model = tiny_model(ACT)
    texts = ["abc", "", *("abcdefgh"[: n % 8 + 1] for n in range(11))]
    expected = model.process(texts, model.searcher(beam))
    tried, done = searched_too_large(monkeypatch, 3), []
    outputs = model.process(texts, model.searcher(beam), done.append)
    assert [output.texts for output in outputs] == [output.texts for output in expected]
    assert [output.segmentation.pieces for output in outputs] == [o.segmentation.pieces for o in expected]
    assert tried == [12, 6, 3, 3, 6, 3, 3]
    assert done == [12]


def test_a_line_that_does_not_fit_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    searched_too_large(monkeypatch, 0)
    with refuses(InputError, "a sentence of 3 symbols "):
        tiny_model(LOOKUP).translate(["abc", "abc"])


def test_a_validation_that_fails_loses_no_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    config = configured(tmp_path)
    run(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        searched_too_large(patch, 0)
        for _ in range(2):
            with refuses(InputError):
                train(config, tmp_path / "parts", Listener())
            [checkpoint] = list_checkpoints(tmp_path / "parts" / "checkpoints")
            assert read_progress(checkpoint).update == 4, "that of the first validation"
    listener = run(config, tmp_path / "parts")
    assert listener.messages[0].startswith("going on from update 4 ")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_a_sentence_that_does_not_fit_alone_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(LOOKUP)
    too_large(monkeypatch, 0)
    with refuses(TrainingError, "a sentence ("):
        Step(model, model.config.training)(collate(PAIRS[:3]))


def test_another_error_is_not_taken_for_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(*_: Any) -> None:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(Translator, "loss", loss)
    model = tiny_model(LOOKUP)
    with pytest.raises(RuntimeError, match="shapes differ"):
        Step(model, model.config.training)(collate(PAIRS[:3]))


def test_training_goes_on_with_split_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    too_large(monkeypatch, 4)
    listener = run(configured(tmp_path, "act"), tmp_path / "out")
    assert [line for line in listener.messages if "does not fit" in line] == [
        "a batch of 10 sentences does not fit into memory; such are split now"
    ]
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("updates", [96, pytest.param(10_000, marks=pytest.mark.soak)])
def test_memory_is_flat_over_many_updates(tmp_path: Path, updates: int) -> None:
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    used: list[int] = []

    class Meter(Listener):
        def update(self, progress: Progress, loss: float | None) -> None:
            if progress.update % (updates // 8) == 0:
                gc.collect()
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                used.append(pages * resource.getpagesize())

    settings = (f"training.updates={updates}", "training.validation_freq=2000", "training.max_halvings=10000")
    train(configured(tmp_path, "word", *settings), tmp_path / "out", Meter())
    print([round(size / 1e6, 1) for size in used])
    assert max(used[4:]) - max(used[2:4]) < 4_000_000
