"""Numbers that change during training, on the host and on the device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.layers.knobs import Knob
from caesura.schedules import Schedule, Shape, extremes, first, shown

SHAPES: list[Shape] = ["constant", "linear", "cosine", "step"]
values = st.floats(-9, 9)
updates = st.integers(0, 50)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("linear", [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]),
        ("cosine", [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]),
        ("step", [1.0, 1.0, 1.0, 1.0, 3.0, 3.0]),
        ("constant", [1.0] * 6),
    ],
)
def test_the_shapes_on_worked_numbers(shape: Shape, expected: list[float]) -> None:
    schedule = Schedule(1.0, 3.0, 10, shape, after=10)
    assert [schedule.at(update) for update in (0, 9, 10, 15, 20, 99)] == pytest.approx(expected)


def test_a_cosine_is_slow_at_both_ends() -> None:
    schedule = Schedule(0.0, 1.0, 100, "cosine")
    assert schedule.at(10) < 0.03
    assert schedule.at(90) > 0.97


@given(values, values, updates, st.sampled_from(SHAPES), updates, st.integers(0, 200))
def test_a_schedule_stays_between_its_ends_and_stops_at_the_last(
    start: float, end: float, count: int, shape: Shape, after: int, update: int
) -> None:
    schedule = Schedule(start, end, count, shape, after)
    low, high = extremes(schedule)
    assert low - 1e-9 <= schedule.at(update) <= high + 1e-9
    if update < after or (update == after and count):
        assert schedule.at(update) == start
    if update >= after + count and shape != "constant":
        assert schedule.at(update) == pytest.approx(end)


def test_a_number_is_a_schedule_that_never_changes() -> None:
    assert (first(2.0), extremes(2.0), shown(2.0)) == (2.0, (2.0, 2.0), "2")
    schedule = Schedule(4.0, 1.0, 1000, after=5)
    assert (first(schedule), extremes(schedule)) == (4.0, (1.0, 4.0))
    assert shown(schedule) == "4 to 1 (linear, 1,000 updates from update 5)"
    assert shown(Schedule(4.0, 1.0, 9, "constant")) == "4"


@pytest.mark.parametrize(
    "wrong", [{"start": float("nan")}, {"end": float("inf")}, {"updates": -1}, {"after": -1}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with refuses(ValueError, *wrong):
        Schedule(**{"start": 0.0, "end": 1.0, "updates": 5, **wrong})  # type: ignore[arg-type]


def test_a_knob_follows_its_schedule_in_place() -> None:
    knob = Knob(Schedule(0.0, 1.0, 4))
    address = knob.value.data_ptr()
    seen = []
    for update in (0, 1, 4, 9):
        knob.follow(update)
        seen.append(knob.value.item())
    assert seen == [0.0, 0.25, 1.0, 1.0]
    assert knob.value.data_ptr() == address  # where a captured graph reads it
    weighed = knob.weigh(torch.tensor(3.0))
    assert (weighed.item(), weighed.dtype) == (3.0, torch.float32)


def test_only_numbers_that_change_are_among_the_weights() -> None:
    assert not Knob(1.0).state_dict()
    assert [*Knob(Schedule(1.0, 2.0, 3)).state_dict()] == [*Knob(1.0, kept=True).state_dict()] == ["value"]
    with torch.device("meta"):  # where models are built before their weights are loaded
        assert Knob(1.5).value.item() == 1.5
