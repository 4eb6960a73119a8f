"""ActSegmenter with symbols after which a segment ends: there, and else as without them."""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from combinations import VOCABULARY
from combinations import act_layer as layer
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.kernels import VARIABLE
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.act_listing import act_enc

EXAMPLES = given(
    seed=st.integers(0, 999),
    bias=st.sampled_from([-9.0, -1.0, 0.0, 9.0]),
    cut_after=st.lists(st.integers(0, VOCABULARY - 1), max_size=4),
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=4),
)
CHOICES = pytest.mark.parametrize("choice", ["reference", "fused"])


@pytest.mark.parametrize("vocab_size", [VOCABULARY, 500])  # input projections by table, and one per symbol
@CHOICES
@settings(max_examples=30)
@EXAMPLES
def test_it_is_the_listing_in_outputs_and_in_every_gradient(
    choice: str, vocab_size: int, seed: int, bias: float, cut_after: list[int], lengths: list[int]
) -> None:
    made = layer(seed, bias, cut_after=cut_after, vocab_size=vocab_size)
    generator = torch.Generator().manual_seed(seed)
    symbols, sizes = ragged(lengths, VOCABULARY, generator)  # padding too has symbols of cut_after
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, choice)
        segments = made(symbols, sizes)
    rows = [act_enc(made, row[:n]) for row, n in zip(symbols, lengths, strict=True)]
    probe = torch.randn(segments.vectors.shape, generator=generator, dtype=torch.float64)
    for b, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        assert segments.ends[b].tolist() == row.ends + [False] * (symbols.shape[1] - n)
        assert all(end for end, x in zip(row.ends, symbols[b].tolist(), strict=False) if x in cut_after)
        close(segments.vectors[b, : sum(row.ends)], row.vectors, what="vectors")
        close(segments.weights[b, :n], row.weights, what="weights")
    close(segments.penalty, torch.stack([row.penalty for row in rows]), what="penalty")
    names, parameters = zip(*made.named_parameters(), strict=True)
    actual = torch.autograd.grad((segments.vectors * probe).sum() + segments.penalty.sum(), parameters)
    literal = sum((r.vectors * probe[b, : sum(r.ends)]).sum() + r.penalty for b, r in enumerate(rows))
    expected = torch.autograd.grad(literal, parameters, allow_unused=True, materialize_grads=True)
    for name, ours, theirs in zip(names, actual, expected, strict=True):
        close(ours, theirs, 1e-8, name)


@CHOICES
@torch.no_grad()
@settings(max_examples=20)
@EXAMPLES
def test_a_sentence_in_pieces_is_cut_as_the_whole(
    choice: str, seed: int, bias: float, cut_after: list[int], lengths: list[int]
) -> None:
    made = layer(seed, bias, cut_after=cut_after)
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, choice)
        together = made(symbols, sizes)
        for b, n in enumerate(lengths):
            alone, middle, ends, vectors = made(symbols[b : b + 1, :n], [n]), n // 2, [], []
            first = made(symbols[b : b + 1, :middle], [middle], final=False)
            for part in (first, made(symbols[b : b + 1, middle:n], [n - middle], first.state)):
                ends += part.ends[0].tolist()
                vectors.append(part.vectors[0, : part.lengths[0]])
            assert ends == alone.ends[0].tolist() == together.ends[b, :n].tolist()
            close(torch.cat(vectors), alone.vectors[0], what="in pieces")
            close(together.vectors[b, : together.lengths[b]], alone.vectors[0], what="together")
            close(part.penalty, alone.penalty, what="penalty")


