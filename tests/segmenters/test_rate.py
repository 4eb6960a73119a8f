"""Rates: one definition, five ways to keep one, and gradients that do not depend on company."""

import math
from typing import get_args

import pytest
import torch
from combinations import VOCABULARY, check_gradients_alone
from helpers import ragged
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.schedules import Schedule
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Weighted
from caesura.segmenters.rate import NEEDS, CutCount, Kind, Rate, RateControl, count_cuts, start_logit
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.readers.recurrent import Gru

EVERY_KIND = tuple(NEEDS)
GOOD = torch.tensor(True)
BY_LOSS = ("logits", "ratio", "pi")


def control(by: Kind, target: float | Schedule = 4.0, **options: float) -> RateControl:
    return RateControl(Rate(target, by, **options), "cutter toy", EVERY_KIND)


def counted(segments: int, characters: int) -> CutCount:
    return CutCount(torch.tensor(characters), torch.tensor(segments))


def segmenter(by: Kind, target: float = 2.0, seed: int = 0) -> Segmenter:
    torch.manual_seed(seed)
    cutter = Cif(4) if by == "scaling" else Act(4)
    return Segmenter(Gru(VOCABULARY, 3, 4), cutter, Weighted(), rate=Rate(target, by)).double()


def test_every_kind_has_a_need() -> None:
    assert {*NEEDS} == {*get_args(Kind)}


@given(st.lists(st.lists(st.booleans(), max_size=9), min_size=1, max_size=4))
def test_segments_are_counted_with_the_last_and_without_the_end(rows: list[list[bool]]) -> None:
    width = max(map(len, rows)) + 1
    ends = torch.tensor([[*row, True] + [False] * (width - len(row) - 1) for row in rows])
    lengths = torch.tensor([len(row) + 1 for row in rows])
    # A sentence of text has one segment per inner cut, and the last one.
    expected = sum(sum(row[:-1]) + 1 for row in rows if row)
    assert [*map(int, count_cuts(ends, lengths))] == [sum(map(len, rows)), expected]


@given(st.integers(0, 400), st.floats(1, 12))
def test_scaling_asks_for_whole_segments_and_knows_the_most(characters: int, target: float) -> None:
    kept = control("scaling", target)
    number = int(kept.segments(torch.tensor([characters])))
    assert number == max(1, round(characters / target))
    assert number <= kept.most(characters)


def test_the_controllers_weight_on_worked_numbers() -> None:
    kept = control("pi", 4.0, gain=2.0, integral=0.5)
    assert kept.seen.item() == 0.25
    kept.observe(counted(20, 100), GOOD)  # 20 of 100 characters are in no segment of 4
    assert kept.seen.item() == pytest.approx(0.2)
    assert kept.tau is not None
    assert kept.tau.value.item() == pytest.approx(2.0 * 0.2 + 0.5 * 0.2)
    kept.observe(counted(10, 40), GOOD)  # as asked
    seen = (0.9 * 20 + 0.1 * 10) / (0.9 * 100 + 0.1 * 40)
    assert kept.seen.item() == pytest.approx(seen)
    assert kept.tau.value.item() == pytest.approx(2.0 * (1 - 4 * seen) + 0.5 * 0.2)
    kept.observe(counted(1, 100), GOOD)
    kept.observe(counted(1, 900), GOOD)  # so far off that nothing is added up
    assert kept.total.item() == pytest.approx(0.2 + 96 / 94)


def test_the_rate_is_of_characters_and_not_of_batches() -> None:
    # Short sentences have more segments per character; all together the text has 4.2 characters per segment.
    kept = control("pi", 4.2)
    order = torch.randperm(4000, generator=torch.Generator().manual_seed(0)).tolist()
    for turn in order:
        kept.observe(counted(*((50, 100), (200, 950))[turn % 2]), GOOD)
    assert kept.total.item() / len(order) == pytest.approx(0.0, abs=2e-3)
    # The mean of the two rates is 0.355, and would have left errors of -0.49.


@pytest.mark.parametrize("by", EVERY_KIND)
def test_an_update_that_was_skipped_or_had_no_text_changes_nothing(by: Kind) -> None:
    kept = control(by)
    kept.observe(counted(30, 100), GOOD)
    before = {name: value.clone() for name, value in kept.state_dict().items()}
    kept.observe(counted(90, 100), ~GOOD)
    kept.observe(counted(0, 0), GOOD)
    assert all(value.equal(before[name]) for name, value in kept.state_dict().items())


