"""ACT-DEC (Kreutzer & Sokolov 2018, Algorithm 2): a decoder that attends once per output segment."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.data.vocabulary import EOS
from caesura.decoders.attention import MlpAttention
from caesura.decoders.base import Decoded, Decoder, DecoderStep
from caesura.decoders.recurrent import ROWS, attention_flops
from caesura.encoders.base import Encoded
from caesura.kernels import pick
from caesura.kernels.act_decoder import ActDecoderState, act_decode, act_decoder_step
from caesura.kernels.act_decoder_weights import ActDecoderWeights
from caesura.kernels.attention_decoder import Sigmoids
from caesura.kernels.precision import full
from caesura.kernels.states import ROOM
from caesura.layers.checks import check_finite, check_shares, check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.masks import positions_mask
from caesura.layers.projection import between
from caesura.layers.recurrent import gru_flops
from caesura.segmenters.base import BaseSegmenter


class ActDecoder(Decoder[ActDecoderState]):
    """An outer RNN attends to the source once per segment; an ACT cell writes the segment, symbol by symbol.

    The halting unit scores every symbol; a segment ends where the scores of its symbols reach 1 - epsilon,
    and at </s>. The outer RNN goes on from the mean of the segment's ACT states and reads the mean embedding
    of its symbols, both weighted by the scores. All symbols of a segment have the same attention.
    """

    segmenting = True

    def __init__(
        self,
        vocab_size: int,
        memory_dim: int,
        summary_dim: int,
        embedding_dim: int,
        hidden_size: int,
        act_size: int,
        attention_size: int,
        output_dim: int | None = None,
        epsilon: float = 0.01,
        halting_bias: float = 1.0,
        feed_context: bool = False,
        share: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        output_dim = embedding_dim if output_dim is None else output_dim
        check_sizes(embedding_dim=embedding_dim, hidden_size=hidden_size)
        check_sizes(act_size=act_size, output_dim=output_dim)
        check_shares(epsilon=epsilon, dropout=dropout)
        check_finite(halting_bias=halting_bias)
        if share and feed_context:
            raise ValueError("share needs feed_context: false, as ACT-ENC's cell reads no context")
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.attention = MlpAttention(hidden_size, memory_dim, attention_size)
        self.outer = nn.GRUCell(embedding_dim + memory_dim, hidden_size)  # R
        self.inner = nn.GRUCell(embedding_dim + (memory_dim if feed_context else 0), act_size)  # S
        self.enter = between(hidden_size, act_size)  # P
        self.leave = between(act_size, hidden_size)  # Q
        self.halting = nn.Linear(act_size, 1)
        self.output = nn.Linear(act_size, output_dim)  # W_o
        self.symbols = nn.Linear(output_dim, vocab_size)  # O
        self.initial = between(summary_dim, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.epsilon, self.share = epsilon, share
        nn.init.constant_(self.halting.bias, halting_bias)

    def extra_repr(self) -> str:
        """The settings that its modules do not show."""
        return f"epsilon={self.epsilon:g}" + ", share=True" * self.share

    def join(self, segmenter: BaseSegmenter) -> None:
        """With `share`, S, W_h and W_o are ACT-ENC's own, as the paper's footnote allows."""
        if not self.share:
            return
        shared, output_dim = segmenter.shared_cell(), segmenter.output_dim
        both = {
            "embedding_dim": (shared["inner"].input_size, self.inner.input_size),
            "act_size": (shared["inner"].hidden_size, self.inner.hidden_size),
            "output_dim": (output_dim, self.output.out_features),
        }
        differing = [f"{name} is {one} and {other}" for name, (one, other) in both.items() if one != other]
        if differing:
            raise ValueError(f"share needs the same sizes in segmenter and decoder: {', '.join(differing)}")
        for name, module in shared.items():
            delattr(self, name)
            # Not registered: the segmenter goes on owning them, so that they are saved and counted once.
            object.__setattr__(self, name, module)

    def flops(self, segments: int, targets: int, written: int) -> int:
        """It attends and moves the outer cell once per segment that it writes, the inner one per symbol."""
        between = [layer for layer in (self.enter, self.leave) if isinstance(layer, nn.Linear)]
        move = gru_flops(self.outer.input_size, self.outer.hidden_size)
        move += sum(2 * layer.weight.numel() for layer in between)
        each = gru_flops(self.inner.input_size, self.inner.hidden_size)
        each += sum(2 * layer.weight.numel() for layer in (self.halting, self.output, self.symbols))
        return attention_flops(self.attention, segments, written) + written * move + targets * each

    def start(self, encoded: Encoded, room: int = ROOM) -> ActDecoderState:
        """The encoder's summary is the outer state; <s> counts as a segment of its own, which has ended."""
        outer, keys, values, mask = self._begin(encoded)
        memory = full(keys), full(values), mask
        sizes = self.inner.hidden_size, self.inner.input_size > self.embedding.embedding_dim
        state = ActDecoderState.first(full(outer), *memory, *sizes)
        return state if torch.is_grad_enabled() else self._prepare(state)

    def step(self, state: ActDecoderState, symbols: Tensor) -> tuple[DecoderStep, ActDecoderState]:
        """One symbol further for every hypothesis; attention is the last one where it does not move."""
        if torch.is_grad_enabled():
            state = replace(state, sigmoids=None, table=None)
        ends = state.halted.squeeze(2) | (symbols == EOS)
        inputs = full(self._project(symbols) if state.table is None else F.embedding(symbols, state.table))
        with torch.autocast(inputs.device.type, enabled=False):
            state, _ = act_decoder_step(inputs, state, self._weights().to(inputs.dtype), self.epsilon)
        return DecoderStep(self._score(state.s), state.attention, ends), state

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        """Teacher forcing: the inputs' projections and the output layers are one product each."""
        outer, keys, values, mask = self._begin(encoded)
        inputs, weights = self._project(trg_in), self._weights()
        remaining = trg_lengths[:, None] - torch.arange(trg_in.shape[1], device=trg_in.device)
        trace = act_decode(inputs, outer, keys, values, mask, remaining == 1, weights, self.epsilon)
        within = remaining > 0
        ends, scores = trace.ends & within, trace.scores.masked_fill(~within, 0)
        # As in ACT-ENC, one 1 for the whole sentence, over symbols, not segments (docs/paper_notes.md, 12).
        penalty = (1 - scores.masked_fill(ends, 0).sum(1)) / trg_lengths.clamp(min=1) * (trg_lengths > 0)
        return Decoded(
            logits=self._score(trace.states),
            penalty=penalty,
            attention=trace.attention,
            ends=ends,
            weights=trace.weights.masked_fill(~within, 0),
            scores=scores,
        )

    def _prepare(self, state: ActDecoderState) -> ActDecoderState:
        """The state with values that all steps of a search share; not on a GPU, where it would wait."""
        device, symbols = state.keys.device, self.embedding.num_embeddings
        if device.type != "cpu" or pick(device)[0] == "reference" or not state.keys.numel():
            return state
        keys, values = state.keys.contiguous(), state.values.contiguous()
        random = self.training and self.dropout.p > 0
        table = None if random or symbols > ROWS else self._project(torch.arange(symbols))
        return replace(state, keys=keys, values=values, sigmoids=Sigmoids.of(keys), table=table)

    def _begin(self, encoded: Encoded) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The first outer state [B, H], keys [B, S, E], values [B, S, M] and mask [B, S]."""
        mask = positions_mask(encoded.lengths, encoded.states.shape[1])
        # Padding is never read, so that not even NaN there can reach a result or a gradient.
        values = encoded.states.masked_fill(~mask[..., None], 0)
        return self.initial(encoded.first), self.attention.key(values), values, mask

    def _project(self, symbols: Tensor) -> Tensor:
        """[B, U, 3H + 3A]: from the embedded symbols to the gates of the outer and of the inner cell."""
        embedded, width = self.dropout(self.embedding(symbols)), self.embedding.embedding_dim
        gates = [F.linear(embedded, c.weight_ih[:, :width], c.bias_ih) for c in (self.outer, self.inner)]
        return torch.cat(gates, -1)

    def _score(self, states: Tensor) -> Tensor:
        """[B, U, V]: O(W_o s + b_o)."""
        return self.symbols(self.dropout(self.output(states.to(self.output.weight.dtype))))

    def _weights(self) -> ActDecoderWeights:
        """The parameters inside the loop."""
        width = self.embedding.embedding_dim
        fed = self.inner.weight_ih[:, width:]
        return ActDecoderWeights(
            query=self.attention.query.weight,
            energy=self.attention.energy.weight,
            context=self.outer.weight_ih[:, width:],
            outer_hh=self.outer.weight_hh,
            outer_bias=self.outer.bias_hh,
            inner_context=fed if fed.shape[1] else None,
            inner_hh=self.inner.weight_hh,
            inner_bias=self.inner.bias_hh,
            halting_weight=self.halting.weight,
            halting_bias=self.halting.bias,
            enter_weight=getattr(self.enter, "weight", None),
            enter_bias=getattr(self.enter, "bias", None),
            leave_weight=getattr(self.leave, "weight", None),
            leave_bias=getattr(self.leave, "bias", None),
        )
