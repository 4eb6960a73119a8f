"""Greedy, beam and sampling over any decoder: batch = alone, beam 1 = greedy, score = rescore."""

import math
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, TRANSFORMER, encode, score_targets, sentences, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import SCRIPT, chances, encoded, same, table
from torch import Tensor
from wording import refuses

from caesura.data.vocabulary import BOS, EOS, PAD, UNK
from caesura.inference import Translator
from caesura.search import rounds
from caesura.search.beam import beam_search
from caesura.search.greedy import greedy
from caesura.search.hypothesis import length_penalty
from caesura.search.rounds import Pace
from caesura.search.sampling import sample

pytestmark = pytest.mark.usefixtures("pace")

MODELS = [
    pytest.param(tiny_model(LOOKUP, seed=3), id="lookup"),
    pytest.param(tiny_model(ACT, seed=4), id="act"),
    pytest.param(tiny_model(LOOKUP, seed=3, decoder=ACT_DECODER), id="ACT-DEC"),
    pytest.param(
        tiny_model(ACT, seed=4, decoder=ACT_DECODER | {"feed_context": True}), id="ACT-DEC, context fed"
    ),
    pytest.param(
        tiny_model(ACT, seed=11, scale=1.0, encoder=TRANSFORMER, decoder=TRANSFORMER), id="transformer"
    ),
]
SENTENCES = sentences(12, seed=5)
LIMITS = torch.tensor([15, 1, 4, 15, 2, 15, 15, 7, 3, 15, 15, 9])  # [B]


