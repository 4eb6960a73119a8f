"""The character model of n-grams, against a plain loop over the formula."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wording import refuses

from caesura.data import ngrams
from caesura.data.ngrams import BOUNDARY, NgramModel, count_ngrams

CHINESE = "".join(chr(0x4E00 + i) for i in range(3000))
german = st.text(st.sampled_from("abc dä"), max_size=9)
chinese = st.text(st.sampled_from(CHINESE) | st.sampled_from(CHINESE[:3]) | st.just("𠀀"), max_size=9)
texts = (st.lists(german, max_size=8) | st.lists(chinese, max_size=8)).filter(lambda t: "".join(t).strip())


class PlainModel:
    """p_k(c|h) = (count(hc) + D(h) p_{k-1}(c|h')) / (count(h) + D(h)), one character after the other."""

    def __init__(self, lines: list[str], order: int) -> None:
        self.order = order
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        lines = [line for line in lines if line.strip()]
        self.characters = sorted({"\n", *"".join(lines)})
        for line in lines:
            marked = f"\n{line}\n"
            for t in range(1, len(marked)):
                for k in range(min(order, t + 1)):
                    self.counts[marked[t - k : t]][marked[t]] += 1

    def probabilities(self, history: str) -> dict[str, float]:
        if history:
            lower = self.probabilities(history[1:])
        else:
            lower = {c: 1 / len(self.characters) for c in self.characters}
        if not (counts := self.counts.get(history)):
            return lower
        n, seen = counts.total(), len(counts)
        return {c: (counts[c] + seen * lower[c]) / (n + seen) for c in self.characters}

    def entropies(self, text: str) -> list[float]:
        marked = f"\n{text}"
        histories = (marked[max(0, t - self.order + 1) : t] for t in range(1, len(marked)))
        return [-sum(p * math.log2(p) for p in self.probabilities(h).values()) for h in histories]

    def surprisals(self, text: str) -> list[float]:
        return [
            -math.log2(self.probability(f"\n{text}"[max(0, t - self.order + 2) : t + 1], text[t]))
            for t in range(len(text))
        ]

    def probability(self, history: str, c: str) -> float:
        lower = self.probability(history[1:], c) if history else 1 / len(self.characters)
        if not (counts := self.counts.get(history)):
            return lower
        return (counts[c] + len(counts) * lower) / (counts.total() + len(counts))


@given(
    lines=texts, other=german | chinese, order=st.integers(1, 8), at_once=st.sampled_from([1, 10, 1 << 22])
)
@example(lines=["ab"], other="xab", order=2, at_once=1)
@example(lines=[CHINESE], other=CHINESE[::-1][:9], order=6, at_once=1 << 22)
@example(lines=["a"], other="aa", order=8, at_once=1)
def test_entropies_are_those_of_a_plain_loop(lines, other, order, at_once):
    before, ngrams.AT_ONCE = ngrams.AT_ONCE, at_once
    try:
        model, plain = count_ngrams(lines, order), PlainModel(lines, order)
    finally:
        ngrams.AT_ONCE = before
    for text in (other, *(line[:12] for line in lines[:3])):
        expected = plain.entropies(text)
        assert model.entropies(text).tolist() == pytest.approx(expected, rel=0, abs=1e-12)
        assert all(-1e-12 <= h <= math.log2(len(plain.characters)) + 1e-12 for h in expected)
        surprisals = model.surprisals(text).tolist()
        assert surprisals == pytest.approx(plain.surprisals(text), rel=0, abs=1e-11)


def ngrams_of(model: NgramModel) -> list[dict[str, int]]:
    """Counts by n-gram, a dictionary per length."""
    names, tables = [""], []
    for level in model.levels:
        last = ["\n" if s == BOUNDARY else chr(model.alphabet[s - 2]) for s in level.symbols]
        names = [names[p] + c for p, c in zip(level.parents, last, strict=True)]
        tables.append(dict(zip(names, level.counts.tolist(), strict=True)))
    return tables


@given(lines=texts, order=st.integers(1, 8))
def test_each_n_gram_is_counted_once_and_in_order(lines, order):
    model, plain = count_ngrams(lines, order), PlainModel(lines, order)
    for n, tables in enumerate(ngrams_of(model)):
        expected = {
            h + c: count for h, row in plain.counts.items() if len(h) == n for c, count in row.items()
        }
        assert tables == expected
        assert [*tables] == sorted(tables)


@given(lines=texts, seed=st.randoms())
def test_the_order_of_lines_and_empty_ones_change_nothing(lines, seed):
    shuffled = [*lines, "", " \t"]
    seed.shuffle(shuffled)
    one, other = count_ngrams(lines, 4), count_ngrams(shuffled, 4)
    assert np.array_equal(one.alphabet, other.alphabet)
    for a, b in zip(one.levels, other.levels, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_what_is_unknown_is_forgotten_history():
    model = count_ngrams(["abab", "abc"], 3)
    after_unknown = model.entropies("☃a")[1]
    assert after_unknown == pytest.approx(model.entropies("☃☃☃")[2], abs=1e-12)  # no history at all
    assert model.entropies("a\nb")[2] == pytest.approx(after_unknown, abs=1e-12)  # nor after a newline
    assert model.entropies("").tolist() == []
    assert model.entropies("☃").tolist() == model.entropies("a").tolist()  # it depends on what is before


def test_a_text_of_empty_lines_is_refused():
    with refuses(ValueError):
        count_ngrams(["", " "], 3)
