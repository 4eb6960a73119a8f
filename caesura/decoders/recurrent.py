"""The GRU decoder with attention of Bahdanau et al., in the authors' form: no readout before the output."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.decoders.attention import MlpAttention
from caesura.decoders.base import Decoded, Decoder, Step
from caesura.encoders.base import Encoded
from caesura.kernels.attention_decoder import DecoderWeights, decode
from caesura.kernels.gru import gru_step
from caesura.segmenters.base import embedding_table, positions_mask


@dataclass(frozen=True)
class RecurrentState:
    """B sentences of K hypotheses; keys, values and mask are a sentence's, shared by its hypotheses."""

    hidden: Tensor  # [B, K, H]
    keys: Tensor  # [B, S, A]
    values: Tensor  # [B, S, M]
    mask: Tensor  # [B, S]


class RecurrentDecoder(Decoder[RecurrentState]):
    """c_t = attend(s_{t-1}); s_t = GRU(s_{t-1}, [E y_{t-1}; c_t]); logits = W s_t + b."""

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
        for name, value in (("embedding_dim", embedding_dim), ("hidden_size", hidden_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and less than 1, not {dropout}")
        self.embedding = embedding_table(vocab_size, embedding_dim)
        self.attention = MlpAttention(hidden_size, memory_dim, attention_size)
        self.cell = nn.GRUCell(embedding_dim + memory_dim, hidden_size)
        self.output = nn.Linear(hidden_size, vocab_size)
        # The paper's parameter counts leave no room for a projection; there is one only where sizes differ.
        same = summary_dim == hidden_size
        self.initial: nn.Module = nn.Identity() if same else nn.Linear(summary_dim, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def start(self, encoded: Encoded) -> RecurrentState:
        """The encoder's summary is the initial state."""
        return RecurrentState(
            hidden=self.initial(encoded.summary)[:, None],
            keys=self.attention.key(encoded.states),
            values=encoded.states,
            mask=positions_mask(encoded.lengths, encoded.states.shape[1]),
        )

    def step(self, state: RecurrentState, symbols: Tensor) -> tuple[Step, RecurrentState]:
        """One symbol further for every hypothesis."""
        hidden, weights = self._advance(state, self._project(symbols))
        logits = self.output(self.dropout(hidden))
        return Step(logits, weights), replace(state, hidden=hidden)

    def reorder(self, state: RecurrentState, sentences: Tensor | None, hypotheses: Tensor) -> RecurrentState:
        """Keys and values move only where sentences do."""
        if sentences is None:
            rows = torch.arange(len(hypotheses), device=hypotheses.device)
            return replace(state, hidden=state.hidden[rows[:, None], hypotheses])
        hidden = state.hidden[sentences[:, None], hypotheses]
        keys, values, mask = state.keys[sentences], state.values[sentences], state.mask[sentences]
        return replace(state, hidden=hidden, keys=keys, values=values, mask=mask)

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        """Teacher forcing: the inputs' projections and the output layer are one product each."""
        state = self.start(encoded)
        inputs = self._project(trg_in)
        weights = DecoderWeights(
            self.attention.query.weight,
            self.attention.energy.weight,
            self.cell.weight_ih[:, self.embedding.embedding_dim :],
            self.cell.weight_hh,
            self.cell.bias_hh,
        )
        hidden, attention = decode(
            inputs, state.hidden.squeeze(1), state.keys, state.values, state.mask, weights
        )
        logits = self.output(self.dropout(hidden))
        return Decoded(logits, logits.new_zeros(len(logits)), attention)

    def _project(self, symbols: Tensor) -> Tensor:
        """[B, U, 3H]: what the embedded symbols give to the gates."""
        width = self.embedding.embedding_dim
        embedded = self.dropout(self.embedding(symbols))
        return F.linear(embedded, self.cell.weight_ih[:, :width], self.cell.bias_ih)

    def _advance(self, state: RecurrentState, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Attend with the previous state, then one GRU step: new hidden [B, K, H] and weights [B, K, S]."""
        old = state.hidden
        context, weights = self.attention(old, state.keys, state.values, state.mask)
        gates = F.linear(old, self.cell.weight_hh, self.cell.bias_hh)
        from_context = F.linear(context, self.cell.weight_ih[:, self.embedding.embedding_dim :])
        return gru_step(inputs + from_context, gates, old), weights