@CHOICES
@settings(max_examples=20)
@EXAMPLES
def test_no_symbol_that_must_end_a_segment_has_a_halting_gradient(
    choice: str, seed: int, bias: float, cut_after: list[int], lengths: list[int]
) -> None:
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    every = [*range(VOCABULARY)]
    for chosen in (every, cut_after):
        made = layer(seed, bias, cut_after=chosen)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, choice)
            segments = made(symbols, sizes)
        (segments.vectors.square().sum() + segments.penalty.sum()).backward()
        assert made.halting.bias.grad is not None
        inside = [not end for b, n in enumerate(lengths) for end in segments.ends[b, :n].tolist()]
        assert not (chosen is every and any(inside))
        # The penalty alone gives a gradient to every score that ends nothing, however small.
        assert bool(made.halting.bias.grad.any()) == any(inside)


@CHOICES
@torch.no_grad()
def test_a_unit_that_never_halts_leaves_the_words_and_their_last_states(
    choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    torch.manual_seed(0)
    made = ActSegmenter(9, 4, 5, 3, halting_bias=-20.0, learn_halting=False, cut_after=[4])
    text = [5, 6, 7, 4, 8, 4, 4, 5, 5, 5, 5, 4, 6, 7]
    segments = made(torch.tensor([text]), [len(text)])
    assert segments.ends[0].nonzero().squeeze(1).tolist() == [3, 5, 6, 11, 13]
    s, states = torch.zeros(1, 5), []
    for t, x in enumerate(text):
        s = made.cell(made.embedding(torch.tensor([x])), s)
        if segments.ends[0, t]:
            states.append(s)
    close(segments.vectors[0], made.output(torch.cat(states)), 1e-5)


def test_without_symbols_and_with_them_twice_it_is_the_same_layer() -> None:
    symbols, sizes = ragged([9, 14], VOCABULARY, torch.Generator().manual_seed(1))
    for one, other in (([], []), ([3, 5], [5, 3, 3])):
        first, second = (layer(2, 0.0, cut_after=given)(symbols, sizes) for given in (one, other))
        assert first.ends.equal(second.ends)
    plain = ActSegmenter(VOCABULARY, 4, 5, 3)
    assert plain.cut_after == ()
    assert plain.state_dict().keys() == layer(0, 0.0, cut_after=[3]).state_dict().keys()


@pytest.mark.parametrize("assign", [True, False], ids=["assigned", "copied"])
def test_a_layer_without_memory_cuts_the_same_once_it_has_weights(assign: bool) -> None:
    made = layer(0, -9.0, cut_after=[3, 5]).float()
    with torch.device("meta"):
        built = ActSegmenter(VOCABULARY, 4, 5, 3, cut_after=[3, 5])
    if not assign:
        built.to_empty(device="cpu")
    built.load_state_dict(made.state_dict(), assign=assign)
    symbols = torch.tensor([[3, 1, 5, 3, 1, 2]])
    for one in (made, built, copy.deepcopy(built), built.double()):
        assert one(symbols, [6]).ends[0].tolist() == [True, False, True, True, False, True]


@pytest.mark.parametrize(
    "ids", [(3, 5), range(3, 6, 2), torch.tensor([3, 5]), np.array([3, 5]), iter([3, 5])], ids=type
)
def test_ids_may_be_any_whole_numbers(ids: Iterable[int]) -> None:
    assert ActSegmenter(VOCABULARY, 4, 5, 3, cut_after=ids).cut_after == (3, 5)


NO_IDS = [3, None, [2.5], [3.0], ["a"], [None], [[3]], torch.tensor(3), torch.tensor([3.0]), np.ones((2, 2))]


@pytest.mark.parametrize("wrong", [" ", "", *NO_IDS])
def test_what_are_no_ids_is_refused(wrong: Any) -> None:
    with refuses(TypeError, "cut_after "):
        ActSegmenter(VOCABULARY, 4, 5, 3, cut_after=wrong)


@pytest.mark.parametrize("wrong", [-1, VOCABULARY])
def test_an_id_that_is_no_symbol_is_refused(wrong: int) -> None:
    with refuses(ValueError, "cut_after ", wrong):
        ActSegmenter(VOCABULARY, 4, 5, 3, cut_after=[2, wrong])
