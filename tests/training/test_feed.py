"""Epochs are planned ahead by a thread, and are those of the plan."""

from threading import current_thread, main_thread

import numpy as np
import pytest

from caesura.data.batching import BatchPlan, EpochBatches
from caesura.training.feed import Epochs


def test_the_next_epoch_is_planned_while_one_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, epoch = BatchPlan(np.ones((10, 2), int), 3), BatchPlan.epoch
    planned: list[tuple[int, bool]] = []

    def watched(self: BatchPlan, number: int) -> EpochBatches:
        planned.append((number, current_thread() is main_thread()))
        return epoch(self, number)

    monkeypatch.setattr(BatchPlan, "epoch", watched)
    epochs = Epochs(plan)
    for number in (3, 4, 5):
        assert [rows.tolist() for rows in epochs(number)] == [rows.tolist() for rows in epoch(plan, number)]
    assert planned[:3] == [(3, True), (4, False), (5, False)]


def test_a_problem_of_the_thread_comes_with_the_epoch_that_it_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epochs, epoch = Epochs(BatchPlan(np.ones((10, 2), int), 3)), BatchPlan.epoch

    def failing(self: BatchPlan, number: int) -> EpochBatches:
        if number == 2:
            raise MemoryError
        return epoch(self, number)

    monkeypatch.setattr(BatchPlan, "epoch", failing)
    assert len(epochs(1)) == 4
    with pytest.raises(MemoryError):
        epochs(2)