def log_prob(script: Tensor, symbols: tuple[int, ...]) -> float:
    return sum(float(logs[y]) for logs, y in zip(chances(script, symbols), symbols, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_a_beam_of_one_is_greedy_search(model: Translator) -> None:
    source = encode(model, SENTENCES)
    hypotheses = greedy(model.decoder, source, LIMITS)
    assert {h.finished for h in hypotheses} == {True, False}
    same([one for (one,) in beam_search(model.decoder, source, LIMITS, beam=1)], hypotheses)


@settings(max_examples=20)
@given(seed=st.integers(0, 9999), count=st.integers(1, 5), limit=st.integers(1, 8), spread=st.floats(0.5, 4))
def test_a_beam_of_one_is_greedy_search_with_any_decoder(
    seed: int, count: int, limit: int, spread: float
) -> None:
    tables, limits = table(count, seed, spread=spread), torch.full((count,), limit)
    hypotheses = [one for (one,) in beam_search(SCRIPT, encoded(tables), limits, beam=1)]
    same(hypotheses, greedy(SCRIPT, encoded(tables), limits))


@pytest.mark.parametrize("model", MODELS)
def test_a_sentence_translates_the_same_alone_and_in_company(model: Translator) -> None:
    source, decoder, seeds = encode(model, SENTENCES), model.decoder, [*range(len(SENTENCES))]
    together = (
        [[h] for h in greedy(decoder, source, LIMITS)],
        beam_search(decoder, source, LIMITS, beam=5),
        [[h] for h in sample(decoder, source, LIMITS, seeds)],
    )
    assert len({h.symbols for pool in together[1] for h in pool}) > len(SENTENCES)
    for b, sentence in list(enumerate(SENTENCES))[1::2]:
        single, limit = encode(model, [sentence]), LIMITS[b : b + 1]
        same(together[0][b], greedy(decoder, single, limit))
        same(together[1][b], beam_search(decoder, single, limit, beam=5)[0])
        same(together[2][b], sample(decoder, single, limit, seeds[b : b + 1]))


@pytest.mark.parametrize("model", MODELS)
def test_the_score_of_a_hypothesis_is_what_forced_rescoring_gives_it(model: Translator) -> None:
    source, seeds = encode(model, SENTENCES), [*range(len(SENTENCES))]
    searches = (
        beam_search(model.decoder, source, LIMITS, beam=4),
        [[h] for h in greedy(model.decoder, source, LIMITS)],
        [[h] for h in sample(model.decoder, source, LIMITS, seeds, temperature=0.7)],
    )
    for hypotheses in searches:
        assert {h.finished for pool in hypotheses for h in pool} == {True, False}
    for sentence, *pools in zip(SENTENCES, *searches, strict=True):
        pool = [h for group in pools for h in group]
        # All hypotheses of the sentence as one padded batch [B, U].
        lengths = torch.tensor([len(h.symbols) for h in pool])
        targets = torch.full((len(pool), int(lengths.max())), PAD)
        for row, h in zip(targets, pool, strict=True):
            row[: len(h.symbols)] = torch.tensor(h.symbols)
        rescored = score_targets(model.decoder, encode(model, [sentence] * len(pool)), targets, lengths)
        assert rescored.tolist() == pytest.approx([h.log_prob for h in pool], abs=1e-9, rel=0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 9999),
    limits=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    beam=st.integers(1, 9),
    spread=st.floats(0.5, 4),
)
def test_hypotheses_keep_the_limit_and_are_sorted_distinct_and_free_of_specials(
    seed: int, limits: list[int], beam: int, spread: float
) -> None:
    tables, bounds = table(len(limits), seed, spread=spread), torch.tensor(limits)
    pools = beam_search(SCRIPT, encoded(tables), bounds, beam)
    walks = [
        greedy(SCRIPT, encoded(tables), bounds),
        sample(SCRIPT, encoded(tables), bounds, [seed] * len(limits)),
    ]
    for b, (pool, limit) in enumerate(zip(pools, limits, strict=True)):
        assert 1 <= len(pool) <= beam
        assert len({h.symbols for h in pool}) == len(pool)
        ranks = [(h.finished, h.score) for h in pool]
        assert ranks == sorted(ranks, reverse=True)
        for h in [*pool, *(walk[b] for walk in walks)]:
            assert len(h.symbols) == limit if not h.finished else 1 <= len(h.symbols) <= limit
            assert not {PAD, BOS} & {*h.symbols}
            assert EOS not in h.symbols[:-1]
            assert h.log_prob == pytest.approx(log_prob(tables[b], h.symbols), abs=1e-9)
            assert h.score == pytest.approx(h.log_prob / len(h.symbols))


def test_pad_and_bos_are_never_written_however_probable() -> None:
    tables = table(3, seed=0)
    tables[..., [PAD, BOS]] += 50
    limits = torch.full((3,), 5)
    hypotheses = beam_search(SCRIPT, encoded(tables), limits, beam=3)
    written = {y for pool in hypotheses for h in pool for y in h.symbols}
    written |= {y for h in greedy(SCRIPT, encoded(tables), limits) for y in h.symbols}
    written |= {y for h in sample(SCRIPT, encoded(tables), limits, [1, 2, 3]) for y in h.symbols}
    assert written <= {UNK, EOS, 4, 5}


@settings(max_examples=12)
@given(seed=st.integers(0, 9999), alpha=st.sampled_from([0.0, 0.6, 1.0]), beta=st.sampled_from([0.0, 5.0]))
def test_a_wide_enough_beam_finds_the_best_of_all_sequences(seed: int, alpha: float, beta: float) -> None:
    limit, going = 3, (UNK, 4, 5)
    tables = table(2, seed)
    finished = [(*stem, EOS) for size in range(limit) for stem in product(going, repeat=size)]
    opened = [*product(going, repeat=limit)]
    pools = beam_search(
        SCRIPT,
        encoded(tables),
        torch.tensor([limit, limit]),
        len(finished) + len(opened),
        alpha=alpha,
        beta=beta,
    )
    for script, pool in zip(tables, pools, strict=True):

        def rank(symbols: tuple[int, ...], script: Tensor = script) -> float:
            return log_prob(script, symbols) / ((beta + len(symbols)) / (beta + 1)) ** alpha

        ranked = [sorted(group, key=rank, reverse=True) for group in (finished, opened)]
        assert [h.symbols for h in pool] == ranked[0] + ranked[1]
        assert pool[0].score == pytest.approx(rank(ranked[0][0]))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wider_beam_finds_no_worse_hypotheses_on_average(alpha: float) -> None:
    tables, limits = table(200, seed=1, vocab_size=9, memory=11, spread=2.0), torch.full((200,), 40)
    tables[..., EOS] += 4.0
    best = [
        [pool[0] for pool in beam_search(SCRIPT, encoded(tables), limits, beam, alpha=alpha)]
        for beam in (1, 2, 4, 8)
    ]
    # A hypothesis that the limit cut off ranks below finished ones whatever its score: leave those out.
    ended = [group for group in zip(*best, strict=True) if all(h.finished for h in group)]
    assert len(ended) > 180
    means = [sum(h.score for h in group) / len(ended) for group in zip(*ended, strict=True)]
    assert means == sorted(means)
    assert means[0] < means[-1]


@pytest.mark.parametrize(
    ("length", "alpha", "beta", "expected"),
    [(7, 1.0, 0.0, 7.0), (7, 0.0, 3.0, 1.0), (7, 0.6, 5.0, 2.0**0.6), (1, 0.9, 5.0, 1.0), (4, 0.5, 0.0, 2.0)],
)
def test_the_length_penalty_is_the_formula(length: int, alpha: float, beta: float, expected: float) -> None:
    assert length_penalty(length, alpha, beta) == pytest.approx(expected)


@pytest.mark.parametrize(("alpha", "best"), [(0.0, (EOS,)), (1.0, (4, EOS))])
def test_alpha_decides_between_a_short_and_a_long_hypothesis(alpha: float, best: tuple[int, ...]) -> None:
    # log P: -0.7 for </s> at once (p = 0.5); -0.8 for the symbol 4 (0.45) and then </s> (0.999), -0.4 each.
    first, then = [0.0, 0.05, 0.0, 0.5, 0.45], [0.0, 0.0005, 0.0, 0.999, 0.0005]
    script = torch.tensor([[then, then, first, then, then, then, then]], dtype=torch.float64).log()
    pool = beam_search(SCRIPT, encoded(script), torch.tensor([5]), beam=2, alpha=alpha)[0]
    assert pool[0].symbols == best


def test_the_same_seed_gives_the_same_sample_and_others_give_others() -> None:
    tables, limits = table(1, seed=2).expand(60, -1, -1), torch.full((60,), 6)
    once = sample(SCRIPT, encoded(tables), limits, [*range(60)])
    assert sample(SCRIPT, encoded(tables), limits, [*range(60)]) == once
    assert len({h.symbols for h in once}) > 10
    assert len({h.symbols for h in sample(SCRIPT, encoded(tables), limits, [7] * 60)}) == 1


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_samples_are_as_frequent_as_the_model_says(temperature: float) -> None:
    count, script = 6000, table(1, seed=4, spread=0.4)
    hypotheses = sample(
        SCRIPT,
        encoded(script.expand(count, -1, -1)),
        torch.full((count,), 2),
        [*range(count)],
        temperature=temperature,
    )
    going = (UNK, 4, 5)
    everything = [(EOS,), *((a, b) for a in going for b in (*going, EOS))]
    statistic, total = 0.0, 0.0
    for symbols in everything:
        chance = 1.0
        for logs, y in zip(chances(script[0], symbols), symbols, strict=True):
            kept = (logs / temperature).exp()
            kept[[PAD, BOS]] = 0
            chance *= float(kept[y] / kept.sum())
        seen = sum(h.symbols == symbols for h in hypotheses)
        statistic += (seen - count * chance) ** 2 / (count * chance)
        total += chance
        assert count * chance > 5  # or chi-square would say nothing
    assert math.isclose(total, 1.0)
    assert statistic < 32.9  # chi-square with 12 degrees of freedom: 1 in 1000 is above


def test_a_low_temperature_is_greedy_search() -> None:
    tables, limits = table(20, seed=6), torch.full((20,), 6)
    cold = sample(SCRIPT, encoded(tables), limits, [*range(20)], temperature=1e-4)
    assert [h.symbols for h in cold] == [h.symbols for h in greedy(SCRIPT, encoded(tables), limits)]


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_temperature_zero_points_to_greedy_search(temperature: float) -> None:
    with refuses(ValueError, "temperature ", "greedy"):
        sample(SCRIPT, encoded(table(1, 0)), torch.tensor([3]), [0], temperature=temperature)


def test_a_beam_of_nothing_is_refused() -> None:
    with refuses(ValueError, "beam "):
        beam_search(SCRIPT, encoded(table(1, 0)), torch.tensor([3]), beam=0)


def test_a_search_asks_for_start_step_and_reorder_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "pace", lambda _: Pace(1, 1, False))  # graphs want a module
    tables, limits = table(3, seed=8), torch.tensor([9, 5, 9])
    bare = SimpleNamespace(start=SCRIPT.start, step=SCRIPT.step, reorder=SCRIPT.reorder)
    assert greedy(bare, encoded(tables), limits) == greedy(SCRIPT, encoded(tables), limits)
    assert beam_search(bare, encoded(tables), limits) == beam_search(SCRIPT, encoded(tables), limits)


