"""The probe of what pulls at segments (benchmarks/pull.py): its gradients are those of what it says."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from helpers import ACT, close, sentences, tiny_model
from torch import Tensor

from caesura.data.batching import Batch, collate
from caesura.inference import Translator

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from pull import windows
from pull_measures import DISTANCES, LAST_WEIGHTS, SHIFTS, measure, places, score_gradients, segment, shifts

UNITS = [ACT, ACT | {"epsilon": 0.3}, ACT | {"halting_bias": -0.7}]  # tiny_model takes three times the bias


def made(unit: dict[str, object], seed: int) -> tuple[Translator, Batch]:
    """A tiny model in float64 and a ragged batch with targets."""
    pairs = zip(sentences(4, seed), sentences(4, seed + 1, vocab_size=9), strict=True)
    return tiny_model(unit, seed), collate(list(pairs))


def last_segments(batch: Batch, left: Tensor) -> Tensor:
    """[B, T] bool: of a sentence's last segment, which </s> ends."""
    return left + torch.arange(left.shape[1]) == batch.src_lengths[:, None] - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", UNITS)
def test_segments_loss_and_slope_are_the_models(unit: dict[str, object], seed: int) -> None:
    model, batch = made(unit, seed)
    expected, segments = model.segmenter(batch.src, batch.src_lengths), segment(model.segmenter, batch)
    for name in ("vectors", "lengths", "ends", "weights"):
        close(getattr(segments, name), getattr(expected, name), what=name)
    losses = model.loss(batch, segments).cross_entropy, model(batch).cross_entropy
    close(*losses)
    close(*(torch.autograd.grad(loss, model.segmenter.halting.bias)[0] for loss in losses))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["emitted", "carried", "both"])
@pytest.mark.parametrize("unit", UNITS)
def test_gradients_are_differences_with_the_cuts_held(unit: dict[str, object], part: str) -> None:
    model, batch = made(unit, 5)
    segments, gradients = score_gradients(model, batch)
    assert gradients.any()
    parts = {"emitted": [1.0, 0.0], "carried": [0.0, 1.0], "both": [1.0, 1.0]}[part]
    chosen = torch.tensor(parts, dtype=torch.float64)[:, None, None]
    size = 3e-6  # of the step: the cube of a longer one is seen, and so is the rounding of a shorter one

    def loss(nudge: Tensor) -> Tensor:
        held = segment(model.segmenter, batch, chosen * nudge, segments.ends)
        return model.loss(batch, held).cross_entropy

    for place in torch.ones(batch.src.shape).nonzero().unbind():
        nudge = torch.zeros(batch.src.shape, dtype=torch.float64)
        nudge[*place] = size
        with torch.no_grad():
            difference = (loss(nudge) - loss(-nudge)) / (2 * size)
        close(difference, (chosen * gradients).sum(0)[*place], 1e-8)


@pytest.mark.parametrize("unit", UNITS)
def test_only_scores_inside_a_segment_have_a_gradient(unit: dict[str, object]) -> None:
    model, batch = made(unit, 3)
    segments, gradients = score_gradients(model, batch)
    left, _ = places(segments)
    assert (left > 0).any()
    assert not gradients[:, left == 0].any()
    assert gradients.sum(0)[left > 0].all()


@pytest.mark.parametrize("unit", UNITS[:2])
def test_nothing_is_carried_on_from_a_sentences_last_segment(unit: dict[str, object]) -> None:
    model, batch = made(unit, 3)
    segments, (emitted, carried) = score_gradients(model, batch)
    left, _ = places(segments)
    final = last_segments(batch, left)
    assert emitted[left > 0].all()
    assert not carried[final].any()
    assert carried[(left > 0) & ~final].all()
    assert ((left > 0) & ~final).any()


def test_both_parts_together_are_the_slope_of_a_unit_that_scores_all_alike() -> None:
    model, batch = made(UNITS[2], 2)
    with torch.no_grad():
        model.segmenter.halting.weight.zero_()
    _, gradients = score_gradients(model, batch)
    bias = model.segmenter.halting.bias
    h = torch.sigmoid(bias.detach())
    [slope] = torch.autograd.grad(model(batch).cross_entropy, bias)
    close(gradients.sum() * h * (1 - h), slope)


def test_places_are_counted_from_the_segments_end() -> None:
    model, batch = made(ACT, 1)
    segments, _ = score_gradients(model, batch)
    left, last = places(segments)
    for ends, weights, row, lasts in zip(segments.ends, segments.weights, left, last, strict=True):
        start = 0
        for end in ends.nonzero().flatten().tolist():
            assert row[start : end + 1].tolist() == list(range(end - start, -1, -1))
            assert (lasts[start : end + 1] == weights[end]).all()
            start = end + 1
        assert not row[start:].any()


@pytest.mark.parametrize("unit", UNITS)
def test_groups_are_those_of_their_names(unit: dict[str, object]) -> None:
    model, batch = made(unit, 6)
    segments, gradients = score_gradients(model, batch)
    measures, (left, last) = measure(model, batch, False), places(segments)
    assert measures["total"] == pytest.approx(measures["emitted"] + measures["carried"])
    inside, final = left > 0, last_segments(batch, left)
    groups = {"": inside, " forced": inside & final, " own": inside & ~final}
    for a, b in pairwise(DISTANCES):
        groups[f" distance {a}"] = (left >= a) & (left < b)
    for a, b in pairwise(LAST_WEIGHTS):
        groups[f" weight {a}"] = groups[" own"] & (last >= a) & (last < b)
    assert {f"total{name}" for name, group in groups.items() if group.any()} == {
        key for key in measures if key.startswith("total")
    }
    for name, group in groups.items():
        if group.any():
            assert measures[f"total{name}"] == pytest.approx(gradients.sum(0)[group].mean().item())
            assert measures[f"above{name}"] == pytest.approx(
                (gradients.sum(0)[group] > 0).double().mean().item()
            )


def test_a_shift_cuts_anew_and_is_taken_back() -> None:
    model, batch = made(ACT, 4)
    bias, segments = model.segmenter.halting.bias, model.segmenter(batch.src, batch.src_lengths)
    before, was = model(batch), bias.item()
    moved = shifts(model, batch, segments.ends)
    assert bias.item() == was
    assert moved["longer -1.5"] > 1 > moved["longer 1"]
    with torch.no_grad():
        bias += 1
    after, symbols = model(batch), int(batch.trg_lengths.sum())
    assert moved["anew 1"] == pytest.approx((after.cross_entropy - before.cross_entropy).item() / symbols)
    assert moved["longer 1"] == pytest.approx((before.counts["segments"] / after.counts["segments"]).item())
    assert moved["held 1"] != moved["anew 1"]


def test_what_the_slope_told_is_held_against_the_nearest_shift_that_lengthens() -> None:
    longer = dict(zip(SHIFTS, (3, 2, 1.2, 1.05, 1, 1, 1, 1), strict=True))
    shifted = {f"longer {s}": longer[s] for s in SHIFTS} | {f"anew {s}": -s for s in SHIFTS}
    first, second = windows(
        [{"update": 3, "slope": 0.5, **shifted}, {"update": 7, "slope": -0.5}, {"update": 30, "slope": 1.0}]
    )
    assert first["update"] == 0
    assert first["told"] == [-0.3, 0, 1]
    assert first["came"] == [0.6, 0, 1]
    assert first["wrong"] == [1, 0, 1]
    assert first["slope"] == [0, 0.5, 2]  # mean, its standard error, number
    assert second == {"update": 25, "slope": [1, 0, 1]}
