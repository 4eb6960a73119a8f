"""The lower layer of a hierarchical multiscale LSTM (Chung, Ahn & Bengio 2017), which cuts as it reads.

After each cut its cell starts anew (FLUSH), else it goes on (UPDATE). The layer above moves at cuts (UPDATE)
and waits between them (COPY): here it is the encoder over segments. docs/paper_notes.md, 20.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.checks import check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.knobs import Knob
from caesura.layers.masks import positions_mask
from caesura.layers.modes import evaluating
from caesura.schedules import Setting, extremes, first, shown
from caesura.segmenters.base import BaseSegmenter, Cuts, Draft, Segments, Text, check_piece
from caesura.segmenters.figures import LIVE
from caesura.segmenters.pooling import Last
from caesura.segmenters.rate import Kind, Rate, RateControl, count_cuts, threshold_near

# A sentence's last cut is always there, so it has no gradient. Given cuts have one, as the layer's own do.
END = 2
MOST_OWED = 20.0  # segments: any more count as so many, as given cuts may owe hundreds


@dataclass(frozen=True)
class HmrnnState:
    """Where the sentences of a batch stand between two pieces of them. H: the layer's size."""

    hidden: Tensor  # [B, H] h
    cell: Tensor  # [B, H]   c
    cut: Tensor  # [B]       z: 1 where the last symbol ended a segment
    owed: Tensor  # [B]      segments still missing for the rate; 0 without a rate


