"""When the learning rate is lowered, and when training ends; how it rises before, and falls by itself."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest
from cli.program import write_corpus
from hypothesis import given
from hypothesis import strategies as st
from training.outcomes import configured, run

from caesura.config import Training
from caesura.training.schedule import HalveAndStop, rate_at

Score = tuple[float, float]  # BLEU, chrF


def restated(scores: list[Score], patience: int, max_halvings: int) -> list[str]:
    """The rule without counters: what matters is how many validations ago the best score was first seen."""
    verdicts = []
    for i, score in enumerate(scores):
        before = scores[:i]
        if not before or score > max(before):  # tuples: chrF where BLEU is equal
            verdicts.append("best")
            continue
        since = i - before.index(max(before))
        if since == patience * max_halvings:
            return [*verdicts, "stop"]
        verdicts.append("halve" if since % patience == 0 else "wait")
    return verdicts


def judged(schedule: HalveAndStop, scores: Iterable[Score]) -> list[str]:
    """The verdicts up to the first stop, after which nothing is asked any more."""
    verdicts = []
    for score in scores:
        verdicts.append(schedule.update(*score))
        assert schedule.improved == (verdicts[-1] == "best")
        if verdicts[-1] == "stop":
            break
    return verdicts


SCORE = st.integers(0, 4).map(float) | st.floats(0, 100)
SCORES = st.lists(st.tuples(SCORE, SCORE), max_size=40)
COUNT = st.integers(1, 4)


@given(scores=SCORES, patience=COUNT, max_halvings=COUNT)
def test_every_verdict_is_the_one_of_the_rule(scores: list[Score], patience: int, max_halvings: int) -> None:
    assert judged(HalveAndStop(patience, max_halvings), scores) == restated(scores, patience, max_halvings)


def test_every_short_history_of_two_scores_is_judged_by_the_rule() -> None:
    for patience, max_halvings in product((1, 2, 3), (1, 2)):
        for history in product(product((0.0, 1.0), repeat=2), repeat=6):
            verdicts = judged(HalveAndStop(patience, max_halvings), history)
            assert verdicts == restated([*history], patience, max_halvings)


def test_a_history_worked_by_hand() -> None:
    history = [
        ((0.0, 8.0), "best"),
        ((0.0, 9.0), "best"),  # BLEU sees nothing yet, chrF does
        ((10.0, 7.0), "best"),  # BLEU comes first
        ((10.0, 7.0), "wait"),  # a tie in both is no new best
        ((9.0, 50.0), "halve"),  # two without a new best; chrF alone is none
        ((9.5, 7.0), "wait"),  # patience starts again
        ((10.0, 7.5), "best"),  # and a new best forgets the halving
        ((9.0, 7.0), "wait"),
        ((9.0, 8.0), "halve"),
        ((9.0, 9.0), "wait"),
        ((9.9, 7.0), "stop"),  # the second halving in a row
    ]
    scores, verdicts = zip(*history, strict=True)
    assert judged(HalveAndStop(patience=2, max_halvings=2), scores) == [*verdicts]


@given(scores=SCORES, cut=st.integers(0, 40), patience=COUNT, max_halvings=COUNT)
def test_a_schedule_that_was_written_down_goes_on_as_if_uninterrupted(
    scores: list[Score], cut: int, patience: int, max_halvings: int
) -> None:
    whole = judged(HalveAndStop(patience, max_halvings), scores)
    first = HalveAndStop(patience, max_halvings)
    verdicts = judged(first, scores[:cut])
    if "stop" not in verdicts:
        verdicts += judged(HalveAndStop(**asdict(first)), scores[cut:])
    assert verdicts == whole


def test_of_a_checkpoint_without_the_chrf_of_its_best_a_tie_is_no_new_best() -> None:
    old = {"patience": 2, "max_halvings": 2, "best": 10.0, "waited": 0, "halvings": 0}
    scores = [(10.0, 99.0), (10.5, 7.0), (10.5, 8.0)]
    assert judged(HalveAndStop(**old), scores) == ["wait", "best", "best"]


def test_training_is_judged_by_bleu_and_where_it_is_equal_by_chrf(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    settings = ("training.patience=1", "training.validation_freq=15", "training.learning_rate=0.02")
    listener = run(configured(tmp_path, "word", *settings), tmp_path / "out")
    scores = [(validation.bleu, validation.chrf) for validation in listener.validations]
    verdicts = [validation.verdict for validation in listener.validations]
    assert verdicts == restated(scores, patience=1, max_halvings=10)
    bleus = [(bleu, 0.0) for bleu, _ in scores]
    assert verdicts != restated(bleus, patience=1, max_halvings=10), "chrF had a say"


@given(st.integers(0, 1000), st.floats(1e-9, 1), st.integers(0, 2000))
def test_the_rate_rises_by_equal_steps_and_stays(warmup: int, rate: float, update: int) -> None:
    settings = Training(warmup=warmup)
    rates = [rate_at(settings, rate, update + i) for i in range(3)]
    if update + 1 >= warmup:
        assert rates == [rate] * 3
    else:
        assert 0 < rates[0] < rates[1] <= rates[2] <= rate
        assert rates[1] - rates[0] == pytest.approx(rate / warmup, rel=1e-6)
    assert rate_at(settings, rate / 2, update) == rates[0] / 2, "halved while it rises"


def test_a_warm_up_worked_by_hand() -> None:
    assert [rate_at(Training(warmup=4), 0.8, update) for update in range(6)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 0.8, 0.8]
    )


@given(st.integers(0, 300), st.integers(1, 1000), st.floats(1e-9, 1), st.integers(0, 1300))
def test_the_rate_falls_by_equal_steps_from_the_end_of_its_rise(
    warmup: int, falling: int, rate: float, update: int
) -> None:
    updates = warmup + falling
    settings = Training(warmup=warmup, updates=updates, decay="linear")
    rates = [rate_at(settings, rate, update + i) for i in range(2)]
    if update < warmup:
        assert rates[0] == rate_at(Training(warmup=warmup), rate, update)
    elif update < updates:
        assert 0 < rates[0] <= rate
        assert rates[0] - rates[1] == pytest.approx(rate / falling, rel=1e-6)
    else:
        assert rates == [0.0, 0.0]
    assert rate_at(settings, rate, warmup) == rate, "the highest"


def test_a_fall_worked_by_hand() -> None:
    settings = Training(warmup=2, updates=6, decay="linear")
    rates = [rate_at(settings, 0.8, update) for update in range(7)]
    assert rates == pytest.approx([0.4, 0.8, 0.8, 0.6, 0.4, 0.2, 0.0])


@given(st.integers(1, 300), st.integers(0, 5000), st.floats(1e-9, 1))
def test_the_rate_falls_with_the_inverse_square_root_of_the_updates(
    warmup: int, update: int, rate: float
) -> None:
    settings = Training(warmup=warmup, decay="inverse-sqrt")
    here, later = (rate_at(settings, rate, at) for at in (update, 4 * (update + 1) - 1))
    if update < warmup:
        assert here == rate_at(Training(warmup=warmup), rate, update)
    else:
        assert later == pytest.approx(here / 2, rel=1e-12), "half as high after four times as many"
    assert rate_at(settings, rate, warmup - 1) == rate, "the highest"
    assert rate_at(settings, rate / 2, update) == pytest.approx(here / 2, rel=1e-12)


def test_an_inverse_square_root_worked_by_hand() -> None:
    settings = Training(warmup=4, decay="inverse-sqrt")
    rates = [rate_at(settings, 0.8, update) for update in (0, 1, 2, 3, 8, 15, 63)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8 * 2 / 3, 0.4, 0.2])


@given(scores=SCORES)
def test_endless_patience_only_looks_for_the_best(scores: list[Score]) -> None:
    best = [
        not before or score > max(before) for before, score in ((scores[:i], s) for i, s in enumerate(scores))
    ]
    assert judged(HalveAndStop(None, 1), scores) == ["best" if new else "wait" for new in best]