@pytest.mark.parametrize("by", ["pi", "quantile"])
def test_too_few_cuts_lead_to_more(by: Kind) -> None:
    few, many = control(by), control(by)
    for _ in range(5):
        few.observe(counted(10, 100), GOOD)
        many.observe(counted(60, 100), GOOD)
    if by == "pi":
        assert few.tau is not None
        assert many.tau is not None
        assert few.tau.value > 0 > many.tau.value
    else:
        assert few.training_threshold is not None
        assert many.training_threshold is not None
        assert few.training_threshold.value < many.training_threshold.value


@pytest.mark.parametrize("by", ["logits", "ratio"])
@pytest.mark.parametrize("cuts", [5, 80], ids=["too few", "too many"])
def test_a_loss_pushes_scores_towards_the_target(by: Kind, cuts: int) -> None:
    kept = control(by)
    for _ in range(50):
        kept.observe(counted(cuts, 100), GOOD)
    logits = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    kept.losses(logits, torch.sigmoid(logits), torch.ones(1, 6, dtype=torch.bool))["rate"].sum().backward()
    assert logits.grad is not None
    assert bool(((logits.grad < 0) == (cuts == 5)).all())  # a step against the gradient


def test_the_ratio_loss_is_that_of_its_paper() -> None:
    kept = control("ratio", 3.0)
    kept.observe(counted(40, 100), GOOD)  # F = 0.4
    scores = torch.tensor([[0.1, 0.3, 0.8, 0.0]], dtype=torch.float64)
    text = torch.tensor([[True, True, True, False]])
    share = 0.4  # G, without </s>
    expected = 3 / 2 * (2 * 0.4 * share + 0.6 * (1 - share))
    assert kept.losses(None, scores, text)["rate"].item() == pytest.approx(expected)


@pytest.mark.parametrize("by", [*BY_LOSS, "quantile", "scaling"])
def test_a_sentences_gradient_does_not_depend_on_its_company(by: Kind) -> None:
    made = segmenter(by).train()
    made.control.observe(counted(3, 10), GOOD)  # type: ignore[union-attr]
    check_gradients_alone(made)


@settings(max_examples=12)
@given(st.floats(1.0, 8.0), st.integers(0, 99))
def test_a_threshold_on_text_gives_the_rate_to_within_a_cut(target: float, seed: int) -> None:
    made = segmenter("quantile", target, seed).eval()
    kept = made.control
    assert kept is not None
    symbols, lengths = ragged([30, 18, 25, 40], VOCABULARY, torch.Generator().manual_seed(seed))
    made.settle([(symbols[:2], lengths[:2], None), (symbols[2:], lengths[2:], None)])

    def counted_at(threshold: float) -> float:
        kept.threshold.fill_(threshold)
        return int(count_cuts(made(symbols, lengths).ends, lengths).segments)

    at = kept.threshold.item()
    expected = int((lengths - 1).sum()) / target
    # The threshold is the lowest without too many cuts; a little below it there are too many.
    assert counted_at(at) <= expected or expected < len(lengths)  # every sentence has a segment
    assert counted_at(at * (1 - 1e-6)) > expected or at < 1e-9
    assert kept.training_threshold is not None
    assert kept.training_threshold.value.item() == 1.0  # training goes on with its own


def test_training_cuts_with_the_moving_threshold_and_all_else_with_the_one_that_was_set() -> None:
    made = segmenter("quantile", 3.0)
    symbols, lengths = ragged([20], VOCABULARY, torch.Generator().manual_seed(1))
    kept = made.control
    assert kept is not None
    assert kept.training_threshold is not None
    kept.training_threshold.value.fill_(0.05)
    kept.threshold.fill_(1.0)
    assert made.train()(symbols, lengths).ends.sum() > made.eval()(symbols, lengths).ends.sum()


