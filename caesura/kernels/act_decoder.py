"""ACT-DEC's machine (Algorithm 2) on plain tensors, one symbol per step: the reference, and the choice.

B sentences, K hypotheses, U target symbols, S segments of the source, H size of the outer state, A of the ACT
state, E of the attention, M of the encoder's states. `halted` (f) is a constant for the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels import pick
from caesura.kernels.act_decoder_fused import ActDecode
from caesura.kernels.act_decoder_weights import ActDecoderWeights
from caesura.kernels.attention_decoder import Sigmoids
from caesura.kernels.attention_step import attend_in_blocks, attend_reference
from caesura.kernels.gru import gru_step
from caesura.kernels.precision import full
from caesura.kernels.states import EVERYONE, SENTENCE


@dataclass(frozen=True)
class ActDecoderState:
    """B sentences of K hypotheses; the hypotheses of a sentence share its keys, values and mask.

    Halting does not depend on the symbol that is written, so a step decides it ahead: `halted` and `p` are
    those of the symbol that is read next.
    """

    outer: Tensor  # [B, K, H]       Q(s_mean): where the outer RNN goes on; meaningless where not halted
    s: Tensor  # [B, K, A]           the ACT state
    mean: Tensor  # [B, K, A]        s_mean of the open segment
    H: Tensor  # [B, K, 1]           its halting sum
    inputs: Tensor  # [B, K, 3H + 3A] o_mean of the segment, projected, without the symbol that is read next
    p: Tensor  # [B, K, 1]           what that symbol gives to its segment
    halted: Tensor  # [B, K, 1]      bool: it ends its segment
    attention: Tensor  # [B, K, S]   where the outer RNN looked last
    keys: Tensor = field(metadata=SENTENCE)  # [B, S, E]
    values: Tensor = field(metadata=SENTENCE)  # [B, S, M]
    mask: Tensor = field(metadata=SENTENCE)  # [B, S]
    fed: Tensor | None = None  # [B, K, 3A] from the segment's context to the inner cell, if it reads it
    # On a CPU without gradients: of the keys, as only hypotheses that begin a segment attend
    sigmoids: Sigmoids | None = field(default=None, metadata=SENTENCE)
    # [V, 3H + 3A] likewise: each symbol's part of the gates
    table: Tensor | None = field(default=None, metadata=EVERYONE)

    @classmethod
    def first(
        cls, outer: Tensor, keys: Tensor, values: Tensor, mask: Tensor, size: int, fed: bool
    ) -> ActDecoderState:
        """One hypothesis per sentence, before <s>, which counts as a segment of its own that has ended.

        `outer` [B, H] is where the outer RNN begins; `size` is A; `fed`: the inner cell reads the context.
        """
        outer = outer[:, None]
        nothing, one = outer.new_zeros(len(outer), 1, size), outer.new_ones(len(outer), 1, 1)
        return cls(
            outer=outer,
            s=nothing,
            mean=nothing,
            H=torch.zeros_like(one),
            inputs=outer.new_zeros(len(outer), 1, 3 * (outer.shape[2] + size)),
            p=one,
            halted=one.bool(),
            attention=outer.new_zeros(len(outer), 1, keys.shape[1]),
            keys=keys,
            values=values,
            mask=mask,
            fed=outer.new_zeros(len(outer), 1, 3 * size) if fed else None,
        )


class ActDecoderTrace(NamedTuple):
    """The results per target symbol."""

    states: Tensor  # [B, U, A]    s, which scores the symbol
    attention: Tensor  # [B, U, S] that of its segment
    ends: Tensor  # [B, U]         bool
    weights: Tensor  # [B, U]      p
    scores: Tensor  # [B, U]       h


def act_decode(
    inputs: Tensor,
    outer: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    forced: Tensor,
    weights: ActDecoderWeights,
    epsilon: float,
) -> ActDecoderTrace:
    """Run the machine over given symbols: `inputs` [B, U, 3H + 3A] are what <s> y1 y2 ... give to the gates.

    `outer` [B, H] is the outer state before the first segment; `keys` [B, S, E] and `values` [B, S, M] are
    numbers also where `mask` [B, S] is False; `forced` [B, U] is True on symbols that must end a segment.
    """
    choice, _ = pick(inputs.device, "act_decoder", inputs, keys, values, weights)
    if choice == "triton":
        from caesura.kernels.act_decoder_triton import TritonActDecode  # here: Triton is not everywhere

        given = inputs, outer, keys, values, mask, forced, epsilon
        return ActDecoderTrace(*TritonActDecode.apply(*given, *weights))
    with torch.autocast(inputs.device.type, enabled=False):
        inputs, outer, keys, values = (full(part) for part in (inputs, outer, keys, values))
        weights = weights.to(inputs.dtype)
        if choice == "reference":
            return act_decode_reference(inputs, outer, keys, values, mask, forced, weights, epsilon)
        return ActDecoderTrace(*ActDecode.apply(inputs, outer, keys, values, mask, forced, epsilon, *weights))


def act_decode_reference(
    inputs: Tensor,
    outer: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    forced: Tensor,
    weights: ActDecoderWeights,
    epsilon: float,
) -> ActDecoderTrace:
    """The machine in autograd's operations; arguments as in `act_decode`."""
    sizes = weights.inner_hh.shape[1], weights.inner_context is not None
    state = ActDecoderState.first(outer, keys, values, mask, *sizes)
    rows: list[tuple[Tensor, ...]] = []
    # unbind: its gradient is one stack; that of inputs[:, u] would fill a whole [B, U, 3H + 3A] per step
    for x, force in zip(inputs.unsqueeze(2).unbind(1), forced[..., None, None].unbind(1), strict=True):
        state, h = act_decoder_step(x, state, weights, epsilon, force)
        rows.append((state.s, state.attention, state.halted, state.p, h))
    states, attention, *scalars = (torch.cat(column, 1) for column in zip(*rows, strict=True))
    return ActDecoderTrace(states, attention, *(scalar.squeeze(2) for scalar in scalars))


