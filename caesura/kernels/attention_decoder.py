"""The attention decoder's recurrence, teacher-forced: the reference, and a form with its gradient by hand.

B sentences, U target symbols, S segments, H hidden size, A attention size, M size of the encoder's states.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from caesura.kernels import pick
from caesura.kernels.gru import gru_slopes, gru_step, in_gate_order


class DecoderWeights(NamedTuple):
    """The parameters inside the loop."""

    query: Tensor  # [A, H]
    energy: Tensor  # [1, A]   v
    context: Tensor  # [3H, M] what the context gives to the gates
    weight_hh: Tensor  # [3H, H]
    bias_hh: Tensor  # [3H]


def decode(
    inputs: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: DecoderWeights
) -> tuple[Tensor, Tensor]:
    """Hidden states [B, U, H] and attention [B, U, S] for the embeddings' projections `inputs` [B, U, 3H].

    `hidden` [B, H] is the state before the first symbol; `keys` [B, S, A], `values` [B, S, M], `mask` [B, S].
    """
    choice, _ = pick(inputs.device, "attention_decoder", inputs, keys, values)
    if choice == "triton":
        from caesura.kernels.attention_decoder_triton import TritonDecode  # here: Triton is not everywhere

        return TritonDecode.apply(inputs, hidden, keys, values, mask, *weights)
    if choice == "reference":
        return decode_reference(inputs, hidden, keys, values, mask, weights)
    return AttentionDecode.apply(inputs, hidden, keys, values, mask, *weights)


def decode_reference(
    inputs: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: DecoderWeights
) -> tuple[Tensor, Tensor]:
    """c_t = attend(s_{t-1}); s_t = GRU(s_{t-1}, [E y_{t-1}; c_t]), in autograd's operations."""
    # What stands in padding is never read, so that not even NaN there can reach a result or a gradient.
    keys, values = (memory.masked_fill(~mask[..., None], 0) for memory in (keys, values))
    s, states, attention = hidden, [], []
    # unbind: its gradient is one stack; that of inputs[:, t] would fill a whole [B, U, 3H] a step
    for x in inputs.unbind(1):
        activations = torch.tanh(F.linear(s, weights.query)[:, None] + keys)
        energies = F.linear(activations, weights.energy).squeeze(2)
        share = shares_of(energies, mask)
        context = (share.to(values.dtype)[:, None] @ values).squeeze(1)
        projected = F.linear(s, weights.weight_hh, weights.bias_hh)
        s = gru_step(x + F.linear(context, weights.context), projected, s)
        states.append(s)
        attention.append(share)
    return torch.stack(states, 1), torch.stack(attention, 1)


def shares_of(energies: Tensor, mask: Tensor) -> Tensor:
    """The softmax of energies [..., S] inside `mask`, and 0 outside: all 0 where there is nothing inside."""
    return torch.softmax(energies.masked_fill(blocked(mask), -torch.inf), -1).masked_fill(~mask, 0)


def blocked(mask: Tensor) -> Tensor:
    """Where a softmax gets -inf: outside of `mask` [..., S], unless that is everywhere: it would be NaN."""
    return ~mask & mask.any(-1, keepdim=True)


