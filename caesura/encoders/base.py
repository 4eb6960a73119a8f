"""The encoder protocol: segment vectors in, one state per segment out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional as F

from caesura.layers.masks import positions_mask
from caesura.segmenters.base import Segments

ENCODERS: dict[str, str | type[Encoder]] = {
    "recurrent": "caesura.encoders.recurrent:RecurrentEncoder",
    "transformer": "caesura.encoders.transformer:TransformerEncoder",
}


PER_SEGMENT = MappingProxyType({"axes": "B S"})


@dataclass(frozen=True)
class Encoded:
    """The encoded source, which a decoder attends to. B sentences, S segments.

    Each field begins with B; those marked `PER_SEGMENT` go on with S.
    """

    states: Tensor = field(metadata=PER_SEGMENT)  # [B, S, M]; padding is never read
    lengths: Tensor  # [B]      segments in each sentence
    summary: Tensor | None = None  # [B, M']  for a decoder's initial state; None: the encoder has none

    @property
    def first(self) -> Tensor:
        """[B, M']: where a recurrent decoder starts: the summary or, without one, the mean of the states."""
        if self.summary is not None:
            return self.summary
        mask = positions_mask(self.lengths, self.states.shape[1])
        total = self.states.masked_fill(~mask[..., None], 0).sum(1)
        return total / self.lengths.clamp(min=1)[:, None].to(total.dtype)

    def rows(self, rows: Tensor | slice) -> Encoded:
        """These sentences, some perhaps several times."""
        return self._each(lambda part, _: part[rows])

    def padded(self, sentences: int, segments: int) -> Encoded:
        """Padded to so many sentences and segments; a sentence of padding has one segment."""
        B, S, _ = self.states.shape

        def wider(part: Tensor, by_segment: bool) -> Tensor:
            sizes = [sentences - B, *([segments - S] if by_segment else [])]
            ends = [0] * (part.dim() - len(sizes)) + sizes[::-1]  # F.pad begins with the last axis
            return F.pad(part, [n for end in ends for n in (0, end)], value=int(part is self.lengths))

        return self if (sentences, segments) == (B, S) else self._each(wider)

    def detached(self) -> Encoded:
        """The same numbers, from which no gradient flows back."""
        return self._each(lambda part, _: part.detach())

    def _each(self, change: Callable[[Tensor, bool], Tensor]) -> Encoded:
        """Apply `change` to every tensor; its second argument: whether there is an entry per segment."""
        parts = {f.name: (getattr(self, f.name), f.metadata == PER_SEGMENT) for f in fields(self)}
        return replace(self, **{name: change(*part) for name, part in parts.items() if part[0] is not None})


class Encoder(nn.Module):
    """Turns segment vectors [B, S, D] into `Encoded`; a subclass sets `output_dim`."""

    output_dim: int
    summary_dim: int | None = None  # None: it has no summary

    def encode(self, segments: Segments) -> Encoded:
        """Encode a segmenter's result; an encoder may use more of it than the vectors."""
        return self(segments.vectors, segments.lengths)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        """Encode `vectors` [B, S, D] of `lengths` [B] segments each."""
        raise NotImplementedError

    def flops(self, segments: int) -> int | None:
        """Floating-point operations of one sentence of so many segments; None where it is not implemented."""
        return None

    def __call__(self, vectors: Tensor, lengths: Tensor) -> Encoded:
        return super().__call__(vectors, lengths)