@pytest.mark.parametrize("target", [1.0, 2.0, 3.0, 4.0, 6.0])
@pytest.mark.parametrize("kind", ["act", "act, warm", "ACT-ENC"])
def test_segments_start_near_the_target(kind: str, target: float) -> None:
    torch.manual_seed(0)
    rate = Rate(target, "pi")
    made: ActSegmenter | Segmenter
    if kind.startswith("act"):
        cutter = Act(6, temperature=0.5 if "warm" in kind else 1.0)
        made = Segmenter(Lookup(VOCABULARY, 6), cutter, Weighted(), rate=rate)
        cutter.halting.weight.data.mul_(0.1)
    else:
        made = ActSegmenter(VOCABULARY, 4, 5, 6, rate=rate)
        made.halting.weight.data.mul_(0.1)
    symbols, lengths = ragged([61] * 50, VOCABULARY, torch.Generator().manual_seed(0))
    count = count_cuts(made(symbols, lengths).ends, lengths)
    assert float(count.characters / count.segments) == pytest.approx(target, rel=0.2)
    assert made.target == target


def test_the_first_logit_is_that_of_a_whole_number_of_scores() -> None:
    assert 1 / (1 + math.exp(-start_logit(4.0))) == pytest.approx(1 / 3.5)
    assert start_logit(1.0) > 9
    assert start_logit(Schedule(4.0, 1.0, 9)) == start_logit(4.0)


def test_a_target_may_move() -> None:
    made = Segmenter(
        Lookup(VOCABULARY, 4), Cif(4), Weighted(), rate=Rate(Schedule(4.0, 2.0, 2, "linear"))
    ).double()
    symbols, lengths = ragged([13], VOCABULARY, torch.Generator().manual_seed(0))
    seen = []
    for update in range(3):
        made.knobs["target_length"].follow(update)
        seen.append(int(made(symbols, lengths).lengths))
    assert seen == [3, 4, 6]
    assert made.room(13) == 6  # whatever the schedule is at


def test_a_higher_temperature_brings_scores_together() -> None:
    symbols, lengths = ragged([13], VOCABULARY, torch.Generator().manual_seed(0))
    spread = []
    for temperature in (1.0, 10.0):
        torch.manual_seed(0)
        made = Segmenter(Lookup(VOCABULARY, 4), Act(4, halting_bias=0.0, temperature=temperature), Weighted())
        scores = made(symbols, lengths).scores
        assert scores is not None
        spread.append(float(scores.std().detach()))
    assert spread[1] < spread[0] / 3
    with refuses(ValueError, "temperature "):
        Act(4, temperature=0.0)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"target": 0.5}, "target"),
        ({"target": Schedule(4.0, 0.5, 9)}, "target"),
        ({"target": 4.0, "gain": -1.0}, "gain"),
        ({"target": 4.0, "integral": math.nan}, "integral"),
        ({"target": 1.0, "by": "ratio"}, "by ratio"),
        ({"target": 4.0, "weight": -1.0}, "weight"),
        ({"target": 4.0, "weight": math.nan}, "weight"),
    ],
)
def test_what_cannot_be_is_refused(options: dict, name: str) -> None:
    with refuses(ValueError, f"{name} "):
        Rate(**options)


def test_scores_that_are_too_high_for_a_target_are_divided_by_more_than_one() -> None:
    made = segmenter("quantile", 6.0).eval()
    made.cutter.halting.bias.data.fill_(1.0)  # type: ignore[union-attr, operator]
    symbols, lengths = ragged([80] * 20, VOCABULARY, torch.Generator().manual_seed(0))
    made.settle([(symbols, lengths, None)])
    count = count_cuts(made(symbols, lengths).ends, lengths)
    assert made.control is not None
    assert made.control.threshold > 3
    assert float(count.characters / count.segments) == pytest.approx(6.0, rel=0.02)
    weights = made(symbols, lengths).weights.sum(1)
    torch.testing.assert_close(weights, made(symbols, lengths).lengths.double())  # each segment's sum to 1


@pytest.mark.parametrize(("by", "option"), [("logits", "gain"), ("pi", "weight"), ("scaling", "integral")])
def test_an_option_that_would_do_nothing_is_refused(by: Kind, option: str) -> None:
    with refuses(ValueError, f"rate.{option} "):
        control(by, 4.0, **{option: 5.0})


def test_a_rate_needs_a_unit_that_learns() -> None:
    with pytest.raises(ValueError, match="learn_halting"):
        ActSegmenter(VOCABULARY, 4, 5, 6, learn_halting=False, rate=Rate(3.0))
