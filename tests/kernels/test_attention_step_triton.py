"""A step's Triton kernels against plain operations in float64: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from kernels import comparing
from kernels.comparing import assert_unread
from kernels.on_triton import DEVICE, MARKS, ON_GPU, OVERFLOWS
from test_attention_step import problem as on_cpu
from torch import Tensor

from caesura.decoders.recurrent import RecurrentDecoder, RecurrentState
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE, attention_step_triton
from caesura.kernels.attention_step import attend_reference
from caesura.kernels.attention_step_triton import attend

pytestmark = [*MARKS, OVERFLOWS]


def problem(*given: Any, **named: Any) -> list[Tensor]:
    return [argument.to(DEVICE) for argument in on_cpu(*given, **named)]


def run(function, args: list[Tensor], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Context and weights; the kernels take v in float32."""
    query, keys, values, mask, v = args
    if function is attend:
        result = attend(query.to(dtype), keys.to(dtype), values.to(dtype), mask.sum(1), v[0].float())
    else:
        result = attend_reference(query.to(dtype), keys.to(dtype), values.to(dtype), mask, v.to(dtype))
    return dict(zip(("context", "weights"), result, strict=True))


assert_close = partial(comparing.assert_close, tolerance=1e-5)


def assert_bf16_is_as_good_as_eager(args: list[Tensor]) -> None:
    low = [run(function, args, torch.bfloat16) for function in (attend, attend_reference)]
    comparing.assert_as_good(*low, run(attend_reference, args))


CASES = {
    "ragged": ([7, 1, 4], (6, 5)),
    "longer than a tile": ([70, 33], (18, 17)),
    "one sentence": ([5], (2, 7)),
    "one segment": ([1, 1], (3, 2)),
    "all ones": ([1], (1, 1)),
}


@pytest.mark.parametrize("K", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_triton_is_the_reference(case, K):
    args = problem(case[0], K, case[1])
    assert_close(run(attend, args, torch.float32), run(attend_reference, args))


def test_more_hypotheses_than_a_tile_has_rows():
    args = problem([9, 3], 19, (5, 4))
    assert_close(run(attend, args, torch.float32), run(attend_reference, args))


@pytest.mark.parametrize("keys", [16, 64])
def test_tiles_of_any_size(keys, monkeypatch):
    monkeypatch.setattr(attention_step_triton, "KEYS", keys)
    monkeypatch.setattr(attention_step_triton, "BYTES", 64)
    args = problem([11, 5], 3, (20, 40))
    assert_close(run(attend, args, torch.float32), run(attend_reference, args))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_padding_is_never_read_and_gets_nothing(poison):
    args = problem([36, 2, 4], 3, (3, 5))
    fast = partial(run, attend, dtype=torch.float32)
    assert_unread(fast, args, ~args[3], (1, 2), poison, ["weights"])


def test_a_sentence_does_not_depend_on_its_batch():
    query, keys, values, mask, v = problem([40, 4, 6], 3, (3, 5))
    together = run(attend, [query, keys, values, mask, v], torch.float32)
    alone = run(attend, [query[1:2], keys[1:2, :4], values[1:2, :4], mask[1:2, :4], v], torch.float32)
    torch.testing.assert_close(together["context"][1:2], alone["context"], rtol=0, atol=1e-6)
    torch.testing.assert_close(together["weights"][1:2, :, :4], alone["weights"], rtol=0, atol=1e-6)


def test_energies_may_be_large_and_tanh_saturated():
    args = problem([6, 3], 3, (5, 3))
    args[1], args[4] = 100 * args[1], 100 * args[4]
    assert_close(run(attend, args, torch.float32), run(attend_reference, args), tolerance=1e-4)


def test_bf16_is_as_close_to_float64_as_the_eager_reference():
    assert_bf16_is_as_good_as_eager(problem([39, 7, 1], 4, (24, 40)))


Sizes = tuple[int, int, int, int, int]  # V, embedding, hidden, attention, values
SMALL: Sizes = 9, 4, 7, 3, 6


def decoder(sizes: Sizes = SMALL) -> RecurrentDecoder:
    torch.manual_seed(0)
    V, E, H, A, M = sizes
    model = RecurrentDecoder(V, memory_dim=M, summary_dim=H, embedding_dim=E, hidden_size=H, attention_size=A)
    return model.to(DEVICE)


def encoded(lengths: list[int], sizes: Sizes = SMALL, poison: float = 0.5) -> Encoded:
    generator = torch.Generator().manual_seed(1)
    B, S, (_, _, H, _, M) = len(lengths), max(lengths), sizes
    states, summary = torch.randn(B, S, M, generator=generator), torch.randn(B, H, generator=generator)
    states[torch.arange(S) >= torch.tensor(lengths)[:, None]] = poison
    return Encoded(states.to(DEVICE), torch.tensor(lengths, device=DEVICE), summary.to(DEVICE))


def cast(given: Encoded, dtype: torch.dtype) -> Encoded:
    return replace(given, states=given.states.to(dtype), summary=given.summary.to(dtype))


def walk(model: RecurrentDecoder, state: RecurrentState, symbols: Tensor) -> dict[str, Tensor]:
    """The last logits, attention and hidden states after `symbols` [U, B, K]."""
    state = model.reorder(state, None, torch.zeros_like(symbols[0]))
    for row in symbols:
        step, state = model.step(state, row)
    return {"logits": step.logits, "attention": step.attention, "hidden": state.hidden}


def draw(V: int, *shape: int) -> Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)


