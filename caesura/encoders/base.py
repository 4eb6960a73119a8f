"""The encoder protocol: segment vectors in, one state per segment out."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

ENCODERS: dict[str, str | type[Encoder]] = {"recurrent": "caesura.encoders.recurrent:RecurrentEncoder"}


@dataclass(frozen=True)
class Encoded:
    """The encoded source, which a decoder attends to. B sentences, S segments."""

    states: Tensor  # [B, S, M] one state per segment; those beyond a sentence's last one are never read
    lengths: Tensor  # [B]      segments in each sentence
    summary: Tensor  # [B, M']  for the decoder's initial state

    def rows(self, rows: Tensor) -> Encoded:
        """These sentences, some perhaps several times."""
        return Encoded(self.states[rows], self.lengths[rows], self.summary[rows])


class Encoder(nn.Module):
    """Turns segment vectors [B, S, D] into `Encoded`; a subclass sets the two sizes."""

    output_dim: int
    summary_dim: int

    def forward(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        """Encode `vectors` [B, S, D] of `lengths` [B] segments each."""
        raise NotImplementedError

    def flops(self, segments: int) -> int | None:
        """Floating-point operations of one sentence of so many segments; None where it is not implemented."""
        return None

    def __call__(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        return super().__call__(vectors, lengths)
