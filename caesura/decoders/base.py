"""The decoder protocol: `start`, `step`, `reorder` for search, `forward` for training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from caesura.encoders.base import Encoded
from caesura.kernels.states import ROOM, reordered
from caesura.layers.checks import check_batch
from caesura.segmenters.base import BaseSegmenter

DECODERS: dict[str, str | type[Decoder[Any]]] = {
    "recurrent": "caesura.decoders.recurrent:RecurrentDecoder",
    "act": "caesura.decoders.act:ActDecoder",
    "transformer": "caesura.decoders.transformer:TransformerDecoder",
}

State = TypeVar("State")


@dataclass(frozen=True)
class DecoderStep:
    """One target symbol for B sentences of K hypotheses each."""

    logits: Tensor  # [B, K, V] scores of the next symbol, before softmax
    attention: Tensor | None = None  # [B, K, S] where this step looked
    # [B, K] bool: the symbol just read ended a segment; None: not a segmenting decoder
    ends: Tensor | None = None


@dataclass(frozen=True)
class Decoded:
    """A whole target side, teacher-forced."""

    logits: Tensor  # [B, U, V]
    penalty: Tensor  # [B] auxiliary loss of each sentence, before tau
    attention: Tensor | None = None  # [B, U, S] where each step looked
    ends: Tensor | None = None  # [B, U] bool: this target symbol ends a segment; False on padding
    weights: Tensor | None = None  # [B, U] its weight in its segment; 0 on padding
    scores: Tensor | None = None  # [B, U] its halting score, for analysis


class Heads(NamedTuple):
    """The size of the result of `Decoder.look`."""

    layers: int
    heads: int
    shown: int  # the layer, from 1, whose mean over its heads is `Decoded.attention`


class Decoder(nn.Module, Generic[State]):
    """Writes one symbol per step. Search knows `start`, `step` and `reorder`, and nothing else.

    The state that `step` returns has everything that changes along a hypothesis. The encoded source of a
    sentence is kept once and shared by its hypotheses: the state's fields say so (`kernels/states.py`). On a
    GPU `step` and `reorder` are captured in graphs: a state is a dataclass of tensors, and they fetch no
    value from the device. `step` may write into the state that it gets; nobody uses that state afterwards.
    """

    segmenting: ClassVar[bool] = False  # whether it cuts its output: `ends` is not None
    one_vocabulary: bool = False  # whether source and target have to have the same symbols
    lean: ClassVar[bool] = False  # whether Triton's kernels take a step in less than K * S * attention_size

    def join(self, segmenter: BaseSegmenter) -> None:
        """Called once with the model's segmenter, for decoders that share parameters with it."""

    @property
    def looks(self) -> Heads | None:
        """The layers and heads of `look`; None: the decoder has a single attention, or none."""
        return None

    def look(self, encoded: Encoded, trg_in: Tensor) -> Tensor:
        """[B, L, N, U, S]: where each head of each layer looks in the source at each symbol of `trg_in`."""
        raise NotImplementedError

    def flops(self, segments: int, targets: int, written: int) -> int | None:
        """Floating-point operations of one sentence, greedy or forced; None where it is not implemented.

        Source segments, target symbols and segments `written` are all with </s>.
        """
        return None

    def start(self, encoded: Encoded, room: int = ROOM) -> State:
        """The state before the first symbol: B sentences of one hypothesis each.

        Preallocated tensors have room for `room` symbols; `states.grown` makes more room. A decoder whose
        state does not grow ignores it.
        """
        raise NotImplementedError

    def step(self, state: State, symbols: Tensor) -> tuple[DecoderStep, State]:
        """Read the previous symbols [B, K] (<s> at first) and score the next ones."""
        raise NotImplementedError

    def reorder(self, state: State, sentences: Tensor | None, hypotheses: Tensor) -> State:
        """Keep `sentences` [B'] (None: all) and of each its `hypotheses` [B', K'], which may repeat."""
        return reordered(state, sentences, hypotheses)

    def forward(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        """Score the target `trg_in` [B, U] (<s> y1 y2 ...): what repeated `step`s give, and the penalty.

        Symbols beyond `trg_lengths` [B] must not reach the penalty.
        """
        raise NotImplementedError

    def __call__(self, encoded: Encoded, trg_in: Tensor, trg_lengths: Tensor) -> Decoded:
        check_batch(trg_in, trg_lengths, ("trg_in", "trg_lengths", "U"))
        if len(encoded.states) != len(trg_in):
            raise ValueError(f"encoded should have B = {len(trg_in)} sentences, not {len(encoded.states)}")
        return super().__call__(encoded, trg_in, trg_lengths)
