"""A cache that does not move equals one that copies: in steps, in searches of any pace, after failures."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from attentive import LAYERS, LIMITS, Attentive, CachedState, Copying, encoded, searches, sources, transformer
from helpers import TRANSFORMER, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from paces import PACES, Replay
from scripts import same

from caesura.data.vocabulary import BOS, EOS, UNK
from caesura.decoders.base import DECODERS
from caesura.decoders.cache import Cache
from caesura.kernels.states import grown
from caesura.search import graphs, rounds
from caesura.search.beam import beam_search
from caesura.search.forced import forced_scores
from caesura.search.greedy import greedy
from caesura.search.rounds import Pace
from caesura.search.scheduled import scheduled_inputs


def pair(vocab_size: int = 7, seed: int = 0) -> tuple[Attentive, Copying]:
    """Two decoders with the same weights."""
    cached, copying = Attentive(vocab_size, seed), Copying(vocab_size, seed)
    copying.load_state_dict(cached.state_dict())
    return cached.eval(), copying.eval()


def close(result: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@settings(max_examples=40)
@given(data=st.data(), seed=st.integers(0, 99), B=st.integers(1, 4), width=st.integers(1, 4))
def test_steps_with_any_reordering_are_those_of_a_decoder_that_copies(
    data: st.DataObject, seed: int, B: int, width: int
) -> None:
    cached, copying = pair(seed=seed)
    source = sources(B, seed)
    room = 2
    states = [cached.start(source, room), copying.start(source)]
    K = 1
    for u in range(data.draw(st.integers(1, 9))):
        if u == room:
            room += data.draw(st.integers(1, 3))
            states[0] = grown(states[0], room)
        for _ in range(data.draw(st.integers(0, 2))):
            rows = None if data.draw(st.booleans()) else [*range(B)][data.draw(st.integers(0, B - 1)) :]
            B, K_new = B if rows is None else len(rows), data.draw(st.sampled_from([K, K, width]))
            one = st.lists(st.integers(0, K - 1), min_size=K_new, max_size=K_new)
            parents = torch.tensor(data.draw(st.lists(one, min_size=B, max_size=B)))
            kept, K = None if rows is None else torch.tensor(rows), K_new
            states = [cached.reorder(state, kept, parents) for state in states]
        row = st.lists(st.integers(0, 6), min_size=K, max_size=K)
        symbols = torch.tensor(data.draw(st.lists(row, min_size=B, max_size=B)))
        (step, states[0]), (expected, states[1]) = (
            decoder.step(state, symbols) for decoder, state in zip((cached, copying), states, strict=True)
        )
        close(step.logits, expected.logits)


@torch.no_grad()
def test_steps_are_the_teacher_forced_form() -> None:
    cached, _ = pair()
    source, symbols = sources(3), torch.randint(0, 7, (3, 12), generator=torch.Generator().manual_seed(0))
    state, steps = cached.start(source, 5), []
    for u in range(12):
        step, state = cached.step(grown(state, 12) if u == 5 else state, symbols[:, u : u + 1])
        steps.append(step.logits)
    close(torch.cat(steps, 1), cached(source, symbols, torch.full((3,), 12)).logits)


@torch.no_grad()
def test_reordering_copies_no_entry_and_writes_no_old_one() -> None:
    cached, _ = pair()
    state = cached.reorder(cached.start(sources(2), 4), None, torch.zeros(2, 3, dtype=torch.long))
    _, state = cached.step(state, torch.tensor([[4, 5, 6], [6, 5, 4]]))
    moved = cached.reorder(state, None, torch.tensor([[2, 2, 0], [1, 0, 0]]))
    before = [part.clone() for part in state.cache.keys]
    _, after = cached.step(moved, torch.tensor([[4, 5, 6], [6, 5, 4]]))
    for part, kept, old in zip(after.cache.keys, state.cache.keys, before, strict=True):
        assert part is kept
        assert torch.equal(part[:, :, :, 0], old[:, :, :, 0])
        assert part[:, :, :, 1].any()
        assert not part[:, :, :, 2:].any()


@cache
def found_by_copying(seed: int) -> tuple[Attentive, list[Any]]:
    """A decoder, and the results of a search without its cache."""
    cached, copying = pair(seed=seed)
    with torch.no_grad():
        for decoder in (cached, copying):
            decoder.output.bias[EOS] -= 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: PACES["at once"])
        return cached, searches(copying, sources(len(LIMITS)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(3))
def test_searches_are_those_of_a_decoder_that_copies(pace: Pace, seed: int) -> None:
    cached, expected = found_by_copying(seed)
    assert {len(h.symbols) for pool in expected for h in pool} >= {40, 1, 3}
    for _ in range(3 if pace.graphs else 1):  # plain, recorded, replayed
        for one, other in zip(searches(cached, sources(len(LIMITS))), expected, strict=True):
            same(one, other)


MACHINES = {"attentive": (Attentive, sources), "transformer": (transformer, encoded)}


@pytest.mark.usefixtures("pace", "small")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_sentence_alone_a_beam_of_one_and_forced_scores_agree(machine: str) -> None:
    made, read = MACHINES[machine]
    decoder, source = made(7, 1).eval(), read(len(LIMITS))
    together, best = beam_search(decoder, source, LIMITS, 3), greedy(decoder, source, LIMITS)
    same([one for (one,) in beam_search(decoder, source, LIMITS, 1)], best)
    for b in range(len(LIMITS)):
        single = source.rows(slice(b, b + 1))
        same(together[b], beam_search(decoder, single, LIMITS[b : b + 1], 3)[0])
        for h in (*together[b], best[b]):
            if h.finished:
                assert forced_scores(decoder, single, [h.symbols[:-1]]) == pytest.approx([h.log_prob])


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("machine", MACHINES)
def test_a_wide_enough_beam_finds_the_best_of_all_sequences(machine: str, seed: int) -> None:
    made, read = MACHINES[machine]
    decoder, source, limit, going = made(6, seed).eval(), read(2), 3, (UNK, 4, 5)
    finished = [(*stem, EOS) for size in range(limit) for stem in product(going, repeat=size)]
    pools = beam_search(decoder, source, torch.tensor([limit] * 2), len(finished) + len(going) ** limit)
    for b, pool in enumerate(pools):
        single = source.rows(torch.full((len(finished),), b))
        scores = forced_scores(decoder, single, [symbols[:-1] for symbols in finished])
        ranks = {symbols: score / len(symbols) for symbols, score in zip(finished, scores, strict=True)}
        expected = sorted(finished, key=ranks.__getitem__, reverse=True)
        assert [h.symbols for h in pool if h.finished] == expected


def test_one_graph_serves_all_steps_of_a_size(monkeypatch: pytest.MonkeyPatch, replays: list[Replay]) -> None:
    monkeypatch.setattr(rounds, "pace", lambda _: PACES["in graphs"])
    monkeypatch.setattr(rounds, "ROOM", 24)
    cached, _ = pair()
    with torch.no_grad():
        cached.output.bias[EOS] = -1e9
    for _ in range(3):
        before = len(replays)
        greedy(cached, sources(3), torch.tensor([48, 48, 48]))
    assert len(replays) == before
    assert len(graphs._graphs[cached].graphs) == 3  # for 24, 32 and 48 symbols


@torch.no_grad()
@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_step_that_failed_halfway_can_be_taken_again(layer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, _ = pair()
    attend = Cache.attend

    def failing(cache: Cache, i: int, *rest: Any) -> Any:
        result = attend(cache, i, *rest)
        if i == layer:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    def walk(fails: bool) -> list[torch.Tensor]:
        state: CachedState = cached.start(sources(2), 6)
        state, logits = cached.reorder(state, None, torch.zeros(2, 2, dtype=torch.long)), []
        for u in range(6):
            symbols = torch.tensor([[u, 6 - u], [3, u]])
            if fails and u in (0, 3):
                with monkeypatch.context() as patch:
                    patch.setattr(Cache, "attend", failing)
                    with pytest.raises(torch.OutOfMemoryError):
                        cached.step(state, symbols.flip(1))
            step, state = cached.step(state, symbols)
            state = cached.reorder(state, None, torch.tensor([[1, 0], [0, 0]]))
            logits.append(step.logits)
        return logits

    assert all(torch.equal(*both) for both in zip(walk(True), walk(False), strict=True))


def test_scheduled_sampling_has_room_for_the_reference() -> None:
    cached, copying = pair()
    length = rounds.ROOM + 9
    reference = torch.randint(EOS + 1, 7, (2, length), generator=torch.Generator().manual_seed(0))
    reference[:, 0] = BOS
    fed = []
    for decoder in (cached, copying):
        torch.manual_seed(0)
        fed.append(scheduled_inputs(decoder, sources(2), reference, torch.tensor(0.5)))
    assert torch.equal(*fed)
    assert not torch.equal(fed[0], reference)


def test_an_empty_batch_has_no_hypotheses_and_no_entries() -> None:
    cached, _ = pair()
    nothing = torch.zeros(0, dtype=torch.long)
    assert beam_search(cached, sources(2).rows(nothing), nothing) == []
    state = cached.start(sources(2).rows(nothing))
    wide = cached.reorder(state, None, nothing.view(0, 3))
    assert wide.cache.keys[0].shape[:3] == (0, 2, 3)
    assert replace(wide, cache=wide.cache.grow(99)).cache.ancestry.shape == (0, 3, 99)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("steps", [(0, 0), (3, 1), (11, 4)])
@pytest.mark.parametrize("decoder", [{"type": "attentive"}, TRANSFORMER], ids=lambda parts: parts["type"])
def test_a_batch_that_does_not_fit_is_split_and_no_cache_is_torn(
    pace: Pace, decoder: dict[str, Any], steps: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECODERS, "attentive", Attentive)
    model = tiny_model(decoder=decoder, scale=1.0)
    with torch.no_grad():
        model.decoder.output.bias[EOS] -= 12
    texts = ["abc", "ab", "cabab", "d", "cba", "bbbb", "dada"]
    expected = [output.hypotheses for output in model.process(texts, model.searcher(3))]
    assert max(len(h.symbols) for pool in expected for h in pool) > 16
    attend, left = Cache.attend, [*steps]  # steps before memory runs out, and of the next try

    def short(cache: Cache, layer: int, *rest: Any, **named: Any) -> Any:
        result = attend(cache, layer, *rest, **named)
        if layer == LAYERS - 1 and left:  # both layers have written
            if not left[0]:
                del left[0]
                raise torch.OutOfMemoryError("CUDA out of memory")
            left[0] -= 1
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Cache, "attend", short)
        outputs = model.process(texts, model.searcher(3))
    assert not left
    for _ in range(2 + pace.graphs):  # the next search finds nothing of it
        for output, pool in zip(outputs, expected, strict=True):
            same(output.hypotheses, pool)
        outputs = model.process(texts, model.searcher(3))
