"""Gradients that are not finite, at the updates that a test names."""

from typing import Any
from unittest import mock

import torch
from torch import Tensor

from caesura.training.step import Step


def poison(*updates: int) -> Any:
    """A patch under which the gradients of these updates, counted from 0, are not finite."""
    compute = Step.__call__

    def computed(self: Step, batch: Any, update: int = 0) -> Tensor:
        sums = compute(self, batch, update)
        if update in updates:
            torch._foreach_mul_([p.grad for p in self.model.parameters() if p.grad is not None], torch.nan)
        return sums

    return mock.patch.object(Step, "__call__", computed)