class AttentionDecode(torch.autograd.Function):
    """`decode_reference` with few operations a step and all weight gradients outside the loop.

    tanh(x) is 1 - 2 sigmoid(-2x), so the energy v . tanh is -2v . sigmoid but for a constant, which the
    softmax takes away. The sigmoids [B, S, A] of a step are computed again for the gradient, not stored.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        query: Tensor,
        energy: Tensor,
        context: Tensor,
        weight_hh: Tensor,
        bias_hh: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Decode time-major, into buffers that the gradient will need."""
        keys, values = (memory.masked_fill(~mask[..., None], 0).contiguous() for memory in (keys, values))
        W = torch.cat((weight_hh, 2 * query)).t().contiguous()
        bias = torch.cat((bias_hh, bias_hh.new_zeros(len(query))))
        args = inputs, hidden, values, mask, W, bias, -2 * energy[0], context.t().contiguous()
        sigmoids = Sigmoids.of(keys)
        states, gates, n, contexts, attention = _decode(sigmoids, *args)
        if not sigmoids.hold(gates[..., 3 * hidden.shape[1] :]):
            sigmoids = Sigmoids.of(keys, safe=True)
            states, gates, n, contexts, attention = _decode(sigmoids, *args)
        ctx.factored = sigmoids.factored
        weights = query, energy, context, weight_hh
        ctx.save_for_backward(*weights, sigmoids.memory, values, states, gates, n, contexts, attention)
        ctx.set_materialize_grads(False)
        return states[1:].transpose(0, 1), attention.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_states: Tensor | None, of_attention: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """From the gradients of the states and of the attention to those of all that went in."""
        query, energy, context, weight_hh, *saved = ctx.saved_tensors
        memory, values, states, gates, n, contexts, attention = saved
        (steps, count, size), width = n.shape, memory.shape[2]
        v4 = 4 * energy.t()  # with y = sigmoid(-2x), tanh'(x) = 4 y (1 - y)
        W_context = torch.cat((context[2 * size :], context[: 2 * size]))  # the order of `gru_slopes`
        W_before, turned = torch.cat((weight_hh, v4 * query)), values.transpose(1, 2).contiguous()
        of_gates = gru_slopes(gates, n, states[:-1], extra=width)
        by_gate = of_gates[..., : 4 * size].unflatten(2, (4, size)).unbind()
        all_inputs, all_before = of_gates[..., : 3 * size], of_gates[..., size:]
        of_inputs, of_before = all_inputs.unbind(), all_before.unbind()
        of_query = of_gates[..., 4 * size :].unbind()
        z, queries = gates[..., size : 2 * size].unbind(), gates[..., 3 * size :].unsqueeze(2).unbind()
        of_contexts, y = torch.empty_like(contexts), torch.empty_like(memory)
        of_contexts_at, shares, flat = of_contexts.unbind(), attention.unbind(), y.view(-1, width).t()
        of_keys, of_v, ds = torch.zeros_like(memory), energy.new_zeros(width), n.new_zeros(count, size)
        sigmoids = Sigmoids(memory, ctx.factored, memory.new_ones(()))
        for t in range(steps - 1, -1, -1):
            if of_states is not None:
                ds.add_(of_states[:, t])
            by_gate[t].mul_(ds.unsqueeze(1))
            torch.mm(of_inputs[t], W_context, out=of_contexts_at[t])
            da = torch.bmm(of_contexts_at[t].unsqueeze(1), turned).squeeze(1)
            if of_attention is not None:
                da.add_(of_attention[:, t])
            da.mul_(shares[t])
            de = da.addcmul_(shares[t], da.sum(1, keepdim=True), value=-1)
            sigmoids.at(queries[t], out=y)
            of_v.addmv_(flat, de.view(-1))
            y.addcmul_(y, y, value=-1)
            of_keys.addcmul_(y, de.unsqueeze(2))
            of_query[t].copy_(torch.bmm(de.unsqueeze(1), y).squeeze(1))
            ds.mul_(z[t]).addmm_(of_before[t], W_before)
        of_W = all_before.flatten(0, 1).t() @ states[:-1].flatten(0, 1)
        return (
            in_gate_order(all_inputs.transpose(0, 1), 2),
            ds,
            of_keys.mul_(v4[:, 0]),
            torch.bmm(attention.permute(1, 2, 0), of_contexts.transpose(0, 1)),
            None,
            v4 * of_W[3 * size :],
            -2 * of_v[None],
            in_gate_order(all_inputs.flatten(0, 1).t() @ contexts.flatten(0, 1), 0),
            of_W[: 3 * size],
            all_before[..., : 3 * size].sum((0, 1)),
        )


