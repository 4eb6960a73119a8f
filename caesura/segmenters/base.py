"""The contract of every segmenter: symbols in, cuts and one vector per segment out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_batch, check_ids
from caesura.layers.knobs import Knob
from caesura.schedules import Setting, shown
from caesura.segmenters.figures import LIVE, Figure
from caesura.segmenters.rate import Kind, RateControl, kept_control

# One line per segmenter: its name in a config, and where its class lives. Extensions add their class itself.
SEGMENTERS: dict[str, str | type[BaseSegmenter]] = {
    "parts": "caesura.segmenters.parts:Segmenter",
    "lookup": "caesura.segmenters.lookup:LookupSegmenter",
    "act": "caesura.segmenters.act:ActSegmenter",
    "hmrnn": "caesura.segmenters.hmrnn:HmrnnSegmenter",
}

# An option that is given as characters in a config, and as ids of the source vocabulary in Python.
SymbolIds = Annotated[Sequence[int], "characters"]

Text = tuple[Tensor, Tensor, Tensor | None]  # symbols [B, T], lengths [B], given cuts [B, T]


@dataclass(frozen=True)
class Cuts:
    """Where segments end, and each symbol's weight in them. B sentences, T source symbols.

    No tensor's shape depends on where the cuts are, so that one captured graph serves every batch of a shape.
    """

    ends: Tensor  # [B, T]       bool: this symbol ends a segment; False on padding
    weights: Tensor  # [B, T]    this symbol's weight in its segment; 0 on padding
    segments: Tensor | int = 0  # [] most segments of a sentence; an int where T alone bounds it
    spill: Tensor | None = None  # [B, T]   the last symbol's weight in the next segment; None: 0
    scores: Tensor | None = None  # [B, T]  in [0, 1], for analysis
    losses: Mapping[str, Tensor] = field(default_factory=dict)  # [B] each, by name, before its weight
    # [B, T] bool: where a loss or `feedback` reaches the cutter; None: nowhere
    live: Tensor | None = None
    logits: Tensor | None = None  # [B, T]  of the scores: a rate may push them, and imitation does
    # [B, T]: added to the logits of the first cutting, subtracted in the second
    noise: Tensor | None = None
    copies: int = 1  # K cuttings of each sentence: ends, weights and spill have rows k * B + b, the rest B


@dataclass(frozen=True)
class Segments:
    """The result of a segmenter. B sentences, S segments, D features."""

    vectors: Tensor  # [B, S, D] one vector per segment, zero beyond a sentence's last one
    lengths: Tensor  # [B]       segments in each sentence
    cuts: Cuts
    state: object | None = None  # what the next piece of the same sentences continues from (streaming)

    @property
    def ends(self) -> Tensor:
        """[B, T] bool: this symbol ends a segment."""
        return self.cuts.ends

    @property
    def places(self) -> Tensor:
        """[B, S]: the index of each segment's last symbol; T beyond a sentence's last segment."""
        (B, S), ends = self.vectors.shape[:2], self.ends
        numbers = torch.arange(1, S + 1, device=ends.device).expand(B, S)
        return torch.searchsorted(ends.cumsum(1), numbers.contiguous())

    @property
    def weights(self) -> Tensor:
        """[B, T]: this symbol's weight in its segment."""
        return self.cuts.weights

    @property
    def spill(self) -> Tensor | None:
        """[B, T]: the weight of a segment's last symbol in the next segment."""
        return self.cuts.spill

    @property
    def scores(self) -> Tensor | None:
        """[B, T] in [0, 1], for analysis."""
        return self.cuts.scores

    @property
    def live(self) -> Tensor | None:
        """[B, T] bool: here the loss reaches the cutter."""
        return self.cuts.live

    @property
    def penalty(self) -> Tensor:
        """[B]: the auxiliary loss of that name, before tau; of pieces of a sentence, the last has it."""
        return self.cuts.losses.get("penalty", self.vectors.new_zeros(len(self.lengths)))


@dataclass(frozen=True)
class Draft:
    """Cuts before the vectors, with the parts from which the segmenter makes these."""

    cuts: Cuts
    parts: Any  # the segmenter's own; no shape in it depends on where the cuts are


