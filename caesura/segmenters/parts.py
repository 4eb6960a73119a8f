"""Read, cut, pool: the three parts of a segmenter, what each promises, and the segmenter made of them.

A cutter does not depend on its reader, and the encoder depends on neither.

One rule for </s>: it closes the last segment and belongs to it, whatever the cutter. B sentences, T source
symbols, S segments, D features.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_sizes
from caesura.layers.knobs import Knob
from caesura.layers.masks import positions_mask
from caesura.schedules import Setting, shown
from caesura.segmenters.base import BaseSegmenter, Cuts, Draft, Segments, Text, check_piece
from caesura.segmenters.figures import Figure
from caesura.segmenters.pieces import OpenSegments, joined, waiting
from caesura.segmenters.rate import Kind, Rate, RateControl, count_cuts, kept_control, threshold_for
from caesura.segmenters.reading import Gaps, Reading

# One line per part: its name in a config, and where its class lives. Extensions add their class itself.
READERS: dict[str, str | type[Reader]] = {
    "lookup": "caesura.segmenters.readers.lookup:Lookup",
    "gru": "caesura.segmenters.readers.recurrent:Gru",
    "bigru": "caesura.segmenters.readers.recurrent:BiGru",
    "conv": "caesura.segmenters.readers.conv:Conv",
    "blocks": "caesura.segmenters.readers.blocks:Blocks",
    "transformer": "caesura.segmenters.readers.transformer:Transformer",
}
CUTTERS: dict[str, str | type[Cutter]] = {
    "every": "caesura.segmenters.cutters.hard:Every",
    "fixed": "caesura.segmenters.cutters.hard:Fixed",
    "random": "caesura.segmenters.cutters.hard:Random",
    "given": "caesura.segmenters.cutters.hard:Given",
    "act": "caesura.segmenters.cutters.act:Act",
    "cif": "caesura.segmenters.cutters.cif:Cif",
    "bernoulli": "caesura.segmenters.cutters.bernoulli:Bernoulli",
    "routing": "caesura.segmenters.cutters.routing:Routing",
}
POOLINGS: dict[str, str | type[Pooling]] = {
    "mean": "caesura.segmenters.pooling:Mean",
    "weighted": "caesura.segmenters.pooling:Weighted",
    "last": "caesura.segmenters.pooling:Last",
    "start": "caesura.segmenters.pooling:Start",
    "max": "caesura.segmenters.pooling:Max",
    "attention": "caesura.segmenters.pooling:Attention",
}

ScoredText = tuple[Tensor, Gaps, Tensor]  # scores [B, T], gaps and decisions about them, lengths [B]


class Part(nn.Module):
    """What readers, cutters and poolings have in common."""

    @property
    def kind(self) -> str:
        """Its class, as messages name it."""
        return type(self).__name__.lower()

    def uncaptured(self) -> str | None:
        """Why training cannot capture this part in CUDA graphs; None where it can."""
        return None

    def whole_only(self) -> str | None:
        """Why this part cannot take a sentence in pieces; None where it can."""
        return f"{self.kind} does not say that it can"


class Reader(Part):
    """Represents symbols in context, before anything is cut; a subclass sets `output_dim`."""

    output_dim: int

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """States [B, T, D] of symbols [B, T]; zero on padding."""
        raise NotImplementedError

    def resume(self, symbols: Tensor, lengths: Tensor, state: object | None) -> tuple[Tensor, object]:
        """`forward` for a piece of each sentence, and the state to read the next piece from."""
        raise NotImplementedError

    def flops(self, symbols: int) -> int | None:
        """Floating-point operations of one sentence; None where it is not implemented."""
        return None


class Cutter(Part):
    """Decides where segments end."""

    figures: tuple[Figure, ...] = ()  # what is measured of its cuts
    losses: tuple[str, ...] = ()  # the names of its auxiliary losses
    loss_weights: Mapping[str, float | Knob] = {}  # by name; that of "penalty" is the config's tau
    knobs: Mapping[str, Knob] = {}  # as in BaseSegmenter
    sums_to: float | None = None  # as in BaseSegmenter
    carries: bool = False
    shiftable: bool = False  # whether it cuts by logits, and adds `Reading.shift` to them
    rate_kinds: tuple[Kind, ...] = ()  # the ways in which it can keep a rate, its usual one first
    needs_rate: bool = False
    cuttings: int = 1  # as in BaseSegmenter
    draws: bool = False
    jitter: float = 0.0
    imitates: bool = False
    input_dim: int | None = None  # the size of states that it reads; None: any

    def forward(self, reading: Reading, gaps: Gaps) -> Cuts:
        """Cut a batch, as `gaps` allows."""
        raise NotImplementedError

    def keep_rate(self, rate: Rate | None) -> None:
        """Receive the rate that was asked for; ValueError if it cannot be kept, or is needed and missing."""
        if rate is None and self.needs_rate:
            raise ValueError(f"rate is missing: cutter {self.kind} needs one, such as {{target: 4.0}}")
        if rate is not None and not self.rate_kinds:
            raise ValueError(f"rate is not for cutter {self.kind}, which takes none; leave it out")
        name = f"cutter {self.kind}"
        self.add_module("rate_control", None if rate is None else RateControl(rate, name, self.rate_kinds))

    @property
    def control(self) -> RateControl | None:
        """What keeps its rate; None: nothing does."""
        return kept_control(self)

    @property
    def threshold(self) -> Tensor | None:
        """[]: the threshold of its scores, to be set on training text; None: it has none."""
        kept = self.control is not None and self.control.by == "quantile"
        return self.control.threshold if kept and self.control is not None else None

    def ends_at(self, scores: Tensor, gaps: Gaps, threshold: float) -> Tensor:
        """[B, T] bool: where scores [B, T] cut under a threshold; only for a cutter that has one."""
        raise NotImplementedError

    def settled_length(self, texts: Sequence[ScoredText]) -> float:
        """The characters per segment that the threshold should give these texts."""
        assert self.control is not None
        return self.control.target.value.item()

    def feedback(self, cuts: Cuts, losses: Tensor) -> Tensor:
        """As in BaseSegmenter."""
        raise NotImplementedError

    def blend(self, states: Tensor, cuts: Cuts) -> Tensor:
        """The states [B, T, D] that are pooled, changed if need be; zero on padding."""
        return states

    def finish(self, vectors: Tensor, cuts: Cuts) -> Tensor:
        """The pooled vectors [B, S, D], changed if need be; anything finite beyond the last segment."""
        return vectors

    def needs_given(self) -> bool:
        """Whether it cuts only where cuts are given."""
        return False

    def needs_weights(self) -> bool:
        """Whether it learns through the weights of symbols, and so needs a pooling that uses them."""
        return False

    def room(self, characters: int) -> int | None:
        """The most segments that so many characters can have; None where that depends on the text."""
        return None

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """As in BaseSegmenter."""
        return None

    def flops(self, symbols: int) -> int | None:
        """Floating-point operations of one sentence; None where it is not implemented."""
        return 0


class Pooling(Part):
    """Makes one vector per segment."""

    uses_weights = False  # whether it uses the cutter's weights

    def whole_only(self) -> str | None:
        """It sees whole segments, whatever the pieces are."""
        return None

    def forward(self, states: Tensor, cuts: Cuts, size: int) -> Tensor:
        """[B, size, D] from states [B, T, D]; beyond a sentence's last segment anything finite."""
        raise NotImplementedError


