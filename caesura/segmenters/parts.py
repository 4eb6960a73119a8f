"""Read, cut, pool: the three parts of a segmenter, what each promises, and the segmenter made of them.

A cutter never knows its reader, and the encoder knows neither. B sentences, T source symbols, S segments,
D features. One rule for </s>: it closes the last segment and belongs to it, whatever the cutter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from caesura.layers.basics import positions_mask
from caesura.layers.checks import check_sizes
from caesura.segmenters.base import BaseSegmenter, Cuts, Draft, Segments
from caesura.segmenters.figures import Figure
from caesura.segmenters.rate import Rate

# One line per part: its name in a config, and where its class lives. Extensions add their class itself.
READERS: dict[str, str | type[Reader]] = {
    "lookup": "caesura.segmenters.readers.lookup:Lookup",
    "gru": "caesura.segmenters.readers.recurrent:Gru",
    "bigru": "caesura.segmenters.readers.recurrent:BiGru",
}
CUTTERS: dict[str, str | type[Cutter]] = {
    "every": "caesura.segmenters.cutters.hard:Every",
    "fixed": "caesura.segmenters.cutters.hard:Fixed",
    "random": "caesura.segmenters.cutters.hard:Random",
    "given": "caesura.segmenters.cutters.hard:Given",
    "act": "caesura.segmenters.cutters.act:Act",
    "cif": "caesura.segmenters.cutters.cif:Cif",
}
POOLINGS: dict[str, str | type[Pooling]] = {
    "mean": "caesura.segmenters.pooling:Mean",
    "weighted": "caesura.segmenters.pooling:Weighted",
    "last": "caesura.segmenters.pooling:Last",
}


@dataclass(frozen=True)
class Reading:
    """What a cutter sees of a batch."""

    states: Tensor  # [B, T, D] each symbol as the reader knows it; zero on padding
    symbols: Tensor  # [B, T]   ids
    lengths: Tensor  # [B]      symbols of each sentence, </s> included
    mask: Tensor  # [B, T]      bool: not padding

    @property
    def characters(self) -> Tensor:
        """[B]: symbols of text, </s> not counted."""
        return (self.lengths - 1).clamp(min=0)

    @property
    def text(self) -> Tensor:
        """[B, T] bool: a symbol of text, not </s> and not padding."""
        return positions_mask(self.lengths - 1, self.mask.shape[1])


@dataclass(frozen=True)
class Gaps:
    """After which symbols a cut is already decided: at </s>, in front of it, and where cuts are given."""

    cut: Tensor  # [B, T] bool: a segment ends here
    keep: Tensor  # [B, T] bool: no segment ends here; padding included
    given: Tensor | None = None  # [B, 1] bool: cuts are given for this sentence; None: for no sentence

    def settle(self, own: Tensor) -> Tensor:
        """`own` [B, T] cuts where nothing else is decided."""
        return (own & ~self.keep) | self.cut

    @classmethod
    def of(cls, lengths: Tensor, mask: Tensor, given: Tensor | None, final: bool = True) -> Gaps:
        """From the lengths and from `given` [B, T], 1 cut, -1 do not, 0 free."""
        left = lengths[:, None] - torch.arange(mask.shape[1], device=mask.device)
        if not final:  # the sentence goes on: </s> is in a piece to come
            left = left.clamp(min=3)
        cut, keep = left == 1, ~mask | (left == 2)
        if given is None:
            return cls(cut, keep)
        free = mask & ~cut & ~keep
        cut, keep = cut | (free & (given > 0)), keep | (free & (given < 0))
        return cls(cut, keep, (free & (given != 0)).any(1, keepdim=True))


class Part(nn.Module):
    """What readers, cutters and poolings have in common."""

    def uncaptured(self) -> str | None:
        """Why training cannot capture this part in CUDA graphs; None where it can."""
        return None

    def whole_only(self) -> str | None:
        """Why this part cannot take a sentence in pieces; None where it can."""
        return None


class Reader(Part):
    """Knows symbols in context before anything is cut; a subclass sets `output_dim`."""

    output_dim: int

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """States [B, T, D] of symbols [B, T]; zero on padding."""
        raise NotImplementedError

    def flops(self, symbols: int) -> int | None:
        """Floating-point operations of one sentence; None where nobody has counted."""
        return None


class Cutter(Part):
    """Decides where segments end."""

    figures: tuple[Figure, ...] = ()  # what is measured of its cuts
    loss_weights: Mapping[str, float] = {}  # of its losses, by name
    sums_to: float | None = None  # as in BaseSegmenter
    carries: bool = False
    rate: Rate | None = None

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Cut a batch, as `gaps` allows."""
        raise NotImplementedError

    def keep_rate(self, rate: Rate | None) -> None:
        """Told once which rate was asked for; ValueError where it cannot be kept, or none was asked for."""
        if rate is not None:
            raise ValueError(f"rate is not for {type(self).__name__.lower()}, which has a length of its own")

    def needs_given(self) -> bool:
        """Whether it cuts only where cuts are given."""
        return False

    def needs_weights(self) -> bool:
        """Whether it learns by the weights that it gives to symbols, and needs a pooling that uses them."""
        return False

    def room(self, characters: int) -> int | None:
        """Most segments of so many characters, where the length tells it; None: the text decides."""
        return None

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """As in BaseSegmenter."""
        return None

    def flops(self, symbols: int) -> int | None:
        """Floating-point operations of one sentence; None where nobody has counted."""
        return 0