class BaseSegmenter(nn.Module):
    """Reads symbols and returns vectors; it decides how many.

    Most segmenters are `Segmenter(reader, cutter, pooling)`. A subclass of this one is a mechanism that
    cannot be taken apart: it sets `output_dim` and defines `cut` and `emit`, which training on a GPU captures
    in graphs, or the whole of `forward`. Nothing downstream knows which segmenter it has.
    """

    output_dim: int
    figures: tuple[Figure, ...] = ()  # what is measured of its cuts
    losses: tuple[str, ...] = ()  # the names of its auxiliary losses
    loss_weights: Mapping[str, float | Knob] = {}  # by name; that of "penalty" is the config's tau
    knobs: Mapping[str, Knob] = {}  # numbers that training may change, by the names of logs
    rate_kinds: tuple[Kind, ...] = ()  # the ways in which it can keep a rate, its usual one first
    sums_to: float | None = None  # the sum of scores at which a segment ends; None: scores are not summed
    carries: bool = False  # whether the excess over `sums_to` counts for the next segment
    takes_cuts: bool = True  # whether cuts can be given to it
    cuttings: int = 1  # of each sentence in training, whose losses `feedback` compares
    draws: bool = False  # whether cuts are drawn in training
    jitter: float = 0.0  # the standard deviation of what training adds to logits to estimate their gradient
    cut_after: tuple[int, ...] = ()  # symbols that always end a segment
    imitates: bool = False  # whether its cuts have logits, so that it can learn other cuts

    def forward(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Segments:
        """Segment `symbols` [B, T]; `final=False` leaves each last segment open for the next piece.

        `given` [B, T] int8: 1 cut after this symbol, -1 do not, 0 as the segmenter decides.
        """
        try:
            draft = self.cut(symbols, lengths, state, final, given)
            return self.emit(draft, int(draft.cuts.segments))  # a tensor on a GPU has to be waited for
        except IndexError:
            for table in self.modules():
                if isinstance(table, nn.Embedding):
                    check_ids(symbols, table.num_embeddings)
            raise

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """The part of `forward` that comes before the number of segments is known."""
        raise NotImplementedError

    def emit(self, draft: Draft, size: int) -> Segments:
        """The rest of it, with room for `size` segments per sentence."""
        raise NotImplementedError

    @property
    def shiftable(self) -> bool:
        """Whether it cuts by scores, to which `shifted` can add something."""
        return False

    def shifted(
        self, symbols: Tensor, lengths: Tensor, shift: Tensor, given: Tensor | None = None
    ) -> Segments:
        """`forward` with `shift` [B, T] added to the logit of each symbol's score, for analysis."""
        if not self.shiftable:
            raise ValueError(f"{self.kind} has no scores that could be shifted")
        check_batch(symbols, lengths)
        if given is not None:
            _check_given(given, symbols)
        if shift.shape != symbols.shape:
            shape = f"the shape of symbols, {list(symbols.shape)}"
            raise ValueError(f"shift should have {shape}, not {list(shift.shape)}")
        draft = self.cut_shifted(symbols, lengths, shift, given)
        return self.emit(draft, int(draft.cuts.segments))

    def cut_shifted(self, symbols: Tensor, lengths: Tensor, shift: Tensor, given: Tensor | None) -> Draft:
        """`cut` with a shift, where `shiftable`."""
        raise NotImplementedError

    def feedback(self, cuts: Cuts, losses: Tensor) -> Tensor:
        """[B], to be added to the loss: what the cutter learns from the losses [K, B] of K cuttings."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    @property
    def control(self) -> RateControl | None:
        """The object that keeps its rate; None: nothing does."""
        return kept_control(self)

    @property
    def target(self) -> float | None:
        """The characters per segment that are asked for now; None where no rate is."""
        return None if self.control is None else self.control.target.value.item()

    @property
    def settles(self) -> bool:
        """Whether it cuts by a threshold that is set on training text."""
        return False

    def settle(self, texts: Iterable[Text]) -> None:
        """If it `settles`, set the threshold that gives these texts the rate asked for."""

    def room(self, symbols: int) -> int | None:
        """The most segments that so many symbols can have; None where that depends on the text."""
        return None

    def uncaptured(self) -> str | None:
        """Why training cannot capture this segmenter in CUDA graphs; None where it can."""
        if type(self).forward is not BaseSegmenter.forward:
            return f"{type(self).__name__} defines forward as a whole, not cut and emit"
        return None

    def needs_given(self) -> bool:
        """Whether it cuts only where cuts are given."""
        return False

    def check_tau(self, tau: Setting) -> None:
        """Raise ValueError where a penalty of this weight makes no sense."""
        if tau and self.control is not None and self.control.by == "pi":
            raise ValueError(f"tau is {shown(tau)}, but rate by pi sets it; leave it out")

    def check_names(self, taken: Collection[str]) -> None:
        """Raise ValueError where a figure has a name that is `taken`, or a loss has no weight."""
        names = [figure.name for figure in self.figures]
        for name in names:
            if name in taken or names.count(name) > 1:
                raise ValueError(f"the figure '{name}' has a name that is taken; choose another")
        if missing := [name for name in self.losses if name != "penalty" and name not in self.loss_weights]:
            raise ValueError(f"the loss '{missing[0]}' has no weight; name it in loss_weights")

    @property
    def learns(self) -> bool:
        """Whether training moves its cuts."""
        return bool(self.losses) or LIVE in self.figures

    def remedy(self, short: bool, tau: float) -> str:
        """The settings to change where segments are too short, or too long; `tau` is the penalty's weight."""
        if self.control is not None:
            return self.control.remedy(short)
        ways = []
        if "penalty" in self.losses and (tau > 0 or not short):  # below 0 the penalty would reward length
            ways.append(f"{'lower' if short else 'raise'} model.segmenter.tau")
        if self.rate_kinds:
            ways.append("ask for a length with model.segmenter.rate")
        return ", or ".join(ways) or "change the options of model.segmenter"

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """Advice on a model with segments of this length, if any; `first`: training has not begun yet."""
        return None

    def flops(self, symbols: int, segments: int) -> int | None:
        """Floating-point operations of one sentence, </s> included; None where it is not implemented."""
        return None

    def shared_cell(self) -> dict[str, nn.Module]:
        """The cell, halting and output layer that ACT-DEC may share; ValueError where there are none."""
        raise ValueError("share needs a segmenter of type act, whose parameters it takes")

    def share_table(self, table: nn.Embedding) -> None:
        """Look symbols up in a decoder's table from now on; ValueError where they are not just looked up."""
        raise ValueError("share needs a segmenter of type lookup")

    def __call__(
        self,
        symbols: Tensor,
        lengths: Tensor | Sequence[int],
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Segments:
        sizes = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")  # a copy
        check_batch(symbols, sizes)
        if given is not None:
            _check_given(given, symbols)
        if sizes is not lengths:
            sizes = sizes.to(symbols.device, torch.long)
        return super().__call__(symbols, sizes, state, final, given)


State = TypeVar("State")


def check_piece(
    state: object | None,
    kind: type[State],
    rows: Callable[[State], Tensor],
    symbols: Tensor,
    lengths: Tensor,
    final: bool,
) -> State | None:
    """The state that a piece of each sentence goes on from, if it fits; `rows` has one row per sentence."""
    if state is None:
        return None
    if not isinstance(state, kind):
        raise TypeError(f"state should be what this segmenter returned, not {type(state).__name__}")
    if (count := len(rows(state))) != len(symbols):
        raise ValueError(f"state should have B = {len(symbols)} sentences, not {count}")
    if final and bool((lengths < 1).any()):
        raise ValueError("the last piece of a sentence needs at least one symbol, such as </s>")
    return state


def _check_given(given: object, symbols: Tensor) -> None:
    if isinstance(given, Tensor) and given.shape == symbols.shape and given.dtype == torch.int8:
        return
    what = type(given).__name__
    if isinstance(given, Tensor):
        what = f"{str(given.dtype).removeprefix('torch.')} {list(given.shape)}"
    form = f"an int8 tensor with the shape of symbols, {list(symbols.shape)}"
    raise ValueError(f"given should be {form} (1 cut here, -1 do not, 0 free), not {what}")
