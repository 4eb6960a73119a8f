"""A step without gradients on a CPU against plain operations: values, ranges, padding, order, gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caesura.decoders import recurrent
from caesura.decoders.recurrent import RecurrentDecoder, RecurrentState
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE, attention_step
from caesura.kernels.attention_decoder import Sigmoids
from caesura.kernels.attention_step import attend_in_blocks, attend_reference


def problem(lengths: list[int], K: int, sizes: tuple[int, int], seed: int = 0) -> list[Tensor]:
    """Arguments of `attend_reference` in float64, all but v exact in bfloat16; sizes: attention, values."""
    generator = torch.Generator().manual_seed(seed)
    B, S, (A, M) = len(lengths), max(lengths), sizes

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    memory = [a.bfloat16().double() for a in (random(B, K, A), random(B, S, A), random(B, S, M))]
    return [*memory, mask, (4 / A**0.5) * random(1, A)]


def cast(args: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [a if a.dtype == torch.bool else a.to(dtype) for a in args]


def blocks(args: list[Tensor]) -> tuple[Tensor, Tensor]:
    return attend_in_blocks(*args, Sigmoids.of(args[1]))


def assert_close(result: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float) -> None:
    for name, one, other in zip(("context", "weights"), result, expected, strict=True):
        error = (one.double() - other.double()).norm() / other.double().norm()
        assert error < tolerance, f"{name}: relative error {error:.1e}"


@settings(max_examples=20)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    K=st.integers(1, 7),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 5)),
    block=st.sampled_from([1, 100, 300, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_blocks_of_any_size_give_the_reference(lengths, K, sizes, block, seed):
    args = problem(lengths, K, sizes, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_step, "BLOCK", block)
        assert_close(blocks(args), attend_reference(*args), 1e-9)


@settings(max_examples=20)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    rows=st.lists(st.integers(0, 4), min_size=1, max_size=9),
    K=st.integers(1, 2),
    block=st.sampled_from([1, 100, 300, 1 << 20]),
    large=st.booleans(),
)
def test_queries_of_some_sentences_are_answered_as_if_each_had_the_sentence_to_itself(
    lengths, rows, K, block, large
):
    _, *memory, energy = problem(lengths, 1, (5, 3))
    sentences = torch.tensor(rows) % len(lengths)
    query = problem([1] * len(rows), K, (5, 3), seed=1)[0] * (300 if large else 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_step, "BLOCK", block)
        result = attend_in_blocks(query, *memory, energy, Sigmoids.of(memory[0]), sentences)
    expected = attend_reference(query, *(part[sentences] for part in memory), energy)
    assert_close(result, expected, 1e-9)


def test_float32_is_as_close_to_float64_as_the_reference():
    args = problem([31, 50, 7, 1], 5, (200, 48))
    expected = attend_reference(*args)
    assert_close(blocks(cast(args, torch.float32)), expected, 1e-5)
    assert_close(attend_reference(*cast(args, torch.float32)), expected, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("keys", "query"), [(1.0, 300.0), (300.0, 1.0), (300.0, 300.0), (2000.0, 2000.0)])
def test_keys_and_queries_may_be_so_large_that_their_exponentials_are_not_numbers(keys, query, dtype):
    args = problem([6, 3], 4, (5, 3))
    args[0], args[1] = query * args[0], keys * args[1]
    args = cast(args, dtype)
    assert_close(blocks(args), attend_reference(*args), 1e-5 if dtype == torch.float32 else 1e-9)


# In float32 exp(2 key) is no number; it is one, but exp(2 query) is not.
@pytest.mark.parametrize(("keys", "query", "v"), [((100.1, 99.9), -100.0, 5.0), ((-39.8, -39.5), 44.6, 2e3)])
def test_a_query_that_undoes_a_large_key_is_not_lost(keys, query, v):
    memory, mask = torch.tensor(keys)[None, :, None], torch.ones(1, 2, dtype=torch.bool)
    assert Sigmoids.of(memory).factored == (max(keys) < 0)
    args = [torch.tensor([[[query]]]), memory, torch.eye(2)[None], mask, torch.tensor([[v]])]
    expected = attend_reference(*cast(args, torch.float64))
    assert (expected[1] - 0.5).abs().max() > 0.02
    assert_close(blocks(args), expected, 1e-3)


LENGTHS, SYMBOLS = [5, 1, 3], [[4, 5], [2, 7], [8, 8]]  # [B, K]


def decoder(dropout: float = 0.0) -> RecurrentDecoder:
    torch.manual_seed(0)
    sizes = {"memory_dim": 6, "summary_dim": 5, "embedding_dim": 4, "hidden_size": 7, "attention_size": 3}
    return RecurrentDecoder(9, **sizes, dropout=dropout).double()


def encoded(poison: float = 0.5) -> Encoded:
    torch.manual_seed(1)
    states, summary = torch.randn(3, 5, 6).double(), torch.randn(3, 5).double()
    states[torch.arange(5) >= torch.tensor(LENGTHS)[:, None]] = poison
    return Encoded(states, torch.tensor(LENGTHS), summary)


def walk(model: RecurrentDecoder, state: RecurrentState, steps: int = 3) -> list[Tensor]:
    """Logits, attention and hidden states of some steps of two hypotheses per sentence."""
    state = model.reorder(state, None, torch.zeros(3, 2, dtype=torch.long))
    tensors = []
    for _ in range(steps):
        step, state = model.step(state, torch.tensor(SYMBOLS))
        tensors += [step.logits, step.attention, state.hidden]
    return tensors


@pytest.mark.parametrize("rows", [8, 9])  # one symbol too many for a table, and a vocabulary that has one
@pytest.mark.parametrize("poison", [0.5, float("nan"), float("inf")])
def test_steps_without_gradients_are_steps_with_them_whatever_is_in_padding(rows, poison, monkeypatch):
    monkeypatch.setattr(recurrent, "ROWS", rows)
    model = decoder()
    expected = walk(model, model.start(encoded()))
    assert all(value.requires_grad for value in expected)
    with torch.no_grad():
        state = model.start(encoded(poison))
        result = walk(model, state)
    assert state.sigmoids is not None
    assert (state.table is None) == (rows == 8)
    for one, other in [*zip(result, expected, strict=True), *zip(walk(model, state), expected, strict=True)]:
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_padding_reaches_no_gradient():
    model = decoder()
    probe = torch.randn(3, 2, 9).double()
    expected, result = (
        torch.autograd.grad((walk(model, model.start(given))[-3] * probe).sum(), [*model.parameters()])
        for given in (encoded(), encoded(float("nan")))
    )
    for (name, _), one, other in zip(model.named_parameters(), result, expected, strict=True):
        assert torch.equal(one, other), name


def test_memory_may_lie_in_any_order():
    model, given = decoder(), encoded()
    turned = replace(given, states=given.states.transpose(0, 1).contiguous().transpose(0, 1))
    with torch.no_grad():
        expected, result = walk(model, model.start(given)), walk(model, model.start(turned))
    assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))


def test_a_state_started_without_gradients_gives_them_when_stepped_with_them():
    model = decoder()
    with torch.no_grad():
        state = model.start(encoded())
    parameters = {
        name: value
        for name, value in model.named_parameters()
        if not name.startswith(("attention.key", "initial"))  # which `start` has used
    }
    probe = torch.randn(3, 2, 9).double()
    result = torch.autograd.grad((walk(model, state)[-3] * probe).sum(), parameters.values())
    expected = torch.autograd.grad(
        (walk(model, model.start(encoded()))[-3] * probe).sum(), parameters.values()
    )
    for name, one, other in zip(parameters, result, expected, strict=True):
        assert other.any(), name
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("grad", [True, False])
def test_reordered_hypotheses_go_on_as_they_would_have(grad):
    model, following = decoder(), torch.tensor([[4, 5], [6, 7], [1, 8]])
    with torch.set_grad_enabled(grad):
        _, state = model.step(
            model.reorder(model.start(encoded()), None, torch.zeros(3, 2, dtype=torch.long)),
            torch.tensor(SYMBOLS),
        )
        expected, _ = model.step(state, following)
        rows, columns = torch.tensor([2, 0]), torch.tensor([[1, 1, 0], [0, 1, 1]])
        moved = model.reorder(state, rows, columns)
        result, _ = model.step(moved, following[rows[:, None], columns])
        kept, _ = model.step(model.reorder(state, None, torch.tensor([[1], [0], [1]])), following[:, 1:])
    for name in ("logits", "attention"):
        one, other = getattr(result, name), getattr(expected, name)
        torch.testing.assert_close(one, other[rows[:, None], columns], rtol=0, atol=1e-12)
    # the first and third sentence went on from the second hypothesis, the second one from its first
    torch.testing.assert_close(kept.logits[[0, 2]], expected.logits[[0, 2], 1:], rtol=0, atol=1e-12)
    assert (kept.logits[1] - expected.logits[1, 1]).abs().max() > 1e-3
    # what belongs to no sentence stays the very same
    assert moved.table is state.table
    assert (state.table is None) == grad


def test_what_steps_leave_as_it_is_stays_the_very_same():
    model = decoder()
    with torch.no_grad():
        state = model.start(encoded())
        _, after = model.step(state, torch.tensor([[4], [5], [6]]))
        moved = model.reorder(after, None, torch.zeros(3, 1, dtype=torch.long))
    for name in ("keys", "values", "lengths", "sigmoids", "table", "weights"):
        assert getattr(moved, name) is getattr(after, name) is getattr(state, name), name


def test_dropout_in_training_is_drawn_at_every_step():
    model = decoder(dropout=0.5).train()
    with torch.no_grad():
        state = model.start(encoded())
        one, other = (model.step(state, torch.tensor([[4], [5], [6]]))[0].logits for _ in range(2))
    assert not torch.equal(one, other)
    with torch.no_grad():
        assert model.start(encoded()).table is None
        assert model.eval().start(encoded()).table is not None


def test_low_precision_and_the_reference_take_plain_operations(monkeypatch):
    model, given = decoder(), encoded()
    with torch.no_grad():
        low = replace(given, states=given.states.bfloat16(), summary=given.summary.bfloat16())
        assert model.bfloat16().start(low).sigmoids is None
        monkeypatch.setenv(VARIABLE, "reference")
        assert model.double().start(given).sigmoids is None


def test_there_may_be_no_sentences():
    model, nothing = (
        decoder(),
        Encoded(torch.zeros(0, 4, 6).double(), torch.zeros(0).long(), torch.zeros(0, 5).double()),
    )
    with torch.no_grad():
        step, _ = model.step(model.start(nothing), torch.zeros(0, 1, dtype=torch.long))
        state = model.start(encoded())
        gone = model.reorder(state, torch.zeros(0, dtype=torch.long), torch.zeros(0, 2, dtype=torch.long))
        after, _ = model.step(gone, torch.zeros(0, 2, dtype=torch.long))
    assert step.logits.shape == (0, 1, 9)
    assert after.attention.shape == (0, 2, 5)
