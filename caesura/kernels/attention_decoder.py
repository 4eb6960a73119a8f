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
    context: Tensor  # [3H, M] from the context to the gates
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
    # Padding is never read, so that not even NaN there can reach a result or a gradient.
    keys, values = (memory.masked_fill(~mask[..., None], 0) for memory in (keys, values))
    s, states, attention = hidden, [], []
    # unbind: its gradient is one stack; that of inputs[:, t] would fill a whole [B, U, 3H] per step
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
    """`decode_reference` with few operations per step and all weight gradients outside the loop.

    tanh(x) is 1 - 2 sigmoid(-2x), so the energy v . tanh is -2v . sigmoid plus a constant, which the
    softmax takes away. The sigmoids [B, S, A] of a step are computed again for the gradient, not stored.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decode time-major, into buffers that the gradient will need."""
        keys, values = (memory.masked_fill(~mask[..., None], 0).contiguous() for memory in (keys, values))
        weights, sigmoids = DecoderWeights(*given), Sigmoids.of(keys)
        steps = _decode(inputs, hidden, Looks.of(sigmoids, values, mask, weights.energy), weights)
        if not sigmoids.hold(steps.gates[..., 3 * hidden.shape[1] :]):
            sigmoids = Sigmoids.of(keys, safe=True)
            steps = _decode(inputs, hidden, Looks.of(sigmoids, values, mask, weights.energy), weights)
        steps.attention.masked_fill_(~mask, 0)  # a sentence without segments has looked at zeros
        ctx.factored = sigmoids.factored
        ctx.save_for_backward(sigmoids.memory, values, *steps, *weights)
        ctx.set_materialize_grads(False)
        return steps.states[1:].transpose(0, 1), steps.attention.transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_states: Tensor | None, of_attention: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """From the gradients of the states and of the attention to those of all inputs."""
        memory, values, *saved = ctx.saved_tensors
        (states, gates, n, contexts, attention), weights = saved[:5], DecoderWeights(*saved[5:])
        (steps, count, size), context = n.shape, weights.context
        W_context = torch.cat((context[2 * size :], context[: 2 * size]))  # the order of `gru_slopes`
        W_before = torch.cat((weights.weight_hh, weights.query))
        of_gates = gru_slopes(gates, n, states[:-1], extra=memory.shape[2])
        by_gate = of_gates[..., : 4 * size].unflatten(2, (4, size)).unbind()
        all_inputs, all_before = of_gates[..., : 3 * size], of_gates[..., size:]
        of_inputs, of_before = all_inputs.unbind(), all_before.unbind()
        of_query = of_gates[..., 4 * size :].unbind()
        z, queries = gates[..., size : 2 * size].unbind(), gates[..., 3 * size :].unbind()
        of_contexts, shares, ds = torch.empty_like(contexts), attention.unbind(), n.new_zeros(count, size)
        of_contexts_at = of_contexts.unbind()
        looks = LooksBack.of(Sigmoids(memory, ctx.factored, memory.new_ones(())), values, weights.energy)
        for t in range(steps - 1, -1, -1):
            if of_states is not None:
                ds.add_(of_states[:, t])
            by_gate[t].mul_(ds.unsqueeze(1))
            torch.mm(of_inputs[t], W_context, out=of_contexts_at[t])
            da = torch.bmm(of_contexts_at[t].unsqueeze(1), looks.turned).squeeze(1)
            if of_attention is not None:
                da.add_(of_attention[:, t])
            looks(queries[t], shares[t], da, out=of_query[t])
            ds.mul_(z[t]).addmm_(of_before[t], W_before)
        of_W = all_before.flatten(0, 1).t() @ states[:-1].flatten(0, 1)
        return (
            in_gate_order(all_inputs.transpose(0, 1), 2),
            ds,
            looks.of_keys.mul_(looks.v4),
            torch.bmm(attention.permute(1, 2, 0), of_contexts.transpose(0, 1)),
            None,
            of_W[3 * size :],
            -2 * looks.of_v[None],
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

    def rows(self, rows: Tensor) -> Sigmoids:
        """The sigmoids of some sentences, which may repeat."""
        return self._replace(memory=self.memory[rows])

    def prepare_(self, doubled: Tensor) -> None:
        """Turn 2 query, in place, into the form that `at` takes."""
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


class Looks(NamedTuple):
    """The tensors that attending reads at every step."""

    sigmoids: Sigmoids
    values: Tensor  # [B, S, M]
    v: Tensor  # [A]
    floor: Tensor  # [B * S]    -inf outside of the mask
    y: Tensor  # [B, S, A]      scratch
    rows: Tensor  # [B * S, A]  the same
    energies: Tensor  # [B, S]  scratch

    @classmethod
    def of(cls, sigmoids: Sigmoids, values: Tensor, mask: Tensor, energy: Tensor) -> Looks:
        """For energies v . tanh, where `energy` [1, A] is v."""
        floor = values.new_zeros(mask.shape).masked_fill_(blocked(mask), -torch.inf)
        y = torch.empty_like(sigmoids.memory)
        scratch = y, y.view(-1, y.shape[2]), torch.empty_like(floor)
        return cls(sigmoids, values, -2 * energy[0], floor.view(-1), *scratch)

    def __call__(self, query: Tensor, out: Tensor | None = None) -> Tensor:
        """The shares [B, S] for a doubled query [B, A], which is prepared in place."""
        self.sigmoids.prepare_(query)
        self.sigmoids.at(query.unsqueeze(1), out=self.y)
        torch.addmv(self.floor, self.rows, self.v, out=self.energies.view(-1))
        return torch.softmax(self.energies, 1, out=out)


class LooksBack(NamedTuple):
    """The tensors that the gradient of attending reads at every step, and its sums."""

    sigmoids: Sigmoids
    turned: Tensor  # [B, M, S]  values
    v4: Tensor  # [A]            with y = sigmoid(-2x), tanh'(x) = 4 y (1 - y)
    y: Tensor  # [B, S, A]       scratch
    columns: Tensor  # [A, B * S] the same
    of_keys: Tensor  # [B, S, A] to be multiplied with v4
    of_v: Tensor  # [A]          to be multiplied with -2

    @classmethod
    def of(cls, sigmoids: Sigmoids, values: Tensor, energy: Tensor) -> LooksBack:
        """Before the last step."""
        turned, v4 = values.transpose(1, 2).contiguous(), 4 * energy[0]
        y, of_keys = torch.empty_like(sigmoids.memory), torch.zeros_like(sigmoids.memory)
        return cls(sigmoids, turned, v4, y, y.view(-1, y.shape[2]).t(), of_keys, torch.zeros_like(v4))

    def __call__(self, query: Tensor, share: Tensor, da: Tensor, out: Tensor) -> None:
        """From the gradient of the shares [B, S] to that of the query [B, A], which is written to `out`."""
        da.mul_(share)
        de = da.addcmul_(share, da.sum(1, keepdim=True), value=-1)
        self.sigmoids.at(query.unsqueeze(1), out=self.y)
        self.of_v.addmv_(self.columns, de.view(-1))
        self.y.addcmul_(self.y, self.y, value=-1)
        self.of_keys.addcmul_(self.y, de.unsqueeze(2))
        torch.mul(torch.bmm(de.unsqueeze(1), self.y).squeeze(1), self.v4, out=out)


class _Steps(NamedTuple):
    """The results of all steps, time-major."""

    states: Tensor  # [U + 1, B, H]
    gates: Tensor  # [U, B, 3H + A] r, z, W_hn s + b_hn; the query, prepared
    n: Tensor  # [U, B, H]
    contexts: Tensor  # [U, B, M]
    attention: Tensor  # [U, B, S]


def _decode(inputs: Tensor, hidden: Tensor, looks: Looks, weights: DecoderWeights) -> _Steps:
    """All steps, in order."""
    (B, H), U, (_, S, A) = hidden.shape, inputs.shape[1], looks.y.shape
    W = torch.cat((weights.weight_hh, 2 * weights.query)).t().contiguous()  # `looks` takes doubled queries
    bias = torch.cat((weights.bias_hh, weights.bias_hh.new_zeros(A)))
    W_context = weights.context.t().contiguous()
    x = inputs.transpose(0, 1).clone(memory_format=torch.contiguous_format)
    widths = 3 * H + A, H, looks.values.shape[2], S
    steps = _Steps(x.new_empty(U + 1, B, H), *(x.new_empty(U, B, width) for width in widths))
    steps.states[0] = hidden
    s_at, (x_rz, x_n) = steps.states.unbind(), (part.unbind() for part in x.split((2 * H, H), 2))
    context_rows, share_rows = (part.unsqueeze(2).unbind() for part in (steps.contexts, steps.attention))
    r, z, h_n, queries = (part.unbind() for part in steps.gates.split((H, H, H, A), 2))
    rz, rows = steps.gates[..., : 2 * H].unbind(), (part.unbind() for part in (x, *steps[1:]))
    for t, (x_t, gates_t, n_t, context, share) in enumerate(zip(*rows, strict=True)):
        torch.addmm(bias, s_at[t], W, out=gates_t)
        looks(queries[t], out=share)
        torch.bmm(share_rows[t], looks.values, out=context_rows[t])
        x_t.addmm_(context, W_context)
        rz[t].add_(x_rz[t]).sigmoid_()
        torch.addcmul(x_n[t], r[t], h_n[t], out=n_t).tanh_()
        torch.lerp(n_t, s_at[t], z[t], out=s_at[t + 1])
    return steps