class Segmenter(BaseSegmenter):
    """A reader, a cutter and a pooling, in place of `nn.Embedding`: [B, T] symbols to [B, S, D] segments.

    `output_dim`: the size of a linear layer after pooling; without one, segments have the reader's size.
    `rate`: how long segments should be, for cutters that can keep a rate, such as `Act` and `Cif`.

    The last symbol of each sentence counts as </s>: it joins the last segment, and no rate counts it.
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
        _check_kinds(reader, cutter, pooling, rate)
        cutter.keep_rate(rate)
        if cutter.needs_weights() and not pooling.uses_weights:
            reason = f"ignores the weights through which {cutter.kind} learns; take weighted"
            raise ValueError(f"pooling {pooling.kind} {reason}")
        if cutter.input_dim not in (None, reader.output_dim):
            what = f"cutter {cutter.kind} has input_dim {cutter.input_dim}"
            raise ValueError(f"{what}, but states of reader {reader.kind} have {reader.output_dim}")
        if output_dim is not None:
            check_sizes(output_dim=output_dim)
        self.reader, self.cutter, self.pooling = reader, cutter, pooling
        self.output = nn.Identity() if output_dim is None else nn.Linear(reader.output_dim, output_dim)
        self.output_dim = reader.output_dim if output_dim is None else output_dim
        self.figures, self.sums_to, self.carries = cutter.figures, cutter.sums_to, cutter.carries
        self.losses, self.loss_weights, self.knobs = cutter.losses, cutter.loss_weights, cutter.knobs
        self.rate_kinds, self.cuttings, self.draws = cutter.rate_kinds, cutter.cuttings, cutter.draws
        self.imitates, self.jitter = cutter.imitates, cutter.jitter
        if (control := cutter.control) is not None:
            self.loss_weights = {**self.loss_weights, **control.loss_weights}
            self.losses = (*self.losses, *(name for name in control.loss_weights if name not in self.losses))
            self.knobs = {**self.knobs, **control.knobs}

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """Read and cut; in pieces with `state`, and `final=False` on all but the last.

        In pieces, the cuts are those of the symbols that no segment had taken before.
        """
        if state is not None or not final:
            return self._piece(symbols, lengths, state, final, given)
        return self._whole(symbols, lengths, given)

    @property
    def kind(self) -> str:
        """Its cutter, as messages name it."""
        return f"cutter {self.cutter.kind}"

    @property
    def shiftable(self) -> bool:
        """As the cutter says."""
        return self.cutter.shiftable

    def cut_shifted(self, symbols: Tensor, lengths: Tensor, shift: Tensor, given: Tensor | None) -> Draft:
        """Read, and cut by the shifted logits."""
        return self._whole(symbols, lengths, given, shift)

    def _whole(
        self, symbols: Tensor, lengths: Tensor, given: Tensor | None, shift: Tensor | None = None
    ) -> Draft:
        mask = positions_mask(lengths, symbols.shape[1])
        states = self.reader(symbols, lengths)
        reading = Reading(states, symbols, lengths, mask, shift=shift)
        cuts = self.cutter(reading, Gaps.of(lengths, mask, given))
        if self.control is not None:
            losses = self.control.losses(cuts.logits, cuts.scores, reading.text)
            cuts = replace(cuts, losses={**cuts.losses, **losses})
        room = self.room(symbols.shape[1]) if given is None else None
        return Draft(replace(cuts, segments=_most(cuts.ends) if room is None else room), (states, None))

    @property
    def settles(self) -> bool:
        """Whether the cutter has a threshold to set."""
        return self.cutter.threshold is not None

    @torch.no_grad()
    def settle(self, texts: Iterable[Text]) -> None:
        """If the cutter has a threshold, set it so that these texts get the rate asked for."""
        threshold = self.cutter.threshold
        if threshold is None:
            return
        scored: list[ScoredText] = []
        for symbols, lengths, given in texts:
            logits = self._whole(symbols, lengths, given).cuts.logits
            assert logits is not None
            # On the host, because each threshold that is tried takes many small steps.
            sizes, mask = lengths.cpu(), positions_mask(lengths, symbols.shape[1]).cpu()
            gaps = Gaps.of(sizes, mask, None if given is None else given.cpu())
            scored.append((torch.sigmoid(logits.cpu()) * mask, gaps, sizes))

        def count_at(threshold: float) -> tuple[int, int]:
            counts = [count_cuts(self.cutter.ends_at(s, gaps, threshold), n) for s, gaps, n in scored]
            return sum(int(c.characters) for c in counts), sum(int(c.segments) for c in counts)

        threshold.fill_(threshold_for(count_at, self.cutter.settled_length(scored)))

    def _piece(
        self, symbols: Tensor, lengths: Tensor, state: object | None, final: bool, given: Tensor | None
    ) -> Draft:
        """Cut what waits of the pieces before together with this one."""
        for part in (self.reader, self.cutter, self.pooling):
            if why := part.whole_only():
                raise ValueError(f"this segmenter cannot take a sentence in pieces: {why}")
        before = check_piece(state, OpenSegments, lambda at: at.lengths, symbols, lengths, final)
        states, at = self.reader.resume(symbols, lengths, None if before is None else before.reader)
        reading, given = joined(before, states, symbols, lengths, given)
        cuts = self.cutter(reading, Gaps.of(reading.lengths, reading.mask, given, final))
        still_open = cuts.ends.flip(1).cumsum(1).flip(1) == 0
        weights = cuts.weights.masked_fill(still_open, 0)
        cuts = replace(cuts, weights=weights, segments=_most(cuts.ends))
        return Draft(cuts, (reading.states, None if final else waiting(reading, given, cuts.ends, at)))

    def emit(self, draft: Draft, size: int) -> Segments:
        """Pool and project."""
        states, state = draft.parts
        if draft.cuts.copies > 1:
            states = states.repeat(draft.cuts.copies, 1, 1)
        counts = draft.cuts.ends.sum(1)
        pooled = self.pooling(self.cutter.blend(states, draft.cuts), draft.cuts, size)
        vectors = self.output(self.cutter.finish(pooled, draft.cuts))
        vectors = vectors.masked_fill(~positions_mask(counts, size)[..., None], 0)
        return Segments(vectors, counts, draft.cuts, state)

    def feedback(self, cuts: Cuts, losses: Tensor) -> Tensor:
        """What the cutter learns from the losses."""
        return self.cutter.feedback(cuts, losses)

    @property
    def control(self) -> RateControl | None:
        """The cutter's."""
        return self.cutter.control

    def room(self, symbols: int) -> int | None:
        """As the cutter says; </s> is not counted."""
        return self.cutter.room(max(0, symbols - 1))

    def uncaptured(self) -> str | None:
        """The first reason that a part has."""
        parts = (self.reader, self.cutter, self.pooling)
        return next((why for part in parts if (why := part.uncaptured())), super().uncaptured())

    def needs_given(self) -> bool:
        """As the cutter does."""
        return self.cutter.needs_given()

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """The cutter's remark."""
        return self.cutter.remark(live, length, first)

    def flops(self, symbols: int, segments: int) -> int | None:
        """Reader, cutter and the output layer; pooling is not counted."""
        parts = self.reader.flops(symbols), self.cutter.flops(symbols)
        if parts[0] is None or parts[1] is None:
            return None
        projected = 2 * self.reader.output_dim * self.output_dim * isinstance(self.output, nn.Linear)
        return parts[0] + parts[1] + segments * projected

    def check_tau(self, tau: Setting) -> None:
        """A cutter without a penalty has nothing for tau to weigh."""
        if tau and "penalty" not in self.losses:
            reason = f"cutter {self.cutter.kind} has no penalty; leave it out"
            raise ValueError(f"tau is {shown(tau)}, but {reason}")
        super().check_tau(tau)


def _most(ends: Tensor) -> Tensor | int:
    return ends.sum(1).max() if len(ends) else 0


def _check_kinds(reader: object, cutter: object, pooling: object, rate: object) -> None:
    """Refuse arguments that are swapped, classes or plain numbers, before they fail somewhere deep."""
    parts = {"reader": (reader, Reader), "cutter": (cutter, Cutter), "pooling": (pooling, Pooling)}
    for name, (part, kind) in parts.items():
        if not isinstance(part, kind):
            what = part.__name__ if isinstance(part, type) else repr(part)[:40]
            raise TypeError(f"{name} should be a {kind.__name__}, such as {_SUCH_AS[name]}, not {what}")
    if rate is not None and not isinstance(rate, Rate):
        raise TypeError(f"rate should be a Rate, such as Rate(4.0), not {repr(rate)[:40]}")


_SUCH_AS = {"reader": "BiGru(100, 64, 50)", "cutter": "Fixed(4)", "pooling": "Mean()"}
