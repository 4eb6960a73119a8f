"""ActDecoder step by step: steps = at once, reordered states go on, greedy search is the listing's."""

from typing import Any

import pytest
import torch
from decoders.machines import KINDS, REGIMES, VOCABULARY, alone, decoder, memory, targets
from helpers import close
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders import act
from caesura.decoders.act import ActDecoder
from caesura.decoders.act_listing import act_dec
from caesura.decoders.base import Decoded
from caesura.encoders.base import Encoded
from caesura.kernels import VARIABLE, act_decoder
from caesura.kernels.act_decoder import ActDecoderState
from caesura.search.graphs import _outline
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
        close(at_once.attention[b, :n], stepped.attention[b, :n], 1e-12, "attention")
        assert at_once.ends[b, : n - 1].equal(stepped.ends[b, 1:n])
        probe[b, :n] = torch.randn(n, VOCABULARY, dtype=torch.float64)
    names, parameters = zip(*made.named_parameters(), strict=True)
    ours, theirs = (
        torch.autograd.grad((decoded.logits * probe).sum(), parameters, materialize_grads=True)
        for decoded in (at_once, stepped)
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
    step = made.step(moved, following[kept].gather(1, hypotheses))[0]
    for name in ("logits", "attention", "ends"):
        reference = getattr(expected, name)[torch.tensor(kept)[:, None], hypotheses]
        close(getattr(step, name), reference, 1e-12, name)


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


@pytest.mark.parametrize("kind", ["plain", "context fed"])
def test_a_step_to_be_captured_does_not_wait_for_the_device_and_keeps_its_shapes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "reference")  # on a CPU, what a GPU does
    made, encoded = decoder(0, **KINDS[kind]), memory([4, 2], 0)
    with torch.no_grad(), Synchronisations() as watched:
        state = made.start(encoded)
        for symbols in ([[BOS], [BOS]], [[4], [5]], [[6], [7]]):
            before = state
            _, state = made.step(state, torch.tensor(symbols))
            state = made.reorder(state, None, torch.zeros(2, 1, dtype=torch.long))
            assert _outline(state) == _outline(before)
        assert watched.seen == []
        bool((state.H > 0).any())
    assert watched.seen, "it would have been noticed"


def test_greedy_search_is_the_listing_run_greedily() -> None:
    made, encoded = decoder(7), memory([5, 3, 4, 1, 6, 2], 7)
    with torch.no_grad():
        made.symbols.bias[:EOS].fill_(-1e4)  # the listing would write <pad> and <s>, search never does
        rows = [act_dec(made, alone(encoded, b), limit=15) for b in range(6)]
    hypotheses = greedy(made, encoded, torch.full((6,), 15))
    assert [h.symbols for h in hypotheses] == [tuple(row.symbols) for row in rows]
    assert {h.finished for h in hypotheses} == {True, False}
    for h, row in zip(hypotheses, rows, strict=True):
        logs = torch.log_softmax(row.logits, 1)[torch.arange(len(row.symbols)), torch.tensor(row.symbols)]
        assert h.log_prob == pytest.approx(float(logs.sum()))


def walk(made: ActDecoder, state: ActDecoderState, count: int = 9) -> list[list[Tensor]]:
    """Logits, attention and ends of some steps of two hypotheses per sentence, which change places."""
    generator = torch.Generator().manual_seed(5)
    sentences = len(state.keys)
    state = made.reorder(state, None, torch.zeros(sentences, 2, dtype=torch.long))
    symbols, taken = torch.full((sentences, 2), BOS), []
    for t in range(count):
        step, state = made.step(state, symbols)
        taken.append([step.logits, step.attention, step.ends])
        state = made.reorder(
            state, torch.arange(sentences) if t % 2 else None, torch.tensor([[1, 0]] * sentences)
        )
        symbols = torch.randint(EOS + 1, VOCABULARY, (sentences, 2), generator=generator)
    return taken


@pytest.mark.parametrize(
    "rows", [VOCABULARY - 1, VOCABULARY]
)  # one symbol too many for a table, and just none
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("regime", REGIMES)
def test_steps_without_gradients_are_steps_with_them_whatever_is_in_padding(
    regime: str, kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act, "ROWS", rows)
    made, encoded = decoder(3, regime, **KINDS[kind]), memory([4, 2, 6], 3, KINDS[kind].get("summary_dim", 6))
    expected = walk(made, made.start(encoded))
    assert all(step[0].requires_grad for step in expected)
    encoded.states[torch.arange(6) >= encoded.lengths[:, None]] = torch.nan
    with torch.no_grad():
        state = made.start(encoded)
        assert state.sigmoids is not None
        assert (state.table is None) == (rows < VOCABULARY)
        decoded = walk(made, state)
    for (logits, attention, ends), (*numbers, ended) in zip(decoded, expected, strict=True):
        close(logits, numbers[0], 1e-12, "logits")
        close(attention, numbers[1], 1e-12, "attention")
        assert ends.equal(ended)


@pytest.mark.parametrize("regime", REGIMES)
def test_in_a_search_only_hypotheses_that_begin_a_segment_attend(
    regime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, attend = [], act_decoder.attend_in_blocks
    made, encoded = decoder(3, regime), memory([4, 2, 6], 3)

    def counting(query: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        asked.append(query.shape[0] * query.shape[1])
        return attend(query, *args)

    monkeypatch.setattr(act_decoder, "attend_in_blocks", counting)
    with torch.no_grad():
        begun = [int(ends.sum()) for _, _, ends in walk(made, made.start(encoded))]
    assert asked == [count for count in begun if count]
    expected = {"one character": 9 * 6, "whole sentence": 6}
    assert sum(begun) == expected.get(regime, sum(begun))
    assert regime != "mixed" or {0 < count < 6 for count in begun} == {True, False}


def test_a_state_started_without_gradients_gives_them_when_stepped_with_them() -> None:
    made, encoded = decoder(3), memory([4, 2, 6], 3)
    with torch.no_grad():
        state = made.start(encoded)
    parameters = [
        p for name, p in made.named_parameters() if not name.startswith(("attention.key", "initial"))
    ]
    decoded, expected = (
        torch.autograd.grad(walk(made, begun)[-1][0].square().sum(), parameters)
        for begun in (state, made.start(encoded))
    )
    for one, other in zip(decoded, expected, strict=True):
        close(one, other, 1e-10)


def test_the_reference_and_training_with_dropout_are_not_prepared_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, encoded = decoder(3, dropout=0.5), memory([4, 2, 6], 3)
    with torch.no_grad():
        assert made.train().start(encoded).table is None
        assert made.eval().start(encoded).table is not None
        monkeypatch.setenv(VARIABLE, "reference")
        assert made.start(encoded).sigmoids is None


def test_all_sentences_may_leave() -> None:
    made, nobody = decoder(3), torch.zeros(0, dtype=torch.long)
    with torch.no_grad():
        gone = made.reorder(made.start(memory([4, 2])), nobody, nobody.view(0, 2))
        step, _ = made.step(gone, nobody.view(0, 2))
    assert step.logits.shape == (0, 2, VOCABULARY)
