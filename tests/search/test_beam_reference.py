"""Beam search on tensors is the loop that anyone would write for one sentence."""

import struct
from typing import Any

import pytest
import torch
from helpers import ACT, LOOKUP, sentences, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import SCRIPT, encoded, same, table

from caesura.data.batching import collate
from caesura.data.vocabulary import BOS, EOS, PAD
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search import beam as beams
from caesura.search.beam import beam_search
from caesura.search.hypothesis import Hypothesis, length_penalty, log_probs

pytestmark = pytest.mark.usefixtures("pace")


class Pool:
    """The hypotheses that one sentence has closed: at most `beam`, best first."""

    def __init__(self, beam: int, alpha: float, beta: float) -> None:
        self.beam, self.alpha, self.beta = beam, alpha, beta
        self.hypotheses: list[Hypothesis] = []

    def score(self, log_prob: float, length: int) -> float:
        return log_prob / length_penalty(length, self.alpha, self.beta)

    def add(self, symbols: list[int], log_prob: float) -> None:
        self.hypotheses.append(Hypothesis(tuple(symbols), log_prob, self.score(log_prob, len(symbols))))
        self.hypotheses.sort(key=lambda h: (h.finished, h.score), reverse=True)
        del self.hypotheses[self.beam :]


def size_of(total: float, bits: int) -> int:
    """How large a number is that is not positive, as an integer, without its last bits."""
    return struct.unpack("<q", struct.pack("<d", abs(total)))[0] >> bits


def reference(
    decoder: Decoder[Any], source: Encoded, limit: int, beam: int, alpha: float, beta: float
) -> list[Hypothesis]:
    """The hypotheses of one sentence, by lists."""
    pool = Pool(beam, alpha, beta)
    texts: list[list[int]] = [[]]
    totals, state = [0.0], decoder.start(source)
    for length in range(1, limit + 1):
        newest = torch.tensor([[text[-1] if text else BOS for text in texts]])
        step, state = decoder.step(state, newest)
        scores = torch.tensor(totals, dtype=torch.float64)[:, None] + log_probs(step.logits)[0]
        flat, vocab_size = scores.flatten().tolist(), scores.shape[1]
        bits = (beam * vocab_size - 1).bit_length()
        ranked = sorted(range(len(flat)), key=lambda i: (size_of(flat[i], bits), i))[: 2 * beam]
        ranked = [i for i in ranked if flat[i] > -torch.inf]
        for i in ranked[:beam]:
            if i % vocab_size == EOS:
                pool.add([*texts[i // vocab_size], EOS], flat[i])
        ranked = [i for i in ranked if i % vocab_size != EOS][:beam]
        texts = [[*texts[i // vocab_size], i % vocab_size] for i in ranked]
        totals = [flat[i] for i in ranked]
        if not texts:
            break
        state = decoder.reorder(state, None, torch.tensor([[i // vocab_size for i in ranked]]))
        full = len(pool.hypotheses) == beam
        if full and pool.score(totals[0], length) <= pool.hypotheses[-1].score:
            break
    best = sorted(zip(totals, texts, strict=True), key=lambda pair: pair[0], reverse=True)
    for total, text in best[: beam - len(pool.hypotheses)]:
        pool.add(text, total)
    return pool.hypotheses


@settings(max_examples=50)
@given(
    seed=st.integers(0, 9999),
    vocab_size=st.integers(4, 9),
    limits=st.lists(st.integers(1, 12), min_size=1, max_size=11),
    beam=st.integers(1, 9),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    beta=st.sampled_from([0.0, 5.0]),
    levels=st.sampled_from([0, 1, 2, 5]),
    eos=st.floats(-3, 3),
    holes=st.sampled_from([0.0, 0.3, 0.8]),
)
def test_a_batch_is_what_a_loop_over_one_sentence_gives(
    seed: int,
    vocab_size: int,
    limits: list[int],
    beam: int,
    alpha: float,
    beta: float,
    levels: int,
    eos: float,
    holes: float,
) -> None:
    tables = table(len(limits), seed, vocab_size, memory=5, spread=2.0)
    if levels:  # few different numbers: many ties
        tables = (tables.sigmoid() * levels).round()
        eos = round(eos)
    tables[..., EOS] += eos
    closed = torch.rand(tables.shape, generator=torch.Generator().manual_seed(seed)) < holes
    closed[..., PAD] = False  # or there would be no distribution
    tables[closed] = -torch.inf
    pools = beam_search(SCRIPT, encoded(tables), torch.tensor(limits), beam, alpha, beta)
    for b, limit in enumerate(limits):
        same(pools[b], reference(SCRIPT, encoded(tables[b : b + 1]), limit, beam, alpha, beta))


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT], ids=["lookup", "act"])
@pytest.mark.parametrize("beam", [2, 5])
def test_so_it_is_with_a_model(segmenter: dict[str, Any], beam: int) -> None:
    model, texts = tiny_model(segmenter, seed=6), sentences(11, seed=7)
    limits = torch.tensor([15, 1, 4, 30, 2, 15, 15, 7, 3, 15, 15])

    def encode(these: list[list[int]]) -> Encoded:
        batch = collate([(text, None) for text in these])
        with torch.no_grad():
            return model.encode(batch.src, batch.src_lengths)[1]

    pools = beam_search(model.decoder, encode(texts), limits, beam)
    assert len({h.finished for pool in pools for h in pool}) == 2
    for pool, text, limit in zip(pools, texts, limits.tolist(), strict=True):
        with torch.no_grad():
            same(pool, reference(model.decoder, encode([text]), limit, beam, 1.0, 0.0))


def test_equals_rank_by_hypothesis_and_then_by_symbol() -> None:
    tables = torch.zeros(1, 1, 7, dtype=torch.float64)
    tables[..., EOS] = -torch.inf
    (pool,) = beam_search(SCRIPT, encoded(tables), torch.tensor([2]), beam=6)
    going = (1, 4, 5, 6)
    assert [h.symbols for h in pool] == [(a, b) for a in going for b in going][:6]


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(9, 40)),
    levels=st.integers(1, 30),
    seed=st.integers(0, 999),
)
def test_the_best_of_groups_are_the_best_of_all(sizes: tuple[int, int, int], levels: int, seed: int) -> None:
    """With few `levels` of scores, most are equal; some are -inf."""
    generator = torch.Generator().manual_seed(seed)
    scores = -torch.randint(levels, sizes, generator=generator).float() / 7
    scores[torch.rand(sizes, generator=generator) < 0.2] = -torch.inf
    totals = -torch.randint(3, sizes[:2], generator=generator).double() / 7
    totals[torch.rand(sizes[:2], generator=generator) < 0.2] = -torch.inf
    found = []
    for group, small in ((4, 0), (4, 99)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(beams, "GROUP", group)
            patch.setattr(beams, "SMALL", small)
            found.append(beams._best(totals, scores, 2 * sizes[1]))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
