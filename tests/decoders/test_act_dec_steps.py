"""ActDecoder step by step: steps = at once, reordered states go on, greedy search is the listing's."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from decoders.machines import KINDS, REGIMES, VOCABULARY, alone, close, decoder, memory, targets
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.act import ActDecoder
from caesura.decoders.act_listing import act_dec
from caesura.decoders.base import Decoded
from caesura.encoders.base import Encoded
from caesura.search.greedy import greedy


def steps(made: ActDecoder, encoded: Encoded, before: Tensor) -> Decoded:
    """What repeated steps give, as `forward` would return it; ends are known one step later."""
    state, taken = made.start(encoded), []
    for symbols in before.split(1, 1):
        step, state = made.step(state, symbols)
        taken.append(step)
    logits, attention, ends = (
        torch.cat([getattr(step, name) for step in taken], 1) for name in ("logits", "attention", "ends")
    )
    return Decoded(logits, logits.new_zeros(len(logits)), attention, ends)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("regime", REGIMES)
def test_the_decoder_at_once_is_the_decoder_step_by_step_in_values_and_gradients(
    regime: str, kind: str
) -> None:
    made, lengths = decoder(1, regime, **KINDS[kind]), [6, 3, 5]
    encoded = memory([4, 2, 6], 1, KINDS[kind].get("summary_dim", 6))
    _, before, sizes = targets(lengths, 1)
    at_once, stepped = made(encoded, before, sizes), steps(made, encoded, before)
    probe = torch.zeros_like(at_once.logits)
    for b, n in enumerate(lengths):
        close(at_once.logits[b, :n], stepped.logits[b, :n], 1e-12, "logits")
        assert at_once.attention is not None
        assert stepped.attention is not None
        close(at_once.attention[b, :n], stepped.attention[b, :n], 1e-12, "attention")
        assert at_once.ends is not None
        assert stepped.ends is not None
        assert at_once.ends[b, : n - 1].equal(stepped.ends[b, 1:n])
        probe[b, :n] = torch.randn(n, VOCABULARY, dtype=torch.float64)
    names, parameters = zip(*made.named_parameters(), strict=True)
    ours, theirs = (
        torch.autograd.grad((found.logits * probe).sum(), parameters, materialize_grads=True)
        for found in (at_once, stepped)
    )
    for name, one, other in zip(names, ours, theirs, strict=True):
        close(one, other, 1e-10, name)


def test_the_end_of_the_sentence_ends_a_segment_as_it_is_read() -> None:
    made, encoded = decoder(0, "whole sentence"), memory([3])
    _, state = made.step(made.start(encoded), torch.tensor([[BOS]]))
    assert not made.step(state, torch.tensor([[4]]))[0].ends
    assert made.step(state, torch.tensor([[EOS]]))[0].ends


@pytest.mark.parametrize("kept", [[1], [0, 2], [2, 0], [2, 0, 1]])
@pytest.mark.parametrize("regime", REGIMES)
def test_reordered_sentences_and_hypotheses_go_on_as_they_would_have(regime: str, kept: list[int]) -> None:
    made, encoded = decoder(3, regime), memory([4, 2, 6], 3)
    state = made.reorder(made.start(encoded), None, torch.zeros(3, 2, dtype=torch.long))
    for row in ([[BOS] * 2] * 3, [[4, 5], [6, 7], [8, 4]], [[5, 5], [6, 4], [7, 8]]):
        _, state = made.step(state, torch.tensor(row))
    following = torch.tensor([[5, 6], [4, 8], [7, 5]])
    expected = made.step(state, following)[0]
    hypotheses = torch.tensor([[1, 0, 1]] * len(kept))
    moved = made.reorder(state, torch.tensor(kept), hypotheses)
    found = made.step(moved, following[kept].gather(1, hypotheses))[0]
    for name in ("logits", "attention", "ends"):
        wanted = getattr(expected, name)[torch.tensor(kept)[:, None], hypotheses]
        close(getattr(found, name), wanted, 1e-12, name)


class Synchronisations(TorchDispatchMode):
    """Notes operations whose result has to reach the host, or whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        boolean = func.overloadpacket is torch.ops.aten.index and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        waiting = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")
        if boolean or any(name in str(func) for name in waiting):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_step_does_not_wait_for_the_device_and_keeps_its_shapes() -> None:
    made, encoded = decoder(0), memory([4, 2], 0)
    with torch.no_grad(), Synchronisations() as watched:
        state = made.start(encoded)
        for symbols in ([[BOS], [BOS]], [[4], [5]], [[6], [7]]):
            before = state
            _, state = made.step(state, torch.tensor(symbols))
            state = made.reorder(state, None, torch.zeros(2, 1, dtype=torch.long))
            for field in fields(state):
                old, new = getattr(before, field.name), getattr(state, field.name)
                assert (new.shape, new.dtype) == (old.shape, old.dtype), field.name
        assert watched.seen == []
        bool((state.H > 0).any())
    assert watched.seen, "it would have been noticed"


def test_greedy_search_is_the_listing_run_greedily() -> None:
    made, encoded = decoder(7), memory([5, 3, 4, 1, 6, 2], 7)
    with torch.no_grad():
        made.symbols.bias[:EOS].fill_(-1e4)  # the listing would write <pad> and <s>, search never does
        rows = [act_dec(made, alone(encoded, b), limit=15) for b in range(6)]
    found = greedy(made, encoded, torch.full((6,), 15))
    assert [h.symbols for h in found] == [tuple(row.symbols) for row in rows]
    assert {h.finished for h in found} == {True, False}
    for h, row in zip(found, rows, strict=True):
        logs = torch.log_softmax(row.logits, 1)[torch.arange(len(row.symbols)), torch.tensor(row.symbols)]
        assert h.log_prob == pytest.approx(float(logs.sum()))
