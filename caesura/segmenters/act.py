"""ACT-ENC (Kreutzer & Sokolov 2018, Algorithm 1): a GRU and a halting unit that emit a vector a segment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels.act_scan import ActCarry, ActWeights, act_scan
from caesura.segmenters.base import Segmenter, Segments, embedding_table, positions_mask


@dataclass(frozen=True)
class ActState:
    """Where the sentences of a batch stand between two pieces of them. A: act_size."""

    hidden: Tensor  # [B, A] s, the state
    mean: Tensor  # [B, A]   s_mean, the open segment's running mean
    halting_sum: Tensor  # [B] H
    non_halting: Tensor  # [B] the sum that Algorithm 1 calls R
    count: Tensor  # [B]     symbols read so far


@dataclass(frozen=True)
class Scan:
    """What the recurrence leaves behind, for every symbol of a batch."""

    means: Tensor  # [B, T, A] s_mean after this symbol: the segment's vector where it ends
    ends: Tensor  # [B, T]
    weights: Tensor  # [B, T]
    scores: Tensor  # [B, T]
    state: ActState


class ActSegmenter(Segmenter):
    """A layer in place of `nn.Embedding` that learns where to cut: [B, T] symbols to [B, S, D] segments.

    The halting unit scores every symbol; a segment ends where the scores of its symbols reach 1 - epsilon,
    and at the sentence's last symbol. Its vector is the projected mean of its states, weighted by the scores.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        act_size: int,
        output_dim: int,
        epsilon: float = 0.01,
        halting_bias: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (
            ("embedding_dim", embedding_dim),
            ("act_size", act_size),
            ("output_dim", output_dim),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be at least 0 and less than 1, not {epsilon}")
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.cell = nn.GRUCell(embedding_dim, act_size)
        self.halting = nn.Linear(act_size, 1)
        self.output = nn.Linear(act_size, output_dim)
        self.epsilon = epsilon
        self.output_dim = output_dim
        # Not given by the paper; it decides the segment length training starts from (docs/paper_notes.md, 7).
        nn.init.constant_(self.halting.bias, halting_bias)

    def forward(
        self, symbols: Tensor, lengths: Tensor, state: object | None = None, final: bool = True
    ) -> Segments:
        """Segment `symbols` [B, T]; in pieces with `state`, and `final=False` on all but the last."""
        if state is not None and not isinstance(state, ActState):
            raise TypeError(f"state should be what an ActSegmenter returned, not a {type(state).__name__}")
        if state is not None and final and bool((lengths < 1).any()):
            raise ValueError("the last piece of a sentence needs at least one symbol, such as </s>")
        # On a GPU, asking would make it wait.
        if lengths.device.type == "cpu" and bool((lengths > symbols.shape[1]).any()):
            raise ValueError(f"lengths should be at most T = {symbols.shape[1]}")
        scan = self._scan(symbols, lengths, state, final)
        vectors, segments = self._emit(scan)
        # R counts one 1 for the whole sentence, so the penalty can be negative (docs/paper_notes.md, 4).
        count = scan.state.count.clamp(min=1)
        penalty = torch.where(scan.state.count > 0, (1 - scan.state.non_halting) / count, 0.0)
        return Segments(
            vectors=vectors,
            lengths=segments,
            ends=scan.ends,
            weights=scan.weights,
            scores=scan.scores,
            penalty=penalty if final else torch.zeros_like(penalty),
            state=None if final else scan.state,
        )

    def start(self, size: int, like: Tensor) -> ActState:
        """The state before the first symbol of `size` sentences, with the dtype and device of `like`."""
        zeros = like.new_zeros(size)
        hidden = like.new_zeros(size, self.cell.hidden_size)
        return ActState(hidden, hidden, zeros, zeros, zeros)

    def _inputs(self, symbols: Tensor) -> Tensor:
        """[B, T, 3A]: the cell's input projections, from a table over the vocabulary where it is smaller."""
        weight, bias = self.cell.weight_ih, self.cell.bias_ih
        if self.embedding.num_embeddings <= symbols.numel():
            return F.embedding(symbols, F.linear(self.embedding.weight, weight, bias))
        return F.linear(self.embedding(symbols), weight, bias)

    def _scan(self, symbols: Tensor, lengths: Tensor, state: ActState | None, final: bool) -> Scan:
        """Algorithm 1's loop over all sentences at once, with masks; `f` is a constant for the gradient."""
        inputs = self._inputs(symbols)
        # State, mean and halting sum stay in float32 or better, whatever autocast does to the products.
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        weights = self.cell.weight_hh, self.cell.bias_hh, self.halting.weight, self.halting.bias
        size, steps = symbols.shape
        mask = positions_mask(lengths, steps)
        forced = mask & ~positions_mask(lengths - 1, steps) if final else torch.zeros_like(mask)
        at = state or self.start(size, inputs)
        trace, carry = act_scan(
            inputs,
            ActWeights(*(weight.to(inputs.dtype) for weight in weights)),
            ActCarry(at.hidden, at.mean, at.halting_sum, at.non_halting),
            mask,
            forced,
            self.epsilon,
        )
        return Scan(*trace, ActState(*carry, at.count + lengths))

    def _emit(self, scan: Scan) -> tuple[Tensor, Tensor]:
        """One output projection a segment: its p sum to 1, so W_o can wait (docs/paper_notes.md, 2)."""
        lengths = scan.ends.sum(1)
        rows, positions = scan.ends.nonzero(as_tuple=True)
        segment = scan.ends.cumsum(1)[rows, positions] - 1
        flat = self.output(scan.means[rows, positions].to(self.output.weight.dtype))
        longest = int(lengths.max()) if len(lengths) else 0
        vectors = flat.new_zeros(len(lengths), longest, self.output_dim)
        return vectors.index_put((rows, segment), flat), lengths
