"""Training and evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Inside it the module is in evaluation mode; afterwards in the one that it was in."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
