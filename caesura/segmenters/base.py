"""What a segmenter is: symbols in, one vector a segment out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

# One line a segmenter: its name in a config, and where its class lives. Extensions add their class itself.
SEGMENTERS: dict[str, str | type[Segmenter]] = {
    "lookup": "caesura.segmenters.lookup:LookupSegmenter",
    "act": "caesura.segmenters.act:ActSegmenter",
}

# An option that a config gives as characters, and whoever builds the layer as ids of the source vocabulary.
SymbolIds = Annotated[Sequence[int], "characters"]


@dataclass(frozen=True)
class Segments:
    """What a segmenter returns. B sentences, T source symbols, S segments, D features."""

    vectors: Tensor  # [B, S, D] one embedding a segment, zero beyond a sentence's last one
    lengths: Tensor  # [B]       segments in each sentence
    ends: Tensor  # [B, T]       bool: this symbol ends a segment; False on padding
    weights: Tensor  # [B, T]    what this symbol gives to its segment; 0 on padding
    penalty: Tensor  # [B]       auxiliary loss of each sentence, before tau; of pieces, the last has it all
    spill: Tensor | None = None  # [B, T]   what a boundary symbol gives to the next segment; None: nothing
    scores: Tensor | None = None  # [B, T]  the halting score itself, for analysis
    state: object | None = None  # what the next piece of the same sentences continues from (streaming)


@dataclass(frozen=True)
class Cuts:
    """Where a segmenter has cut, before it makes vectors of the segments."""

    longest: Tensor | int  # [] most segments of a sentence; a tensor on a GPU has to be waited for
    parts: Any  # the segmenter's own; no shape in it depends on where the cuts are


class Segmenter(nn.Module):
    """Reads symbols and returns vectors; how many vectors is its own business.

    A subclass sets `output_dim` and owns its reader (an embedding, a convolution, a pretrained encoder), so
    symbol ids are all that it takes. Nothing downstream knows which segmenter it has. It defines `cut` and
    `emit`, which training on a GPU can capture in graphs as they are, or the whole of `forward`.
    """

    output_dim: int
    one_each = False  # whether every symbol is a segment, so that nobody has to ask how many there are
    learn_halting = True  # whether training changes what scores the symbols, where something does

    def forward(
        self, symbols: Tensor, lengths: Tensor, state: object | None = None, final: bool = True
    ) -> Segments:
        """Segment `symbols` [B, T]; `final=False` leaves each last segment open for the next piece."""
        cuts = self.cut(symbols, lengths, state, final)
        return self.emit(cuts, int(cuts.longest))  # the one synchronisation with a GPU

    def cut(self, symbols: Tensor, lengths: Tensor, state: object | None = None, final: bool = True) -> Cuts:
        """The part of `forward` that comes before the number of segments is known."""
        raise NotImplementedError

    def emit(self, cuts: Cuts, size: int) -> Segments:
        """The rest of it, with room for `size` segments a sentence."""
        raise NotImplementedError

    def __call__(
        self,
        symbols: Tensor,
        lengths: Tensor | Sequence[int],
        state: object | None = None,
        final: bool = True,
    ) -> Segments:
        given = lengths if isinstance(lengths, Tensor) else torch.tensor(lengths, device="cpu")  # a copy
        check_batch(symbols, given)
        if given is not lengths:
            given = given.to(symbols.device, torch.long)
        return super().__call__(symbols, given, state, final)


def count_cuts(ends: Tensor, lengths: Tensor) -> Tensor:
    """How `ends` [B, T] cut: symbols, segments, symbols that end none [3]; </s> is left out, as in analysis.

    The last of `lengths` [B] symbols is </s> and ends a segment; a row of padding has one or none.
    """
    symbols, halted = (lengths - 1).clamp(min=0).sum(), ends.sum() - (lengths > 0).sum()
    last = ends.gather(1, (lengths - 2).clamp(min=0)[:, None]).squeeze(1)
    open_ended = (~last & (lengths > 1)).sum()  # whose last segment has </s> in it as well
    return torch.stack((symbols, halted + open_ended, symbols - halted))


def check_batch(
    symbols: Tensor, lengths: Tensor, names: tuple[str, str, str] = ("symbols", "lengths", "T")
) -> None:
    """Refuse what is no [B, T] with lengths [B], before it is broadcast; a GPU is not waited for."""
    what, sizes, axis = names
    if symbols.dim() != 2:
        raise ValueError(f"{what} should be [B, {axis}], not {list(symbols.shape)}")
    if lengths.shape != symbols.shape[:1]:
        rows = f"B = {len(symbols)}, one for each row of {what}"
        raise ValueError(f"{sizes} should be [B] with {rows}, not {list(lengths.shape)}")
    if lengths.is_floating_point() and len(lengths):  # an empty list has no other type
        raise ValueError(f"{sizes} should be whole numbers")
    # On a GPU, asking would make it wait.
    known = lengths.long() if lengths.device.type == "cpu" else None
    if known is not None and bool(((known < 0) | (known > symbols.shape[1])).any()):
        raise ValueError(f"{sizes} should be from 0 to {axis} = {symbols.shape[1]}")


def check_sizes(**sizes: int) -> None:
    """Refuse sizes below 1, by the names that a config has them by."""
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


def check_shares(**shares: float) -> None:
    """Refuse what is no share of something, or all of it."""
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and less than 1, not {value}")


def check_finite(**numbers: float) -> None:
    """Refuse nan and the infinities."""
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, not {value}")


def embedding_table(vocab_size: int, embedding_dim: int) -> nn.Embedding:
    """A new nn.Embedding; on the meta device not drawn, which would import half of torch for nothing."""
    check_sizes(vocab_size=vocab_size)
    weight = torch.empty(vocab_size, embedding_dim)
    if not weight.is_meta:
        nn.init.normal_(weight)
    return nn.Embedding(vocab_size, embedding_dim, _weight=weight)


def positions_mask(lengths: Tensor, size: int) -> Tensor:
    """[B, size] bool: True on the first `lengths[b]` positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]
