"""ACT-DEC's machine (Algorithm 2) on plain tensors, one symbol a step: the reference, and the choice.

B sentences, K hypotheses, U target symbols, S segments of the source, H size of the outer state, A of the ACT
state, E of the attention, M of the encoder's states. `halted` (f) is a constant for the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels import pick
from caesura.kernels.act_decoder_fused import ActDecode
from caesura.kernels.act_decoder_weights import ActDecoderWeights
from caesura.kernels.gru import gru_step


@dataclass(frozen=True)
class ActDecoderState:
    """B sentences of K hypotheses; keys, values and mask are a sentence's, shared by its hypotheses.

    Halting does not depend on the symbol that is written, so a step decides it ahead: `halted` and `p` are
    those of the symbol that is read next.
    """

    outer: Tensor  # [B, K, H]       Q(s_mean): where the outer RNN goes on; of no meaning where not halted
    s: Tensor  # [B, K, A]           the ACT state
    mean: Tensor  # [B, K, A]        s_mean of the open segment
    H: Tensor  # [B, K, 1]           its halting sum
    inputs: Tensor  # [B, K, 3H + 3A] o_mean of the segment, projected, without the symbol that is read next
    p: Tensor  # [B, K, 1]           what that symbol gives to its segment
    halted: Tensor  # [B, K, 1]      bool: it ends its segment
    attention: Tensor  # [B, K, S]   where the outer RNN looked last
    keys: Tensor  # [B, S, E]
    values: Tensor  # [B, S, M]
    mask: Tensor  # [B, S]

    @classmethod
    def first(cls, outer: Tensor, keys: Tensor, values: Tensor, mask: Tensor, size: int) -> ActDecoderState:
        """One hypothesis a sentence, before <s>, which counts as a segment of its own that has ended.

        `outer` [B, H] is where the outer RNN begins; `size` is A.
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
        )


class ActDecoderTrace(NamedTuple):
    """What every target symbol leaves behind."""

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
    """The machine in autograd's operations; arguments as of `act_decode`."""
    state = ActDecoderState.first(outer, keys, values, mask, weights.inner_hh.shape[1])
    rows: list[tuple[Tensor, ...]] = []
    # unbind: its gradient is one stack; that of inputs[:, u] would fill a whole [B, U, 3H + 3A] a step
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
    activations = torch.tanh(F.linear(state.outer, weights.query)[:, :, None] + state.keys[:, None])
    energies = F.linear(activations, weights.energy).squeeze(3).masked_fill(~state.mask[:, None], -torch.inf)
    attention = torch.where(new, torch.softmax(energies, 2), state.attention)  # l. 7
    context = attention @ state.values
    projected = F.linear(state.outer, weights.outer_hh, weights.outer_bias)
    outer = gru_step(x_outer + F.linear(context, weights.context), projected, state.outer)  # l. 8
    s = torch.where(new, _mapped(outer, weights.enter_weight, weights.enter_bias), state.s)  # l. 11
    x_inner = torch.where(new, x_first, x_next)  # l. 12, 25
    if weights.inner_context is not None:
        x_inner = x_inner + F.linear(context, weights.inner_context)
    s = gru_step(x_inner, F.linear(s, weights.inner_hh, weights.inner_bias), s)  # l. 14
    h = torch.sigmoid(F.linear(s, weights.halting_weight, weights.halting_bias))  # l. 18
    f = state.H + h >= 1 - epsilon  # l. 19
    if forced is not None:
        f = f | forced
    p = torch.where(f, 1 - state.H, h)  # l. 21
    mean = state.mean + p * s  # l. 22
    after = replace(
        state,
        outer=_mapped(mean, weights.leave_weight, weights.leave_bias),  # l. 29
        s=s,
        mean=mean.masked_fill(f, 0),  # l. 9
        H=(state.H + h).masked_fill(f, 0),  # l. 10, 20
        inputs=means.masked_fill(new, 0),  # l. 9
        p=p,
        halted=f,
        attention=attention,
    )
    return after, h


def _mapped(state: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return state if weight is None else F.linear(state, weight, bias)


def full(values: Tensor) -> Tensor:
    """In float32 or better: state, means and halting sum are, whatever autocast does to the products."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
