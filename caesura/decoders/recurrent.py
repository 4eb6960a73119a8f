"""The GRU decoder with attention of Bahdanau et al., in the authors' form: no readout before the output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.decoders.attention import MlpAttention
from caesura.decoders.base import Decoded, Decoder, DecoderStep
from caesura.encoders.base import Encoded
from caesura.kernels import pick
from caesura.kernels.attention_decoder import DecoderWeights, Sigmoids, decode
from caesura.kernels.gru import gru_step
from caesura.kernels.precision import working_dtype
from caesura.kernels.states import EVERYONE, ROOM, SENTENCE
from caesura.layers.checks import check_shares, check_sizes
from caesura.layers.embedding import embedding_table
from caesura.layers.masks import positions_mask
from caesura.layers.projection import between
from caesura.layers.recurrent import gru_flops

if TYPE_CHECKING:
    from caesura.kernels.attention_step_triton import StepWeights

ROWS = 1024  # of the largest table of projected embeddings that a CPU makes for a batch


@dataclass(frozen=True)
class RecurrentState:
    """B sentences of K hypotheses; the hypotheses of a sentence share its keys, values and length.

    Without gradients, further fields make a step faster.
    """

    hidden: Tensor  # [B, K, H]
    keys: Tensor = field(metadata=SENTENCE)  # [B, S, A], zero in padding, as are the values
    values: Tensor = field(metadata=SENTENCE)  # [B, S, M]
    lengths: Tensor = field(metadata=SENTENCE)  # [B]
    sigmoids: Sigmoids | None = field(default=None, metadata=SENTENCE)  # of the keys, for a CPU
    # [V, 3H] each symbol's part of the gates, for a CPU
    table: Tensor | None = field(default=None, metadata=EVERYONE)
    weights: StepWeights | None = field(default=None, metadata=EVERYONE)  # for Triton's kernels


class RecurrentDecoder(Decoder[RecurrentState]):
    """c_t = attend(s_{t-1}); s_t = GRU(s_{t-1}, [E y_{t-1}; c_t]); logits = W s_t + b."""

    lean = True

    def __init__(
        self,
        vocab_size: int,
        memory_dim: int,
        summary_dim: int,
        embedding_dim: int,
        hidden_size: int,
        attention_size: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_sizes(embedding_dim=embedding_dim, hidden_size=hidden_size)
        check_shares(dropout=dropout)
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.attention = MlpAttention(hidden_size, memory_dim, attention_size)
        self.cell = nn.GRUCell(embedding_dim + memory_dim, hidden_size)
        self.output = nn.Linear(hidden_size, vocab_size)
        # The paper's parameter counts leave no room for a projection; there is one only where sizes differ.
        self.initial = between(summary_dim, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def flops(self, segments: int, targets: int, written: int) -> int:
        """It attends and moves once per symbol."""
        each = gru_flops(self.cell.input_size, self.cell.hidden_size) + 2 * self.output.weight.numel()
        return attention_flops(self.attention, segments, targets) + targets * each

    def start(self, encoded: Encoded, room: int = ROOM) -> RecurrentState:
        """The encoder's summary is the initial state."""
        mask = positions_mask(encoded.lengths, encoded.states.shape[1])
        # Padding may hold NaN, which a weight of 0 would let through.
        values = encoded.states.masked_fill(~mask[..., None], 0)
        hidden, keys = self.initial(encoded.first)[:, None], self.attention.key(values)
        state = RecurrentState(hidden, keys, values, encoded.lengths)
        random = self.training and self.dropout.p > 0
        return state if torch.is_grad_enabled() or random else self._prepare(state)

    def step(self, state: RecurrentState, symbols: Tensor) -> tuple[DecoderStep, RecurrentState]:
        """One symbol further for every hypothesis."""
        if torch.is_grad_enabled():
            state = replace(state, table=None, sigmoids=None, weights=None)
        if state.weights is not None:
            from caesura.kernels.attention_step_triton import step

            memory = state.keys, state.values, state.lengths
            hidden, logits, attention = step(symbols, state.hidden, *memory, state.weights)
            return DecoderStep(logits, attention), replace(state, hidden=hidden)
        inputs = self._project(symbols) if state.table is None else F.embedding(symbols, state.table)
        hidden, attention = self._advance(state, inputs)
        logits = self.output(self.dropout(hidden))
        return DecoderStep(logits, attention), replace(state, hidden=hidden)

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        """Teacher forcing: the inputs' projections and the output layer are one product each."""
        mask, inputs = positions_mask(encoded.lengths, encoded.states.shape[1]), self._project(trg_in)
        hidden, keys = self.initial(encoded.first), self.attention.key(encoded.states)
        hidden, attention = decode(inputs, hidden, keys, encoded.states, mask, self._weights())
        logits = self.output(self.dropout(hidden))
        return Decoded(logits, logits.new_zeros(len(logits)), attention)

    def _prepare(self, state: RecurrentState) -> RecurrentState:
        """The state with values that all steps of a search share, computed once."""
        memory = state.keys, state.values
        choice, _ = pick(state.keys.device, "attention_decoder", state.hidden, *memory)
        if choice == "triton":
            from caesura.kernels.attention_step_triton import StepWeights  # here: Triton is not everywhere

            dtype, output = working_dtype(state.hidden), (self.output.weight, self.output.bias)
            weights = StepWeights.of(self._table(), self._weights(), *output, dtype)
            keys, values = (part.to(dtype).contiguous() for part in memory)
            # in full precision from the first symbol on, as steps return it
            return replace(state, hidden=state.hidden.float(), keys=keys, values=values, weights=weights)
        exact = state.keys.dtype in (torch.float32, torch.float64)
        if choice == "reference" or state.keys.device.type != "cpu" or not exact or not state.keys.numel():
            return state
        keys, values = (part.contiguous() for part in memory)
        table = self._table() if self.embedding.num_embeddings <= ROWS else None
        return replace(state, keys=keys, values=values, sigmoids=Sigmoids.of(keys), table=table)

    def _weights(self) -> DecoderWeights:
        return DecoderWeights(
            self.attention.query.weight,
            self.attention.energy.weight,
            self.cell.weight_ih[:, self.embedding.embedding_dim :],
            self.cell.weight_hh,
            self.cell.bias_hh,
        )

    def _table(self) -> Tensor:
        """[V, 3H]: from every symbol to the gates."""
        return self._project(torch.arange(self.embedding.num_embeddings, device=self.embedding.weight.device))

    def _project(self, symbols: Tensor) -> Tensor:
        """[B, U, 3H]: from the embedded symbols to the gates."""
        width = self.embedding.embedding_dim
        embedded = self.dropout(self.embedding(symbols))
        return F.linear(embedded, self.cell.weight_ih[:, :width], self.cell.bias_ih)

    def _advance(self, state: RecurrentState, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Attend with the previous state, then one GRU step: new hidden [B, K, H] and weights [B, K, S]."""
        old, mask = state.hidden, positions_mask(state.lengths, state.keys.shape[1])
        context, weights = self.attention(old, state.keys, state.values, mask, state.sigmoids)
        gates = F.linear(old, self.cell.weight_hh, self.cell.bias_hh)
        from_context = F.linear(context, self.cell.weight_ih[:, self.embedding.embedding_dim :])
        return gru_step(inputs + from_context, gates, old), weights


def attention_flops(attention: MlpAttention, segments: int, queries: int) -> int:
    """Operations for the keys once, and per query: its projection, its energies, the weighted sum."""
    memory, inner = attention.key.in_features, attention.key.out_features
    query = 2 * attention.query.in_features * inner + 2 * segments * inner + 2 * segments * memory
    return segments * 2 * memory * inner + queries * query