class HmrnnSegmenter(BaseSegmenter):
    """An LSTM over symbols with a boundary detector: [B, T] symbols to [B, S, D] segments.

    A segment ends where the detector's logit s is above 0, and at the sentence's last symbol. Its vector is a
    projection of the state there. Backwards, a cut has the gradient of the hard sigmoid of `slope` times s.

    Without a `rate`, the first segments have about two symbols. With one, they are about as long as it asks:
    the more segments it asks for that have not come yet, the higher s.
    """

    figures = (LIVE,)
    imitates = True
    rate_kinds: tuple[Kind, ...] = ("quantile",)

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        size: int,
        output_dim: int,
        slope: Setting = 1.0,
        rate: Rate | None = None,
    ) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim, size=size, output_dim=output_dim)
        if not extremes(slope)[0] > 0:
            raise ValueError(f"slope must be more than 0, not {shown(slope)}")
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.cell = nn.LSTMCell(embedding_dim, size)
        self.boundary = nn.Linear(embedding_dim + size, 1)
        self.output = nn.Linear(size, output_dim)
        self.output_dim = output_dim
        self.slope = Knob(slope)
        self.knobs = {"slope": self.slope}
        # The paper's detector is one more row of the cell's matrices. Adam moves every weight by about the
        # learning rate, so a logit of many features would move too fast for the slope. So the weights start
        # at about 1, and their sum is divided by the root of their number.
        self.scale = (embedding_dim + size) ** -0.5
        nn.init.normal_(self.boundary.weight)
        nn.init.zeros_(self.boundary.bias)
        if rate is not None:
            self._keep_rate(rate, embedding_dim)

    def _keep_rate(self, rate: Rate, inputs: int) -> None:
        control = RateControl(rate, "segmenter hmrnn", self.rate_kinds)
        self.add_module("rate_control", control)
        self.knobs = {**self.knobs, **control.knobs}
        # The logits of a fresh layer are about normal: nearly all of their spread is that of the embeddings.
        share = min(1 / first(rate.target), 1 - 1e-3)
        with torch.no_grad():
            spread = self.boundary.weight[:, :inputs].norm() * self.scale
            self.boundary.bias.copy_(NormalDist().inv_cdf(share) * spread)

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """Read `symbols` [B, T]; in pieces with `state`, and `final=False` on all but the last."""
        before = check_piece(state, HmrnnState, lambda at: at.cut, symbols, lengths, final)
        return self._read(symbols, lengths, before, final, given)

    @property
    def shiftable(self) -> bool:
        """Where its detector reads the text."""
        return True

    def cut_shifted(self, symbols: Tensor, lengths: Tensor, shift: Tensor, given: Tensor | None) -> Draft:
        """Read whole sentences, with a shift of the logits s."""
        return self._read(symbols, lengths, None, True, given, shift)

    @property
    def settles(self) -> bool:
        """Whether its rate is kept by a threshold."""
        return self.control is not None

    @torch.no_grad()
    def settle(self, texts: Iterable[Text]) -> None:
        """Set the threshold; a cut changes what is read after it, so each one tried reads the texts again."""
        control, kept = self.control, [*texts]
        if control is None:
            return

        def count_at(threshold: float) -> tuple[int, int]:
            control.threshold.fill_(threshold)
            counts = [count_cuts(self.cut(s, n, given=cuts).cuts.ends, n) for s, n, cuts in kept]
            characters, segments = torch.stack([torch.stack(count) for count in counts]).sum(0).tolist()
            return characters, segments

        # From training's own threshold, which this does not change: settling again gives the same.
        assert control.training_threshold is not None
        start = control.training_threshold.value.item()
        with evaluating(self):
            best = threshold_near(count_at, control.target.value.item(), start) if kept else start
        control.threshold.fill_(best)

    def _read(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: HmrnnState | None,
        final: bool,
        given: Tensor | None,
        shift: Tensor | None = None,
    ) -> Draft:
        mask = positions_mask(lengths, symbols.shape[1])
        forced = _forced(lengths, mask, final, given)
        # States and logits stay in float32 or better, whatever autocast does elsewhere.
        with torch.autocast(symbols.device.type, enabled=False):
            embedded = self.embedding(symbols).masked_fill(~mask[..., None], 0)
            at = state or self.start(len(symbols), embedded)
            hidden, cells, cut, logits = self._scan(embedded, forced, at, shift)
            slope = self.slope.value.to(logits.dtype)
        ends = (cut.detach() > 0.5) & mask
        cuts = Cuts(
            ends=ends,
            weights=ends.to(hidden.dtype),
            segments=ends.sum(1).max() if len(ends) else 0,
            scores=_hard_sigmoid(logits, slope) * mask,
            live=mask & ((slope * logits).abs() < 1) & (forced != END),
            logits=logits,
        )
        after = None if final else self._after(at, hidden, cells, cut, lengths)
        # 1 at a cut, with the gradient of the cut: what the layer above reads is z h.
        return Draft(cuts, (hidden * cut[..., None], after))

    def _scan(
        self, embedded: Tensor, forced: Tensor, at: HmrnnState, shift: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """States h and cells c [B, T, H], cuts z and their logits s [B, T]; symbol by symbol.

        Plain operations: training captures them in a graph.
        """
        inputs, width = self.cell.input_size, self.cell.hidden_size
        bias = self.cell.bias_ih + self.cell.bias_hh
        gates = F.linear(embedded, self.cell.weight_ih, bias)  # of the symbols, all at once
        read = F.linear(embedded, self.boundary.weight[:, :inputs] * self.scale, self.boundary.bias)
        asked = read.new_zeros(read.shape)  # segments up to each symbol, less those of earlier pieces
        if (control := self.control) is not None and (threshold := control.current_threshold) is not None:
            places = torch.arange(1, 1 + read.shape[1], device=read.device) / control.target.value
            asked = (at.owed[:, None].double() + places - (2 * threshold).log())[..., None].to(read.dtype)
        if shift is not None:
            read = read + shift[..., None]
        both = torch.cat((gates, read), 2)
        recurrent = torch.cat((self.cell.weight_hh, self.boundary.weight[:, inputs:] * self.scale))
        slope, unit = self.slope.value.to(both.dtype), self._unit(both)
        h, c, z, made = at.hidden, at.cell, at.cut[:, None], torch.zeros_like(at.cut[:, None])
        results: list[tuple[Tensor, ...]] = []
        for x, due, decided in zip(both.unbind(1), asked.unbind(1), forced.unbind(1), strict=True):
            i, f, g, o, s = (x + F.linear(h, recurrent)).split((width, width, width, width, 1), 1)
            c = (1 - z) * torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # FLUSH where z is 1
            h = torch.sigmoid(o) * torch.tanh(c)
            s = s + unit * urgency(due - made)
            soft = _hard_sigmoid(s, slope)
            chosen = torch.where(decided[:, None] == 0, s > 0, decided[:, None] > 0)
            made = made + chosen
            z = chosen + (soft - soft.detach()) * (decided[:, None] != END)
            results.append((h, c, z, s))
        if not results:  # no symbols: the shapes of nothing
            return both[..., :width], both[..., :width], both[..., -1], both[..., -1]
        hidden, cells, cut, logits = (torch.stack(parts, 1) for parts in zip(*results, strict=True))
        return hidden, cells, cut.squeeze(2), logits.squeeze(2)

    def _unit(self, like: Tensor) -> Tensor:
        """[]: what `urgency` is multiplied with; 0 without a rate.

        About the spread of the logits in a fresh layer. It follows the weights as they grow.
        """
        if self.control is None:
            return like.new_zeros(())
        return self.boundary.weight.detach().norm().to(like.dtype) * self.scale

    def emit(self, draft: Draft, size: int) -> Segments:
        """Project the state at each cut."""
        states, after = draft.parts
        lengths = draft.cuts.ends.sum(1)
        vectors = self.output(Last()(states, draft.cuts, size))
        vectors = vectors.masked_fill(~positions_mask(lengths, size)[..., None], 0)
        return Segments(vectors, lengths, draft.cuts, after)

    def flops(self, symbols: int, segments: int) -> int:
        """The cell and the detector per symbol, the output layer per segment."""
        inputs, width = self.cell.input_size, self.cell.hidden_size
        return symbols * 2 * (4 * width + 1) * (inputs + width) + segments * 2 * width * self.output_dim

    def start(self, size: int, like: Tensor) -> HmrnnState:
        """The state before the first symbol of `size` sentences, with the dtype and device of `like`."""
        zeros, none = like.new_zeros(size, self.cell.hidden_size), like.new_zeros(size)
        return HmrnnState(zeros, zeros, none, none)

    def _after(
        self, at: HmrnnState, hidden: Tensor, cells: Tensor, cut: Tensor, lengths: Tensor
    ) -> HmrnnState:
        """The state after each sentence's last symbol so far."""
        if not hidden.shape[1]:
            return at
        last, some = (lengths - 1).clamp(min=0)[:, None], lengths > 0

        def picked(values: Tensor, before: Tensor) -> Tensor:
            wide = last[..., None].expand(-1, 1, values.shape[2])
            return torch.where(some[:, None], values.gather(1, wide).squeeze(1), before)

        owed = at.owed
        if self.control is not None:
            asked = lengths / self.control.target.value
            owed = owed + (asked - cut.detach().cumsum(1).gather(1, last).squeeze(1) * some).to(owed.dtype)
        moved = torch.where(some, cut.gather(1, last).squeeze(1), at.cut)
        return HmrnnState(picked(hidden, at.hidden), picked(cells, at.cell), moved, owed)


def urgency(owed: Tensor) -> Tensor:
    """What owed segments add to a logit, in units of its spread; below 0 there are too many of them.

    The state after many symbols without a cut can lower a logit by far more than its spread, and a long
    sentence would never be cut again. Since this grows like an exponential, few owed segments outweigh it.
    """
    return torch.sinh(owed.clamp(-MOST_OWED, MOST_OWED))


def _forced(lengths: Tensor, mask: Tensor, final: bool, given: Tensor | None) -> Tensor:
    """[B, T] int8: 1 cut here, -1 do not, 0 as the detector says, END after a sentence's last symbol."""
    forced = torch.where(mask, 0, -1).to(torch.int8)
    if given is not None:
        forced = torch.where(mask, given.sign(), forced)
    if not final:
        return forced
    last = torch.arange(mask.shape[1], device=mask.device) == lengths[:, None] - 1
    return forced.masked_fill(last, END)


def _hard_sigmoid(logits: Tensor, slope: Tensor) -> Tensor:
    """The paper's: max(0, min(1, (slope * logits + 1) / 2)); above one half where a logit is above 0."""
    return ((slope * logits + 1) / 2).clamp(0, 1)
