"""Numbers that training turns while it runs: weights of losses, temperatures, target rates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caesura.schedules import Schedule, Setting, first


class Knob(nn.Module):
    """A number on the device: captured graphs read what it is now, so it may change without a new capture.

    A constant is not part of the weights: the config has it. A number that follows a schedule or a controller
    is (`kept`), so that a checkpoint and a saved model have the value of their update.
    """

    value: Tensor  # [] float64

    def __init__(self, setting: Setting, kept: bool = False) -> None:
        super().__init__()
        self.schedule = setting if isinstance(setting, Schedule) else None
        # On the CPU by name: models are also built on the meta device, where a constant would be lost.
        start = torch.tensor(first(setting), dtype=torch.float64, device="cpu")
        self.register_buffer("value", start, persistent=kept or self.schedule is not None)

    def follow(self, update: int) -> None:
        """Take the schedule's value for an update; `update` others came before."""
        if self.schedule is not None:
            self.value.fill_(self.schedule.at(update))

    def weigh(self, loss: Tensor) -> Tensor:
        """`loss` times the number, in the type of the loss."""
        return loss * self.value.to(loss.dtype)

    def extra_repr(self) -> str:
        """Its value, or its schedule."""
        return str(self.schedule) if self.schedule else f"{self.value.item():g}"
