"""How long segments should be, and how that is enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from caesura.layers.checks import check_finite, check_sizes


@dataclass(frozen=True)
class Rate:
    """The characters per segment that are asked for, and how they are kept.

    `scaling`: every sentence gets round(characters / target) segments, at least one.
    """

    target: float
    by: Literal["scaling"] = "scaling"

    def __post_init__(self) -> None:
        check_finite(target=self.target)
        check_sizes(target=self.target)
        if self.by != "scaling":
            raise ValueError(f"by must be scaling, not {self.by}")

    def segments(self, characters: Tensor) -> Tensor:
        """[B] whole numbers of segments for sentences of so many characters [B], </s> not counted."""
        return (characters.double() / self.target).round().clamp(min=1).long()

    def most(self, characters: int) -> int:
        """The same for one length; more characters never get fewer segments."""
        return max(1, round(characters / self.target))  # both round half to even