def act_decoder_step(
    x: Tensor,
    state: ActDecoderState,
    weights: ActDecoderWeights,
    epsilon: float,
    forced: Tensor | None = None,
) -> tuple[ActDecoderState, Tensor]:
    """Read one symbol, as its projections x [B, K, 3H + 3A]; the new state and the score h [B, K, 1].

    The gates take o_mean linearly and the p of a segment sum to 1, so its projections are averaged in its
    place. The line numbers are Algorithm 2's (docs/paper_notes.md).
    """
    new, size = state.halted, state.outer.shape[2]  # new: the symbol ended a segment, and another begins
    means = state.inputs + state.p * x  # l. 23
    sizes = (3 * size, x.shape[2] - 3 * size)
    x_outer, x_first = means.split(sizes, 2)
    _, x_next = x.split(sizes, 2)
    if state.sigmoids is None:
        attention, s, fed = _begin_all(x_outer, state, weights)
    else:
        attention, s, fed = _begin_some(x_outer, state, state.sigmoids, weights)
    x_inner = torch.where(new, x_first, x_next)  # l. 12, 25
    if fed is not None:
        x_inner = x_inner + fed
    s = gru_step(x_inner, F.linear(s, weights.inner_hh, weights.inner_bias), s)  # l. 14
    h = torch.sigmoid(F.linear(s, weights.halting_weight, weights.halting_bias))  # l. 18
    f = state.H + h >= 1 - epsilon  # l. 19
    if forced is not None:
        f = f | forced
    p = torch.where(f, 1 - state.H, h)  # l. 21
    mean = state.mean + p * s  # l. 22
    after = replace(
        state,
        outer=_left(mean, f if state.sigmoids else None, weights),  # l. 29
        s=s,
        mean=mean.masked_fill(f, 0),  # l. 9
        H=(state.H + h).masked_fill(f, 0),  # l. 10, 20
        inputs=means.masked_fill(new, 0),  # l. 9
        p=p,
        halted=f,
        attention=attention,
        fed=fed,
    )
    return after, h


Begun = tuple[Tensor, Tensor, Tensor | None]  # attention; s, as the inner cell reads it; fed


def _begin_all(x: Tensor, state: ActDecoderState, weights: ActDecoderWeights) -> Begun:
    """A segment begins everywhere, which is taken back where it goes on: nothing waits for the device."""
    query = F.linear(state.outer, weights.query)
    context, shares = attend_reference(query, state.keys, state.values, state.mask, weights.energy)  # l. 7
    s, fed = _entered(x, state.outer, context, weights)
    attention, s = torch.where(state.halted, shares, state.attention), torch.where(state.halted, s, state.s)
    if fed is None or state.fed is None:
        return attention, s, None
    return attention, s, torch.where(state.halted, fed, state.fed)


def _begin_some(x: Tensor, state: ActDecoderState, sigmoids: Sigmoids, weights: ActDecoderWeights) -> Begun:
    """`_begin_all` for the hypotheses alone that begin a segment; it has no gradient."""
    (B, K, _), rows = state.halted.shape, state.halted.flatten().nonzero().squeeze(1)
    if not len(rows):
        return state.attention, state.s, state.fed
    outer, sentences = state.outer, None
    if len(rows) < B * K:
        outer, x = (part.flatten(0, 1)[rows, None] for part in (outer, x))
        sentences = rows // K
    query, memory = F.linear(outer, weights.query), (state.keys, state.values, state.mask)
    context, shares = attend_in_blocks(query, *memory, weights.energy, sigmoids, sentences)  # l. 7
    s, fed = _entered(x, outer, context, weights)
    attention, s = _put(shares, rows, state.attention), _put(s, rows, state.s)
    return attention, s, None if fed is None or state.fed is None else _put(fed, rows, state.fed)


def _entered(
    x: Tensor, outer: Tensor, context: Tensor, weights: ActDecoderWeights
) -> tuple[Tensor, Tensor | None]:
    """The outer RNN's step: the state that the inner cell begins with, and its input from the context."""
    projected = F.linear(outer, weights.outer_hh, weights.outer_bias)
    outer = gru_step(x + F.linear(context, weights.context), projected, outer)  # l. 8
    fed = None if weights.inner_context is None else F.linear(context, weights.inner_context)
    return _mapped(outer, weights.enter_weight, weights.enter_bias), fed  # l. 11


def _left(mean: Tensor, ended: Tensor | None, weights: ActDecoderWeights) -> Tensor:
    """Where the outer RNN goes on; given which segments `ended` [B, K, 1], only from these."""
    if ended is None or weights.leave_weight is None:
        return _mapped(mean, weights.leave_weight, weights.leave_bias)
    rows = ended.flatten().nonzero().squeeze(1)
    outer = F.linear(mean.flatten(0, 1)[rows], weights.leave_weight, weights.leave_bias)
    return _put(outer, rows, mean.new_zeros(*mean.shape[:2], outer.shape[1]))


def _put(values: Tensor, rows: Tensor, old: Tensor) -> Tensor:
    """`old` [B, K, ...] with new `values` in some of its B * K rows."""
    return old.flatten(0, 1).index_copy(0, rows, values.view(-1, old.shape[2])).view_as(old)


def _mapped(state: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return state if weight is None else F.linear(state, weight, bias)