@pytest.mark.parametrize("limits", [[0, 0], [0, 4]])
def test_a_limit_of_nothing_gives_a_hypothesis_without_symbols(limits: list[int]) -> None:
    tables, sizes = table(2, seed=3), torch.tensor(limits)
    searches = {
        "greedy": greedy(SCRIPT, encoded(tables), sizes),
        "beam": [pool[0] for pool in beam_search(SCRIPT, encoded(tables), sizes, beam=3)],
        "sampling": sample(SCRIPT, encoded(tables), sizes, [0, 1]),
    }
    for name, hypotheses in searches.items():
        assert len(hypotheses) == 2, name
        for hypothesis, limit in zip(hypotheses, limits, strict=True):
            assert len(hypothesis.symbols) <= limit, name
            assert bool(hypothesis.symbols) == bool(limit), name
            assert math.isfinite(hypothesis.score), name
        assert (hypotheses[0].log_prob, hypotheses[0].score, hypotheses[0].finished) == (0.0, 0.0, False), (
            name
        )


def test_an_empty_batch_has_no_hypotheses() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert greedy(SCRIPT, encoded(table(0, 0)), nothing) == []
    assert beam_search(SCRIPT, encoded(table(0, 0)), nothing) == []
    assert sample(SCRIPT, encoded(table(0, 0)), nothing, []) == []