class Pooling(Part):
    """Makes one vector per segment."""

    uses_weights = False  # whether what a symbol gives is as its cutter weighs it

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """[B, size, D] from states [B, T, D]; beyond a sentence's last segment anything finite."""
        raise NotImplementedError


class Segmenter(BaseSegmenter):
    """A reader, a cutter and a pooling, in place of `nn.Embedding`: [B, T] symbols to [B, S, D] segments.

    `output_dim`: the size of a linear layer after pooling; without one, segments have the reader's size.
    `rate`: how long segments should be, for a cutter that is told.
    """

    def __init__(
        self,
        reader: Reader,
        cutter: Cutter,
        pooling: Pooling,
        output_dim: int | None = None,
        rate: Rate | None = None,
    ) -> None:
        super().__init__()
        cutter.keep_rate(rate)
        if cutter.needs_weights() and not pooling.uses_weights:
            names = type(pooling).__name__.lower(), type(cutter).__name__.lower()
            raise ValueError("pooling {} ignores the weights that {} learns by; take weighted".format(*names))
        if output_dim is not None:
            check_sizes(output_dim=output_dim)
        self.reader, self.cutter, self.pooling = reader, cutter, pooling
        self.output = nn.Identity() if output_dim is None else nn.Linear(reader.output_dim, output_dim)
        self.output_dim = reader.output_dim if output_dim is None else output_dim
        self.figures, self.sums_to, self.carries = cutter.figures, cutter.sums_to, cutter.carries
        self.loss_weights = cutter.loss_weights

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """Read and cut; in pieces with `state`, and `final=False` on all but the last."""
        if state is not None or not final:
            raise ValueError(self._whole_only())
        mask = positions_mask(lengths, symbols.shape[1])
        states = self.reader(symbols, lengths)
        cuts = self.cutter(Reading(states, symbols, lengths, mask), Gaps.of(lengths, mask, given))
        room = self.room(symbols.shape[1]) if given is None else None
        if room is not None:
            cuts = replace(cuts, segments=room)
        return Draft(cuts, states)

    def emit(self, draft: Draft, size: int) -> Segments:
        """Pool and project."""
        counts = draft.cuts.ends.sum(1)
        vectors = self.output(self.pooling(draft.parts, draft.cuts, size))
        return Segments(vectors.masked_fill(~positions_mask(counts, size)[..., None], 0), counts, draft.cuts)

    def room(self, symbols: int) -> int | None:
        """The cutter's, of the text without </s>."""
        return self.cutter.room(max(0, symbols - 1))

    def uncaptured(self) -> str | None:
        """The first reason that a part has."""
        parts = (self.reader, self.cutter, self.pooling)
        return next((why for part in parts if (why := part.uncaptured())), super().uncaptured())

    def needs_given(self) -> bool:
        """The cutter's."""
        return self.cutter.needs_given()

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """The cutter's."""
        return self.cutter.remark(live, length, first)

    def flops(self, symbols: int, segments: int) -> int | None:
        """Reader, cutter and the output layer; pooling is not counted."""
        parts = self.reader.flops(symbols), self.cutter.flops(symbols)
        if parts[0] is None or parts[1] is None:
            return None
        projected = 2 * self.reader.output_dim * self.output_dim * isinstance(self.output, nn.Linear)
        return parts[0] + parts[1] + segments * projected

    def check_tau(self, tau: float) -> None:
        """A cutter without a penalty has nothing for tau to weigh."""
        if tau and "penalty" not in {figure.name for figure in self.figures}:
            name = type(self.cutter).__name__.lower()
            raise ValueError(f"tau is {tau:g}, and {name} has no penalty; leave it out")

    def _whole_only(self) -> str:
        parts = (self.reader, self.cutter, self.pooling)
        why = next((why for part in parts if (why := part.whole_only())), "only types act and lookup can")
        return f"this segmenter cannot take a sentence in pieces: {why}"
