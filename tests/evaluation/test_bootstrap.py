"""Counts of lines: packed and back, scores and p-values of sacrebleu, seeds."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation import ngrams
from caesura.evaluation.bootstrap import Replicates, UnitCounts, difference, replicates
from caesura.evaluation.scores import paired_bootstrap, score

lines = st.lists(st.tuples(*[st.text("ab é.", max_size=14)] * 2), min_size=1, max_size=6)
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", ",", ".", "quickly"]


def texts(seed: int, count: int = 60) -> tuple[list[str], dict[str, list[str]]]:
    """References, and two systems of which the second makes more errors."""
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(3, 14))) for _ in range(count)]

    def worse(share: float) -> list[str]:
        return [
            " ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split())
            for line in references
        ]

    return references, {"one": worse(0.3), "two": worse(0.4)}


@given(lines)
def test_counts_come_back_from_their_packed_form_and_have_the_scores(pairs):
    hypotheses, references = zip(*pairs, strict=True)
    before, ngrams.LINES = ngrams.LINES, 2
    try:
        counts = UnitCounts.of(hypotheses, references)
    finally:
        ngrams.LINES = before
    scores = score(hypotheses, references)
    for unit in (1, 3):
        units = UnitCounts.of(hypotheses, references, unit=unit)
        again = UnitCounts.unpacked(units.packed())
        assert np.array_equal(again.sums, units.sums)
        assert len(again) == -(-len(pairs) // unit)
        assert (again.bleu, again.chrf) == (counts.bleu, counts.chrf) == (scores.bleu, scores.chrf)
    alone = [score([h], [r]).chrf for h, r in pairs]
    each = [UnitCounts.of([h], [r]).chrf for h, r in pairs]
    assert each == alone


def test_two_systems_have_sacrebleus_interval_and_p_value():
    references, systems = texts(1)
    counts = [UnitCounts.of(system, references) for system in systems.values()]
    results = replicates(counts, samples=200)
    wanted = paired_bootstrap(systems, references, samples=200)
    for metric, drawn in zip(("bleu", "chrf"), results, strict=True):
        expected = getattr(wanted["two"], metric)
        tested = difference([drawn[1]], [drawn[0]])
        assert tested.p_value == pytest.approx(expected.p_value)
        assert drawn[1].score == pytest.approx(expected.score)
        assert drawn[1].drawn.mean() == pytest.approx(expected.mean)
        assert tested.mean == pytest.approx(drawn[1].score - drawn[0].score)
        assert tested.low < tested.mean < tested.high
    same = difference([results[0][0]], [results[0][0]])
    assert same == (0.0, 0.0, 0.0, 1.0)


def test_lines_that_are_drawn_together_have_about_the_same_interval():
    references, systems = texts(3, 600)
    widths = []
    for unit in (1, 5):
        counts = [UnitCounts.of(system, references, unit=unit) for system in systems.values()]
        bleu, _ = replicates(counts, samples=400)
        results = difference([bleu[0]], [bleu[1]])
        widths.append(results.high - results.low)
    assert widths[1] == pytest.approx(widths[0], rel=0.25)


def test_seeds_widen_the_interval_and_change_no_mean():
    steady = Replicates(20.0, np.full(400, 20.0))
    seeds = [Replicates(22.0 + i, np.full(400, 22.0 + i)) for i in (-1, 0, 1)]
    results = difference(seeds, [steady])
    assert (results.mean, results.low, results.high) == (2.0, 1.0, 3.0)
    assert difference(seeds[1:2], [steady])[:3] == (2.0, 2.0, 2.0)
    assert difference([steady], seeds).mean == -2.0


def test_other_lines_and_damaged_counts_are_refused():
    references, systems = texts(2, 5)
    one = UnitCounts.of(systems["one"], references)
    with refuses(InputError, "the counts of n-grams"):
        replicates([one, UnitCounts.of(systems["two"], references[::-1])])
    packed = one.packed()
    for broken in ("x", packed[:-8], packed[:40] + "!" + packed[41:], "/Td6WFoAAATm1rRGAA=="):
        with pytest.raises(ValueError, match="packed counts"):
            UnitCounts.unpacked(broken)
    assert replicates([]) == ([], [])
