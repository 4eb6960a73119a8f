"""ActSegmenter whose halting unno score gets a gradient: k symbols per segment, and all else as it was."""

import math
from itertools import pairwise

import pytest
import torch
from helpers import ACT, RECURRENT, close, make_config, ragged, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.inference import Translator
from caesura.kernels import VARIABLE
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.act_listing import act_enc

LARGEST = 64  # k
VOCABULARY = 9


def fixed(k: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> ActSegmenter:
    torch.manual_seed(seed)
    bias = math.log(1 / (k - 1)) if k > 1 else 20.0
    return ActSegmenter(VOCABULARY, 4, 5, 3, halting_bias=bias, learn_halting=False).to(dtype)


def every(k: int, n: int) -> list[bool]:
    """Where sentences of n symbols end their segments."""
    return [t % k == 0 or t == n for t in range(1, n + 1)]


@pytest.mark.parametrize("choice", ["reference", "fused"])
@settings(max_examples=20)
@given(
    k=st.integers(1, LARGEST),
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_segments_have_k_symbols_whatever_is_read(choice: str, k: int, lengths: list[int], seed: int) -> None:
    symbols, sizes = ragged(lengths, VOCABULARY, torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv(VARIABLE, choice)
        segments = fixed(k, seed=seed)(symbols, sizes)
    for b, n in enumerate(lengths):
        assert segments.ends[b].tolist() == every(k, n) + [False] * (symbols.shape[1] - n)
        shares = [1 / k] * n
        shares[-1] = 1 - ((n - 1) % k) / k  # all that is left, which in a whole segment is 1 / k
        close(segments.weights[b, :n], torch.tensor(shares), 1e-5, "weights")


@torch.no_grad()
@pytest.mark.parametrize("choice", ["reference", "fused"])
def test_no_k_is_rounded_away(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    for k in range(1, LARGEST + 1):
        n = 2 * k + 1
        assert fixed(k)(torch.zeros(1, n, dtype=torch.long), [n]).ends[0].tolist() == every(k, n), k


@torch.no_grad()
@pytest.mark.parametrize("k", [1, 2, 3, 7, 49, LARGEST])
def test_the_listing_cuts_alike_and_its_vectors_are_plain_means(k: int) -> None:
    layer = fixed(k)
    symbols, lengths = ragged([2 * k], VOCABULARY, torch.Generator().manual_seed(k))
    listing, segments = act_enc(layer, symbols[0]), layer(symbols, lengths)
    assert listing.ends == segments.ends[0].tolist() == every(k, 2 * k)
    s, means = torch.zeros(1, 5), []
    for a, b in pairwise([0, k, 2 * k]):
        states: list[Tensor] = []
        for x in symbols[0, a:b]:
            s = layer.cell(layer.embedding(x)[None], s)
            states.append(s)
        s = torch.stack(states).mean(0)
        means.append(layer.output(s))
    for vectors in (listing.vectors, segments.vectors[0]):
        close(vectors, torch.cat(means), 1e-5)


@pytest.mark.parametrize("choice", ["reference", "fused"])
def test_what_learns_has_the_gradients_of_the_listing(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    layer = fixed(3, torch.float64)
    learning = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    assert {name for name, _ in layer.named_parameters()} - learning.keys() == {
        "halting.weight",
        "halting.bias",
    }
    symbols, lengths = ragged([8, 1, 6], VOCABULARY, torch.Generator().manual_seed(1))
    segments = layer(symbols, lengths)
    (segments.vectors.square().sum() + segments.penalty.sum()).backward()  # the penalty moves nothing
    rows = [act_enc(layer, row[:n]).vectors for row, n in zip(symbols, lengths, strict=True)]
    expected = torch.autograd.grad(sum(row.square().sum() for row in rows), [*learning.values()])
    for (name, parameter), gradient in zip(learning.items(), expected, strict=True):
        assert parameter.grad is not None
        close(parameter.grad, gradient, what=name)
    assert layer.halting.weight.grad is None
    assert layer.halting.bias.grad is None


def test_all_other_weights_are_those_that_the_seed_gives_a_unit_that_learns() -> None:
    built = []
    for learns in (True, False):
        torch.manual_seed(3)
        config = make_config(ACT | {"learn_halting": learns, "tau": 0.0}, {"hidden_size": 3}, RECURRENT)
        built.append(Translator.build(config, vocabulary(12), vocabulary(9)))
    learnt, kept = (model.state_dict() for model in built)
    assert [*learnt] == [*kept]
    assert {name for name in learnt if not learnt[name].equal(kept[name])} == {"segmenter.halting.weight"}
    assert not kept["segmenter.halting.weight"].any()
    assert built[0].parameter_count() - built[1].parameter_count() == ACT["act_size"] + 1


@pytest.mark.parametrize("bias", [math.nan, math.inf, -math.inf])
def test_a_bias_that_is_not_finite_is_refused(bias: float) -> None:
    with refuses(ValueError, "halting_bias ", bias):
        ActSegmenter(VOCABULARY, 4, 5, 3, halting_bias=bias)


def test_a_layer_tells_how_it_was_made() -> None:
    assert "ActSegmenter(\n  epsilon=0.01\n  (embedding)" in repr(ActSegmenter(VOCABULARY, 4, 5, 3))
    made = ActSegmenter(VOCABULARY, 4, 5, 3, epsilon=0.2, learn_halting=False, cut_after=[5, 3])
    assert made.extra_repr() == "epsilon=0.2, learn_halting=False, cut_after=[5, 3]"
