"""Cutters that do not learn: every symbol, every k symbols, chance, and cuts from outside."""

from __future__ import annotations

import torch
from torch import Tensor

from caesura.layers.checks import check_finite, check_sizes
from caesura.segmenters.base import Cuts
from caesura.segmenters.parts import Cutter, Gaps, Reading
from caesura.segmenters.rate import Kind
from caesura.segmenters.spans import even_weights


class HardCutter(Cutter):
    """A cutter that does not learn and weighs a segment's symbols alike; a subclass defines `choose`."""

    def choose(self, reading: Reading) -> Tensor:
        """[B, T] bool: where it would cut, were it free everywhere."""
        raise NotImplementedError

    def whole_only(self) -> str | None:
        """Its cuts depend on nothing that comes later."""
        return None

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Its own cuts where nothing else is decided."""
        ends = gaps.settle(self.choose(reading))
        full = torch.promote_types(reading.states.dtype, torch.float32)
        return Cuts(ends, even_weights(ends, reading.mask, full))


class Every(HardCutter):
    """After every symbol."""

    def choose(self, reading: Reading) -> Tensor:
        """Everywhere."""
        return torch.ones_like(reading.mask)

    def room(self, characters: int) -> int:
        """One per character, </s> with the last of them."""
        return max(1, characters)


class Fixed(HardCutter):
    """After every k symbols; k = 2.5 alternates between 3 and 2."""

    def __init__(self, k: float) -> None:
        super().__init__()
        check_finite(k=k)
        check_sizes(k=k)
        self.k = k

    def extra_repr(self) -> str:
        """Its length."""
        return f"k={self.k:g}"

    def choose(self, reading: Reading) -> Tensor:
        """Where the number of symbols passes a multiple of k."""
        size, device = reading.mask.shape[1] + 1, reading.mask.device
        counts = torch.arange(size, dtype=torch.float64, device=device)
        if reading.begun is not None:
            counts = counts + reading.begun[:, None]
        passed = (counts / self.k).floor()
        return (passed[..., 1:] > passed[..., :-1]).expand_as(reading.mask)

    def room(self, characters: int) -> int:
        """From the length alone."""
        return 1 + int(max(0, characters - 1) / self.k)


class Random(HardCutter):
    """At random places, as many as the rate asks for: a control.

    The places depend on the sentence and on `seed` alone: a text is always cut in the same way.
    """

    rate_kinds: tuple[Kind, ...] = ("scaling",)
    needs_rate = True

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2147483647, not {seed}")
        self.seed = seed

    def extra_repr(self) -> str:
        """Its options."""
        return f"seed={self.seed}" + ("" if self.control is None else f", rate={self.control.rate}")

    def choose(self, reading: Reading) -> Tensor:
        """The gaps inside the text whose hashes are smallest."""
        assert self.control is not None
        places = torch.arange(reading.mask.shape[1], device=reading.mask.device)
        inner = places < (reading.lengths - 2)[:, None]  # not after the last character: </s> is never alone
        text = _mix(reading.symbols * 1_000_003 + places).masked_fill(~reading.mask, 0)
        hashes = _mix(_mix(text.sum(1, keepdim=True) + self.seed) + places)
        order = hashes.masked_fill(~inner, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
        ranks = order.argsort(1)
        return inner & (ranks < (self.control.segments(reading.characters) - 1)[:, None])

    def whole_only(self) -> str:
        """The length decides."""
        return "cutter random has to know a sentence before it cuts"

    def room(self, characters: int) -> int | None:
        """The most segments that the rate asks for."""
        return None if self.control is None else self.control.most(characters)


class Given(HardCutter):
    """Where cuts are given, and nowhere else."""

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Cut where `gaps` says, and refuse a batch without cuts."""
        if gaps.given is None:
            raise ValueError("cutter given needs cuts: pass them as `given`, or set data.cuts in a config")
        return super().forward(reading, gaps)

    def choose(self, reading: Reading) -> Tensor:
        """Nowhere."""
        return torch.zeros_like(reading.mask)

    def needs_given(self) -> bool:
        """Always."""
        return True


def _mix(x: Tensor) -> Tensor:
    """A hash of 64 bits: products that overflow, and shifts."""
    x = (x ^ (x >> 31)) * 0x7FB5D329728EA185
    x = (x ^ (x >> 27)) * 0x1B03738712FAD5C9
    return x ^ (x >> 33)
