"""ACT-ENC (Kreutzer & Sokolov 2018, Algorithm 1): a GRU and a halting unit that emit a vector per segment."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels.act_scan import ActCarry, ActSegments, ActWeights, act_segments
from caesura.layers.checks import check_finite, check_shares, check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.masks import positions_mask
from caesura.layers.recurrent import gru_flops
from caesura.schedules import Setting, shown
from caesura.segmenters.base import BaseSegmenter, Cuts, Draft, Segments, SymbolIds, check_piece
from caesura.segmenters.cutters.act import FIGURES, remark
from caesura.segmenters.figures import LIVE
from caesura.segmenters.rate import Kind, Rate, RateControl, start_logit


@dataclass(frozen=True)
class ActState:
    """Where the sentences of a batch stand between two pieces of them. A: act_size."""

    hidden: Tensor  # [B, A] s, the state
    mean: Tensor  # [B, A]   s_mean, the open segment's running mean
    halting_sum: Tensor  # [B] H
    non_halting: Tensor  # [B] the sum that Algorithm 1 calls R
    count: Tensor  # [B]     symbols read so far


class BackwardCell(nn.Module):
    """The second cell of a bidirectional ACT-ENC: it reads from the end, and weighs a segment's states."""

    def __init__(self, embedding_dim: int, act_size: int, output_dim: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(embedding_dim, act_size)
        self.halting = nn.Linear(act_size, 1)
        self.output = nn.Linear(act_size, output_dim, bias=False)  # the first cell's has one


class ActSegmenter(BaseSegmenter):
    """A layer in place of `nn.Embedding` that learns where to cut: [B, T] symbols to [B, S, D] segments.

    The halting unit scores every symbol; a segment ends where the scores of its symbols reach 1 - epsilon,
    and at the sentence's last symbol. Its vector is the projected mean of its states, weighted by the scores.

    With `learn_halting=False` every score is sigmoid(halting_bias) and stays so. At 1 / k (above epsilon) all
    segments but a sentence's last are of k symbols, their vectors plain means (docs/paper_notes.md, 7).

    After each symbol of `cut_after` a segment ends too, whatever the scores say.

    With a `rate`, a controller sets the weight of the penalty, and the first segments are as long as it asks,
    whatever `halting_bias` is.

    With `bidirectional`, a second cell with weights of its own reads from the end, under the cuts of the
    first. Its scores decide only how much states weigh. A segment's vector is one projection of both means,
    concatenated; its size stays `output_dim`. The weights and scores of `Cuts` are the first cell's.
    """

    losses = ("penalty",)
    rate_kinds: tuple[Kind, ...] = ("pi",)

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        act_size: int,
        output_dim: int,
        epsilon: float = 0.01,
        halting_bias: float = 1.0,
        learn_halting: bool = True,
        cut_after: SymbolIds = (),
        rate: Rate | None = None,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim, act_size=act_size, output_dim=output_dim)
        check_shares(epsilon=epsilon)
        check_finite(halting_bias=halting_bias)
        # A tuple, not a tensor: it has no device, and `to_empty` cannot lose it.
        self.cut_after = _ids(cut_after, vocab_size)
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.cell = nn.GRUCell(embedding_dim, act_size)
        self.halting = nn.Linear(act_size, 1)
        self.output = nn.Linear(act_size, output_dim)
        self.epsilon = epsilon
        self.output_dim = output_dim
        self.learn_halting = learn_halting
        self.sums_to = 1 - epsilon
        self.figures = FIGURES if learn_halting else tuple(f for f in FIGURES if f is not LIVE)
        # Not given by the paper; it decides the segment length training starts from (docs/paper_notes.md, 7).
        self.back = BackwardCell(embedding_dim, act_size, output_dim) if bidirectional else None
        for unit in self._halting_units():
            nn.init.constant_(unit.bias, halting_bias)
            if not learn_halting:  # drawn all the same, so that other weights do not depend on this option
                nn.init.zeros_(unit.weight)
                unit.requires_grad_(False)
        if rate is not None:
            self._keep_rate(rate)

    def _keep_rate(self, rate: Rate) -> None:
        if not self.learn_halting:
            raise ValueError("rate needs learn_halting: true; nothing else moves the cuts")
        control = RateControl(rate, "ACT-ENC", self.rate_kinds)
        self.add_module("rate_control", control)
        self.knobs, self.loss_weights = control.knobs, control.loss_weights
        for unit in self._halting_units():
            nn.init.constant_(unit.bias, start_logit(rate.target, 1 - self.epsilon))

    def _halting_units(self) -> list[nn.Linear]:
        return [self.halting] if self.back is None else [self.halting, self.back.halting]

    def extra_repr(self) -> str:
        """The settings that its modules do not show: epsilon, and those that are not the default."""
        settings = [f"epsilon={self.epsilon:g}"]
        settings += [] if self.learn_halting else ["learn_halting=False"]
        settings += [] if self.back is None else ["bidirectional=True"]
        return ", ".join(settings + ([f"cut_after={[*self.cut_after]}"] if self.cut_after else []))

    def cut(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: object | None = None,
        final: bool = True,
        given: Tensor | None = None,
    ) -> Draft:
        """Scan `symbols` [B, T]; in pieces with `state`, and `final=False` on all but the last."""
        if self.back is not None and (state is not None or not final):
            reason = "with bidirectional, a second cell reads from the end"
            raise ValueError(f"this segmenter cannot take a sentence in pieces: {reason}")
        before = check_piece(state, ActState, lambda at: at.count, symbols, lengths, final)
        return self._drafted(symbols, lengths, self._scan(symbols, lengths, before, final, given), final)

    @property
    def shiftable(self) -> bool:
        """Where its halting unit reads the text."""
        return self.learn_halting

    def cut_shifted(self, symbols: Tensor, lengths: Tensor, shift: Tensor, given: Tensor | None) -> Draft:
        """Scan whole sentences, on the reference path."""
        return self._drafted(symbols, lengths, self._scan(symbols, lengths, None, True, given, shift), True)

    def _drafted(
        self, symbols: Tensor, lengths: Tensor, scanned: tuple[ActSegments, ActState], final: bool
    ) -> Draft:
        scan, after = scanned
        penalty = _penalty(after) if final else torch.zeros_like(after.non_halting)
        live = None
        if self.learn_halting:  # a symbol's weight is its score, unless it ends a segment
            live = positions_mask(lengths, symbols.shape[1]) & ~scan.ends & (scan.weights == scan.scores)
        cuts = Cuts(
            ends=scan.ends,
            weights=scan.weights,
            segments=scan.lengths.max() if len(scan.lengths) else 0,
            scores=scan.scores,
            losses={"penalty": penalty},
            live=live,
        )
        back = None if self.back is None else self._scan_back(self.back, symbols, lengths, scan.ends)
        return Draft(cuts, (scan.vectors, scan.lengths, None if final else after, back))

    def emit(self, draft: Draft, size: int) -> Segments:
        """One output projection per segment, as its p sum to 1 (docs/paper_notes.md, 2)."""
        means, lengths, after, back = draft.parts
        vectors = self._project(means[:, :size])
        if self.back is not None:
            vectors = vectors + _project_back(self.back, back, lengths, size)
        return Segments(vectors, lengths, draft.cuts, after)

    def check_tau(self, tau: Setting) -> None:
        """A penalty moves the halting unit alone."""
        if tau and not self.learn_halting:
            reason = "with learn_halting: false the penalty has nothing to move; set it to 0"
            raise ValueError(f"tau is {shown(tau)}, and {reason}")
        super().check_tau(tau)

    @property
    def learns(self) -> bool:
        """Whether its halting unit does."""
        return self.learn_halting

    def remark(self, live: float | None, length: float, first: bool) -> str | None:
        """Where a halting unit is close to an extreme, or does not learn."""
        if first and not self.learn_halting:
            return "model.segmenter.learn_halting is false: where segments end will not change"
        return remark(live, length, first, "model.segmenter", self.control is not None)

    def flops(self, symbols: int, segments: int) -> int:
        """The cell and the halting unit per symbol, the output layer per segment; for each direction."""
        width = self.cell.hidden_size
        each = gru_flops(self.cell.input_size, width) + 2 * width
        return len(self._halting_units()) * (symbols * each + segments * 2 * width * self.output_dim)

    def shared_cell(self) -> dict[str, nn.Module]:
        """S, W_h and W_o, under ACT-DEC's names; with two cells, those of the first."""
        if not self.learn_halting:
            raise ValueError("share needs learn_halting: true in the segmenter, whose unit it takes")
        return {"inner": self.cell, "halting": self.halting, "output": self.output}

    def start(self, size: int, like: Tensor) -> ActState:
        """The state before the first symbol of `size` sentences, with the dtype and device of `like`."""
        zeros = like.new_zeros(size)
        hidden = like.new_zeros(size, self.cell.hidden_size)
        return ActState(hidden, hidden, zeros, zeros, zeros)

    def _scan(
        self,
        symbols: Tensor,
        lengths: Tensor,
        state: ActState | None,
        final: bool,
        given: Tensor | None,
        shift: Tensor | None = None,
    ) -> tuple[ActSegments, ActState]:
        """Algorithm 1's loop over all sentences at once, with masks; no shape depends on the cuts."""
        left = lengths[:, None] - torch.arange(symbols.shape[1], device=symbols.device)
        forced = left == 1 if final else torch.zeros_like(left, dtype=torch.bool)
        for symbol in self.cut_after:
            forced = forced | (symbols == symbol)
        if given is not None:  # </s> ends the last segment whatever is given
            forced = torch.where(forced, torch.ones_like(given), given)
        segments, carry = self._run(self.cell, self.halting, symbols, left > 0, forced, state, shift)
        count = lengths if state is None else state.count + lengths
        return segments, ActState(*carry, count.to(carry.R.dtype))

    def _scan_back(self, back: BackwardCell, symbols: Tensor, lengths: Tensor, ends: Tensor) -> Tensor:
        """[B, T, > A]: the second cell's means, the last segment first.

        Read from the end, a segment ends at the symbol that begins it.
        """
        begins = torch.cat((torch.ones_like(ends[:, :1]), ends[:, :-1]), 1)
        mirror = (lengths[:, None] - 1 - torch.arange(symbols.shape[1], device=symbols.device)).clamp(min=0)
        forced = torch.where(begins, 1, -1).to(torch.int8).gather(1, mirror)
        mask = positions_mask(lengths, symbols.shape[1])
        return self._run(back.cell, back.halting, symbols.gather(1, mirror), mask, forced)[0].vectors

    def _run(
        self,
        cell: nn.GRUCell,
        halting: nn.Linear,
        symbols: Tensor,
        mask: Tensor,
        forced: Tensor,
        state: ActState | None = None,
        shift: Tensor | None = None,
    ) -> tuple[ActSegments, ActCarry]:
        """One cell over `symbols` [B, T]; `forced` as in `act_segments`."""
        device = symbols.device
        # Over a small vocabulary, a table of projections is a small product: autocast need not round it.
        table = self.embedding.num_embeddings <= symbols.numel()
        rows = self.embedding.weight if table else self.embedding(symbols)
        rounded = torch.is_autocast_enabled(device.type) and not table
        with torch.autocast(device.type, enabled=rounded):
            projections = F.linear(rows, cell.weight_ih, cell.bias_ih)
        # State, mean and halting sum stay in float32 or better, whatever autocast does to the products.
        projections = projections.to(torch.promote_types(projections.dtype, torch.float32))
        weights = cell.weight_hh, cell.bias_hh, halting.weight, halting.bias
        at = state or self.start(len(symbols), projections)
        return act_segments(
            projections,
            symbols if table else None,
            ActWeights(*(weight.to(projections.dtype) for weight in weights)),
            ActCarry(at.hidden, at.mean, at.halting_sum, at.non_halting),
            mask,
            forced,
            self.epsilon,
            shift,
        )

    def _project(self, means: Tensor) -> Tensor:
        """[B, S, D] from the means, each with its 1."""
        # The bias is one more column (the others meet zeros), so that zeros stay beyond the last segment.
        columns = means.shape[2] - self.output.in_features
        weight = torch.cat((self.output.weight, self.output.bias[:, None].expand(-1, columns)), 1)
        if not torch.is_autocast_enabled(means.device.type):
            means = means.to(weight.dtype)
        return F.linear(means, weight)