@pytest.mark.parametrize("poison", [0.5, float("nan")])
@pytest.mark.parametrize("K", [1, 3])
def test_a_step_is_the_plain_step(K, poison, monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    model, given, symbols = decoder(), encoded([5, 1, 3], poison=poison), draw(9, 3, 3, K)
    with torch.no_grad():
        state = model.start(given)
        result = walk(model, state, symbols)
    assert state.weights is not None
    expected = walk(model.double(), model.start(cast(given, torch.float64)), symbols)
    assert all(value.requires_grad for value in expected.values())
    assert_close(result, expected)


def test_a_step_in_bf16_is_as_close_to_float64_as_the_eager_one(monkeypatch):
    sizes = 20, 8, 48, 24, 40
    model, given, symbols = decoder(sizes), encoded([39, 7, 1], sizes), draw(20, 3, 3, 4)
    errors = {}
    for choice in ("triton", "reference"):
        monkeypatch.setenv(VARIABLE, choice)
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            state = model.start(given)
            assert (state.weights is None) == (choice == "reference")
            errors[choice] = walk(model, state, symbols)
    assert errors["triton"]["hidden"].dtype == state.hidden.dtype == torch.float32
    assert errors["triton"]["logits"].dtype == errors["reference"]["logits"].dtype == torch.bfloat16
    expected = walk(model.double(), model.start(cast(given, torch.float64)), symbols)
    comparing.assert_as_good(errors["triton"], errors["reference"], expected)


def test_reordered_hypotheses_go_on_as_they_would_have(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    model, symbols = decoder(), draw(9, 2, 3, 2)
    with torch.no_grad():
        start = model.reorder(model.start(encoded([5, 1, 3])), None, torch.zeros_like(symbols[0]))
        _, state = model.step(start, symbols[0])
        expected, _ = model.step(state, symbols[1])
        rows, columns = (
            torch.tensor([2, 0], device=DEVICE),
            torch.tensor([[1, 1, 0], [0, 1, 1]], device=DEVICE),
        )
        moved = model.reorder(state, rows, columns)
        result, _ = model.step(moved, symbols[1][rows[:, None], columns])
    torch.testing.assert_close(result.logits, expected.logits[rows[:, None], columns], rtol=0, atol=1e-6)
    torch.testing.assert_close(
        result.attention, expected.attention[rows[:, None], columns], rtol=0, atol=1e-6
    )
    assert moved.weights is state.weights is start.weights
    assert state.keys is start.keys


def test_a_symbol_outside_the_vocabulary_gives_nan_to_its_hypothesis_alone(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    model = decoder()
    with torch.no_grad():
        state = model.reorder(model.start(encoded([5, 1])), None, draw(1, 2, 3))
        step, _ = model.step(state, torch.tensor([[4, 9, 5], [-1, 0, 8]], device=DEVICE))
    wrong = torch.tensor([[False, True, False], [True, False, False]], device=DEVICE)
    assert torch.equal(step.logits.isnan().all(2), wrong)
    assert torch.equal(step.logits.isnan().any(2), wrong)


def test_what_is_not_supported_takes_plain_operations(monkeypatch):
    monkeypatch.setenv(VARIABLE, "triton")
    with torch.no_grad():
        assert decoder().double().start(cast(encoded([5, 1]), torch.float64)).weights is None
        assert decoder().start(encoded([5, 1])).weights is not None


PAPER = [100, 1, *range(51, 89)]
FULL: Sizes = 97, 620, 1000, 1000, 1000


@ON_GPU
@pytest.mark.parametrize("K", [1, 5, 12])
def test_paper_sizes(K):
    args = problem(PAPER, K, (1000, 1000))
    assert_close(run(attend, args, torch.float32), run(attend_reference, args))
    assert_bf16_is_as_good_as_eager(args)


@ON_GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_step_is_the_step(dtype):  # so the host never waits either
    model, given, symbols = decoder(FULL), encoded(PAPER, FULL), draw(97, len(PAPER), 5)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        state = model.reorder(model.start(given), None, torch.zeros_like(symbols))
        expected, after = model.step(state, symbols)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result, moved = model.step(state, symbols)
    result.logits.zero_()
    graph.replay()
    assert torch.equal(result.logits, expected.logits)
    assert torch.equal(result.attention, expected.attention)
    assert torch.equal(moved.hidden, after.hidden)