class Sigmoids(NamedTuple):
    """y = sigmoid(-2 (keys + query)) [B, S, A] for one query after another.

    On a CPU exp is what costs, so it is 1 / (1 + exp(2 keys) exp(2 query)), with the first exp taken once for
    all queries, as long as neither factor leaves the range of normal numbers.
    """

    memory: Tensor  # [B, S, A] exp(2 keys) where factored, else -2 keys
    factored: bool
    one: Tensor  # [] 1, for addcmul

    @classmethod
    def of(cls, keys: Tensor, safe: bool = False) -> Sigmoids:
        """The fastest form for these keys, or the one that is right for all queries."""
        if keys.device.type == "cpu" and not safe:
            factors = (2 * keys).exp_()
            if _normal(factors):
                return cls(factors, True, keys.new_ones(()))
        return cls(-2 * keys, False, keys.new_ones(()))

    def prepare_(self, doubled: Tensor) -> None:
        """Turn 2 query, in place, into what `at` takes."""
        if self.factored:
            doubled.exp_()

    def at(self, prepared: Tensor, out: Tensor) -> None:
        """Write the sigmoids into `out` for a prepared query [B, 1, A]."""
        if self.factored:
            torch.addcmul(self.one, self.memory, prepared, out=out).reciprocal_()
        else:
            torch.sub(self.memory, prepared, out=out).sigmoid_()

    def hold(self, prepared: Tensor) -> bool:
        """Whether this form was right for all these queries."""
        return not self.factored or _normal(prepared)


def _normal(factors: Tensor) -> bool:
    """Whether these exponentials are so far from 0 and inf that no product of two of them can be NaN."""
    if not factors.numel():
        return True
    low, high = factors.aminmax()
    limit = math.exp(0.9 * math.log(torch.finfo(factors.dtype).max))
    return bool(low > 1 / limit) and bool(high < limit)


def _decode(
    sigmoids: Sigmoids,
    inputs: Tensor,
    hidden: Tensor,
    values: Tensor,
    mask: Tensor,
    W: Tensor,
    bias: Tensor,
    v: Tensor,
    W_context: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """states [U + 1, B, H], gates and doubled queries [U, B, 3H + A], n, contexts and attention."""
    (count, size), steps, (_, places, width) = hidden.shape, inputs.shape[1], sigmoids.memory.shape
    x = inputs.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    states, gates = x.new_empty(steps + 1, count, size), x.new_empty(steps, count, W.shape[1])
    n, contexts = x.new_empty(steps, count, size), x.new_empty(steps, count, values.shape[2])
    attention, y = x.new_empty(steps, count, places), torch.empty_like(sigmoids.memory)
    floor = x.new_zeros(count, places).masked_fill_(blocked(mask), -torch.inf).view(-1)
    energies, flat = x.new_empty(count * places), y.view(-1, width)
    by_sentence = energies.view(count, places)
    states[0] = hidden
    s_at, contexts_at, context_rows = states.unbind(), contexts.unbind(), contexts.unsqueeze(2).unbind()
    x_at, (x_rz, x_n) = x.unbind(), (part.unbind() for part in x.split((2 * size, size), 2))
    r, z, h_n, _ = (part.unbind() for part in gates.split((size, size, size, width), 2))
    rz, queries = gates[..., : 2 * size].unbind(), gates[..., 3 * size :].unsqueeze(2).unbind()
    shares, share_rows = attention.unbind(), attention.unsqueeze(2).unbind()
    for t, (gates_t, n_t) in enumerate(zip(gates.unbind(), n.unbind(), strict=True)):
        torch.addmm(bias, s_at[t], W, out=gates_t)
        sigmoids.prepare_(queries[t])
        sigmoids.at(queries[t], out=y)
        torch.addmv(floor, flat, v, out=energies)
        torch.softmax(by_sentence, 1, out=shares[t])
        torch.bmm(share_rows[t], values, out=context_rows[t])
        x_at[t].addmm_(contexts_at[t], W_context)
        rz[t].add_(x_rz[t]).sigmoid_()
        torch.addcmul(x_n[t], r[t], h_n[t], out=n_t).tanh_()
        torch.lerp(n_t, s_at[t], z[t], out=s_at[t + 1])
    # A sentence without segments has looked at zeros; what it gave to them is nothing.
    return states, gates, n, contexts, attention.masked_fill_(~mask, 0)
