"""Pieces of a search as graphs: the logic on the CPU, where a piece that runs again stands for a graph."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from helpers import sentences, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from paces import PACES, Replay, Side
from scripts import SCRIPT, Script, encoded, table
from torch import Tensor

from caesura.data.batching import collate, rounded
from caesura.data.vocabulary import EOS
from caesura.inference import Translator
from caesura.kernels import graphs as kernels
from caesura.search import graphs, rounds
from caesura.search.beam import beam_search
from caesura.search.graphs import SearchGraphs, borrow
from caesura.search.greedy import greedy
from caesura.search.hypothesis import Hypothesis
from caesura.search.rounds import Pace

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _captured(replays: list[Replay]) -> Iterator[None]:
    replays.clear()
    graphs._graphs.clear()
    yield
    graphs._graphs.clear()


@dataclass(frozen=True)
class Pair:
    """Two tensors and what is none."""

    one: Tensor
    other: Tensor
    name: str = ""


def swap(pair: Pair) -> tuple[Pair, Tensor]:
    """A piece whose results are its arguments, crosswise, and a view of one."""
    return Pair(pair.other, pair.one), pair.one[:1]


def grow(pair: Pair) -> tuple[Pair, Tensor]:
    """A piece that leaves one argument as it is and turns the other into float64."""
    return replace(pair, one=pair.one.double() + 1), pair.other.sum()


def leaves(tree: Any) -> list[Tensor]:
    return [leaf.clone() for leaf in graphs._leaves(tree)]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("piece", [swap, grow])
def test_a_piece_played_again_and_again_does_what_it_does(
    piece: Any, inference: bool, replays: list[Replay]
) -> None:
    with borrow(SCRIPT, CPU) as play:
        for size in (2, 2, 3, 2, 3, 3):
            played = plain = Pair(torch.rand(size), torch.rand(size))
            for turn in range(5):
                with torch.inference_mode(inference and turn % 2 == 1):
                    (played, extra), (plain, expected) = play("", piece, (played,)), piece(plain)
                for result, reference in zip(leaves((played, extra)), leaves((plain, expected)), strict=True):
                    assert torch.equal(result, reference)
                    assert result.dtype == reference.dtype
                if piece is swap and turn % 2:  # the caller does it too
                    played, plain = Pair(played.other, played.one), Pair(plain.other, plain.one)
    # Two sizes, of one dtype or of two; if a buffer grows, earlier pieces are forgotten.
    assert len(replays) == (3 if piece is swap else 4)


def test_a_view_that_begins_where_its_buffer_does_is_copied_all_the_same() -> None:
    def add(pair: Pair) -> tuple[Pair]:
        return (replace(pair, other=pair.other + pair.one[0]),)

    with borrow(SCRIPT, CPU) as play:
        plain = played = Pair(torch.rand(3, 3), torch.rand(3))
        for _ in range(5):
            (played,), (plain,) = play("", add, (played,)), add(plain)
            assert torch.equal(played.other, plain.other)
            played, plain = (replace(pair, one=pair.one.T) for pair in (played, plain))


def test_constants_of_a_state_and_names_of_pieces_have_graphs_of_their_own(replays: list[Replay]) -> None:
    recorder = SearchGraphs(CPU)
    for name, constant in (("a", "x"), ("a", "y"), ("b", "y")):
        for _ in range(3):
            pair = Pair(torch.zeros(2), torch.zeros(2), constant)
            ((grown, _),) = (recorder.play(name, grow, (pair,)),)
            assert grown.name == constant
    assert len(replays) == 3


def test_the_graphs_of_the_shapes_seen_last_are_kept(
    monkeypatch: pytest.MonkeyPatch, replays: list[Replay]
) -> None:
    monkeypatch.setattr(kernels, "MOST", 3)
    recorder = SearchGraphs(CPU)

    def play(size: int) -> None:
        recorder.play("", grow, (Pair(torch.zeros(size), torch.zeros(size)),))

    for size in (9, 9, 1, 1, 2, 2, 9, 3, 3):
        play(size)
    assert len(replays) == 4
    play(9)
    play(2)
    assert len(replays) == 4
    play(1)
    play(1)
    assert len(replays) == 5
    assert len(recorder.graphs) == 3


def test_what_is_too_large_for_the_buffers_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, replays: list[Replay]
) -> None:
    monkeypatch.setattr(graphs, "LARGEST", 100 / Side.memory)
    recorder, large = SearchGraphs(CPU), Pair(torch.ones(30), torch.ones(30))
    for _ in range(3):
        (grown, _) = recorder.play("", grow, (large,))
        assert torch.equal(grown.one, torch.full((30,), 2.0, dtype=torch.float64))
    assert not replays


def test_two_searches_at_a_time_do_not_share_buffers(replays: list[Replay]) -> None:
    with borrow(SCRIPT, CPU) as first, borrow(SCRIPT, CPU) as second:
        for _ in range(3):
            second("", grow, (Pair(torch.zeros(2), torch.zeros(2)),))
        assert not replays
        for _ in range(3):
            first("", grow, (Pair(torch.zeros(2), torch.zeros(2)),))
        assert len(replays) == 1


def test_graphs_go_with_their_decoder() -> None:
    script = Script()
    with borrow(script, CPU):
        assert len(graphs._graphs) == 1
    del script
    gc.collect()
    assert len(graphs._graphs) == 0


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
def test_finished_sentences_leave(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "pace", lambda _: pace)
    sizes: list[int] = []

    class Watched(Script):
        def step(self, state: Any, symbols: Tensor) -> Any:
            sizes.append(len(symbols))
            return super().step(state, symbols)

    tables, limits = table(40, seed=1), torch.arange(1, 41)
    tables[..., EOS] = -torch.inf
    hypotheses = beam_search(Watched(), encoded(tables), limits, beam=2)
    assert [len(h.symbols) for pool in hypotheses for h in pool] == [
        n for n in limits.tolist() for _ in range(2)
    ]
    steps = range(40) if pace.round == 1 else range(-(-40 // pace.stretch) * pace.stretch)
    alive = [40 - step // pace.round * pace.round for step in steps]  # at the last look
    if not pace.graphs:
        assert sizes == alive
    else:  # less what was only replayed
        assert {*sizes} == {40, 32, 24, 16, 8}


def test_padding_is_done_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "pace", lambda _: PACES["in graphs"])
    sizes: list[int] = []

    class Watched(Script):
        def step(self, state: Any, symbols: Tensor) -> Any:
            sizes.append(len(symbols))
            return super().step(state, symbols)

    tables, limits = table(1030, seed=2), torch.ones(1030, dtype=torch.long)
    tables[..., EOS], limits[0] = -torch.inf, 20
    assert [len(h.symbols) for h in greedy(Watched(), encoded(tables), limits)] == limits.tolist()
    assert {*sizes} == {1152, 8}


@settings(max_examples=15)
@given(seed=st.integers(0, 999), count=st.integers(1, 70), limit=st.integers(1, 30))
def test_padding_is_an_eighth_at_most_and_nobody_sees_it(seed: int, count: int, limit: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = int(torch.randint(1, 5000, (1,), generator=generator))
    for parts in (8, rounds.SMALLER):
        assert size <= rounded(size, parts) < size + max(8, size / parts)
        assert rounded(rounded(size, parts), parts) == rounded(size, parts)
    tables = table(count, seed)
    limits = torch.randint(1, limit + 1, (count,), generator=generator)
    plain = greedy(SCRIPT, encoded(tables), limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: PACES["in graphs"])
        assert greedy(SCRIPT, encoded(tables), limits) == plain


def searched(model: Translator, texts: list[list[int]]) -> list[list[Hypothesis]]:
    batch = collate([(text, None) for text in texts]).to(model.device)
    limits = torch.arange(len(texts), device=model.device) * 3 % 40 + 1
    with torch.no_grad():
        memory = model.encode(batch.src, batch.src_lengths)[1]
    return [*beam_search(model.decoder, memory, limits, 3), greedy(model.decoder, memory, limits)]


def test_graphs_follow_the_weights(monkeypatch: pytest.MonkeyPatch, replays: list[Replay]) -> None:
    model, texts, seen = tiny_model(), sentences(9, seed=3), set()
    with torch.no_grad():
        model.decoder.output.bias[EOS] = -1e9  # the limits decide, and so do they on shapes

    def move(parameter: Tensor) -> None:
        parameter.set_((parameter * 1.3).data)

    for change, again in ((Tensor.zero_, True), (Tensor.normal_, False), (move, True)):
        with torch.no_grad():
            for parameter in (model.decoder.output.weight, model.decoder.embedding.weight):
                change(parameter)
        before = len(replays)
        with monkeypatch.context() as patch:
            patch.setattr(rounds, "pace", lambda _: PACES["in graphs"])
            searched(model, texts)
            hypotheses = searched(model, texts)
        assert (len(replays) > before) == again  # what lies elsewhere
        expected = searched(model, texts)
        for one, other in zip(hypotheses, expected, strict=True):
            assert [h.symbols for h in one] == [h.symbols for h in other]
        seen.add(str(hypotheses))
    assert len(seen) == 3