def _project_back(back: BackwardCell, means: Tensor, lengths: Tensor, size: int) -> Tensor:
    """[B, size, D] from the second cell's means, whose order is reversed."""
    mirror = (lengths[:, None] - 1 - torch.arange(size, device=means.device)).clamp(min=0)
    means = means[..., : back.output.in_features]
    turned = means.gather(1, mirror[..., None].expand(-1, -1, means.shape[2]))
    turned = turned.masked_fill(~positions_mask(lengths, size)[..., None], 0)
    if not torch.is_autocast_enabled(means.device.type):
        turned = turned.to(back.output.weight.dtype)
    return F.linear(turned, back.output.weight)


def _ids(given: SymbolIds, vocab_size: int) -> tuple[int, ...]:
    if isinstance(given, str):
        raise TypeError("cut_after should be ids of symbols, not text; a config takes characters")
    try:
        ids = tuple(dict.fromkeys(map(index, given)))
    except TypeError:
        raise TypeError("cut_after should be a list of symbol ids, whole numbers") from None
    if wrong := [symbol for symbol in ids if not 0 <= symbol < vocab_size]:
        raise ValueError(f"cut_after should be ids from 0 to {vocab_size - 1}, not {wrong[0]}")
    return ids


def _penalty(state: ActState) -> Tensor:
    """[B]: R counts one 1 for the whole sentence, so this can be negative (docs/paper_notes.md, 4)."""
    return (1 - state.non_halting) * ((state.count > 0) / state.count.clamp(min=1))
