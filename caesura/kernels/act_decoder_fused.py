"""ACT-DEC's machine, teacher-forced, with its gradient by hand.

B sentences, U target symbols, S segments of the source, H size of the outer state, A of the ACT state, E of
the attention, M of the encoder's states. A symbol is `new` where a segment begins with it, and may end one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from caesura.kernels.act_decoder_weights import ActDecoderWeights, Leaving
from caesura.kernels.attention_decoder import Looks, LooksBack, Sigmoids
from caesura.kernels.gru import gru_slopes, in_gate_order


class Steps(NamedTuple):
    """The results of all steps, time-major."""

    x: Tensor  # [U, B, 3H + 3A]
    left: Tensor  # [U, B, A]                  the mean before the symbol, read only where new
    mean: Tensor  # [U, B, A]                  and after it
    projected: Tensor  # [U, B, 3H + E (+ H)]  r, z, R_n s_rnn + b_n; the query, prepared; s_rnn (`Leaving`)
    outer_n: Tensor  # [U, B, H]
    outer: Tensor  # [U, B, H]                 the outer cell's new state, read only where new
    attention: Tensor  # [U, B, S]
    contexts: Tensor  # [U, B, M]
    before: Tensor  # [U, B, A]                what the inner cell reads
    gates: Tensor  # [U, B, 3A]                its r, z, S_n s + b_n
    inner_n: Tensor  # [U, B, A]
    states: Tensor  # [U, B, A]                s
    h: Tensor  # [U, B, 1]
    given: Tensor  # [U, B, 1]                 p of the symbol that is read
    p: Tensor  # [U, B, 1]                     p of the one that is scored
    new: Tensor  # [U, B, 1]
    ends: Tensor  # [U, B, 1]

    @classmethod
    def empty(cls, x: Tensor, H: int, A: int, projected: int, S: int, M: int) -> Steps:
        """Before the first step."""
        U, B, _ = x.shape
        mean, p = x.new_zeros(U + 1, B, A), x.new_ones(U + 1, B, 1)
        new = torch.ones_like(p, dtype=torch.bool)
        buffers = [x.new_empty(U, B, width) for width in (projected, H, H, S, M, A, 3 * A, A, A, 1)]
        return cls(*(x, mean[:-1], mean[1:], *buffers, p[:-1], p[1:], new[:-1], new[1:]))

    def s_rnn(self, weights: ActDecoderWeights) -> Tensor:
        """[(U,) B, H]: the state that the outer cell reads."""
        return self.left if weights.leave_weight is None else self.projected[..., -self.outer.shape[-1] :]


class ActDecode(torch.autograd.Function):
    """`act_decode_reference` with few operations per step and all weight gradients outside the loop.

    All sentences attend at all steps, as that is what costs least where shapes must not depend on values;
    where no segment begins, the result is not used. The energies are `AttentionDecode`'s.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        outer: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        forced: Tensor,
        epsilon: float,
        *given: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Decode time-major, into buffers that the gradient will need."""
        weights = ActDecoderWeights.of(given)
        x, forces = inputs.transpose(0, 1).contiguous(), forced.t()[..., None].contiguous()
        # A sentence without segments looks at zeros, and they get no gradient.
        keys, values = keys.contiguous(), values.masked_fill(~mask.any(1)[:, None, None], 0).contiguous()
        sigmoids = Sigmoids.of(keys)
        steps = _decode(x, outer, Looks.of(sigmoids, values, mask, weights.energy), forces, weights, epsilon)
        doubled = steps.projected[..., 3 * outer.shape[1] :][..., : keys.shape[2]]
        if not sigmoids.hold(doubled):
            sigmoids = Sigmoids.of(keys, safe=True)
            looks = Looks.of(sigmoids, values, mask, weights.energy)
            steps = _decode(x, outer, looks, forces, weights, epsilon)
        steps.attention.masked_fill_(~mask, 0)
        ctx.factored = sigmoids.factored
        ctx.save_for_backward(sigmoids.memory, values, outer, *steps, *weights)
        ctx.set_materialize_grads(False)
        scalars = [part.squeeze(2).t().contiguous() for part in (steps.ends, steps.p, steps.h)]
        ctx.mark_non_differentiable(scalars[0])
        return steps.states.transpose(0, 1), steps.attention.transpose(0, 1), *scalars

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """From the gradients of the trace to those of all inputs."""
        memory, values, outer, *saved = ctx.saved_tensors
        count = len(Steps._fields)
        steps, weights = Steps(*saved[:count]), ActDecoderWeights.of(saved[count:])
        sigmoids = Sigmoids(memory, ctx.factored, memory.new_ones(()))
        looks = LooksBack.of(sigmoids, values, weights.energy)
        of_states, of_attention, _, of_p, of_h = grads
        of = _decode_back(steps, weights, looks, of_states, of_attention, of_p, of_h)
        return _gradients(steps, of, weights, looks, outer)


def _decode(
    x: Tensor, outer: Tensor, looks: Looks, forces: Tensor, weights: ActDecoderWeights, epsilon: float
) -> Steps:
    """All steps, in order."""
    (B, S, E), (_, H), A = looks.y.shape, outer.shape, weights.inner_hh.shape[1]
    doubled = weights._replace(query=2 * weights.query)  # as `looks` takes them
    leaving, W_context = Leaving.of(doubled), _from_context(weights).t().contiguous()
    W, W_inner, w = (
        leaving.weight.t().contiguous(),
        weights.inner_hh.t().contiguous(),
        weights.halting_weight.t(),
    )
    steps = Steps.empty(x, H, A, W.shape[1], S, looks.values.shape[2])
    projected = F.linear(outer, weights.outer_hh, weights.outer_bias), F.linear(outer, doubled.query)
    steps.projected[0, :, : 3 * H + E] = torch.cat(projected, 1)
    steps.s_rnn(weights)[0] = outer
    means, mean, s, total = (x.new_zeros(B, width) for width in (x.shape[2], A, A, 1))
    share = steps.attention[0]
    for t, (*at_t, force) in enumerate(zip(*(part.unbind() for part in steps), forces.unbind(), strict=True)):
        at = Steps(*at_t)
        if t:
            torch.addmm(leaving.bias, at.left, W, out=at.projected)
        share = torch.where(at.new, looks(at.projected[:, 3 * H : 3 * H + E]), share, out=at.attention)
        torch.bmm(share.unsqueeze(1), looks.values, out=at.contexts.unsqueeze(1))
        means.addcmul_(at.x, at.given)
        x_inner = torch.where(at.new, means[:, 3 * H :], at.x[:, 3 * H :])
        from_context = torch.mm(at.contexts, W_context)
        if weights.inner_context is not None:
            x_inner.add_(from_context[:, 3 * H :])
        x_outer = from_context[:, : 3 * H].add_(means[:, : 3 * H])
        _cell(x_outer, at.projected[:, : 3 * H], at.s_rnn(weights), at.outer_n, at.outer)
        entered = at.outer
        if weights.enter_weight is not None:
            entered = F.linear(at.outer, weights.enter_weight, weights.enter_bias)
        torch.where(at.new, entered, s, out=at.before)
        torch.addmm(weights.inner_bias, at.before, W_inner, out=at.gates)
        _cell(x_inner, at.gates, at.before, at.inner_n, at.states)
        s = at.states
        torch.addmm(weights.halting_bias, s, w, out=at.h).sigmoid_()
        after = total + at.h
        torch.ge(after, 1 - epsilon, out=at.ends).logical_or_(force)
        torch.where(at.ends, 1 - total, at.h, out=at.p)
        mean = torch.addcmul(mean, s, at.p, out=at.mean).masked_fill(at.ends, 0)
        total = after.masked_fill_(at.ends, 0)
        means.masked_fill_(at.new, 0)
    return steps


def _cell(x: Tensor, gates: Tensor, s: Tensor, n: Tensor, out: Tensor) -> None:
    """A GRU step; `gates` [B, 3 s] holds the hidden projections and gets r and z in place of theirs."""
    size = s.shape[1]
    rz, h_n = gates.split((2 * size, size), 1)
    x_rz, x_n = x.split((2 * size, size), 1)
    r, z = rz.add_(x_rz).sigmoid_().chunk(2, 1)
    torch.addcmul(x_n, r, h_n, out=n).tanh_()
    torch.lerp(n, s, z, out=out)


def _from_context(weights: ActDecoderWeights) -> Tensor:
    """[3H (+ 3A), M]: from the context to the gates."""
    if weights.inner_context is None:
        return weights.context
    return torch.cat((weights.context, weights.inner_context))


class Gradients(NamedTuple):
    """The gradients of all steps, time-major; gates in the order of `gru_slopes`: n, r, z, n * r."""

    outer: Tensor  # [U, B, 5H + E]   gates; the query; what passes them by
    inner: Tensor  # [U, B, 4A]       gates
    entered: Tensor  # [U, B, A]      of what the inner cell read, where new
    means: Tensor  # [U, B, 3H + 3A]  of the mean inputs of the segment that the symbol read belongs to
    contexts: Tensor  # [U, B, M]     of the segment's context, where new
    fed: Tensor  # [U, B, 3A]         the inner cell's n, r, z, added up over the segment, where new
    scores: Tensor  # [U, B, 1]       before the sigmoid

    @classmethod
    def slopes(cls, steps: Steps, weights: ActDecoderWeights, of_h: Tensor | None) -> Gradients:
        """The factors of the gradients of the states, and empty buffers."""
        extra, like = len(weights.query) + steps.outer.shape[2], torch.empty_like
        return cls(
            gru_slopes(steps.projected, steps.outer_n, steps.s_rnn(weights), extra),
            gru_slopes(steps.gates, steps.inner_n, steps.before),
            *(like(steps.states), like(steps.x), like(steps.contexts), like(steps.gates)),
            torch.zeros_like(steps.h) if of_h is None else of_h.t()[..., None] * steps.h * (1 - steps.h),
        )


class _Back:
    """The gradients that a step hands to the one before it."""

    def __init__(self, steps: Steps, weights: ActDecoderWeights, looks: LooksBack) -> None:
        (_, B, H), A, fed = steps.outer.shape, steps.states.shape[2], weights.inner_context
        self.H, self.A, self.weights, self.looks = H, A, weights, looks
        self.leaving, self.W_context = Leaving.of(weights).weight, _n_first(weights.context.t(), H).t()
        self.W_fed = None if fed is None else _n_first(fed.t(), A).t()
        zeros = steps.x.new_zeros
        self.left, self.mean, self.s, self.fed = zeros(B, A), zeros(B, A), zeros(B, A), zeros(B, 3 * A)
        self.means, self.total, self.given = zeros(B, 3 * H + 3 * A), zeros(B, 1), zeros(B, 1)

    def inner(self, at: Steps, of: Gradients, of_s: Tensor | None, of_p: Tensor | None) -> None:
        """From the next step and the outputs to the inner cell."""
        A = self.A
        self.mean = torch.where(at.ends, self.left, self.mean)
        dp = (self.mean * at.states).sum(1, keepdim=True).add_(self.given)
        if of_p is not None:
            dp.add_(of_p[:, None])
        # Where a score did not end a segment, its gradient also comes from p and the sum.
        going = (dp + self.total).masked_fill_(at.ends, 0).mul_(at.h)
        of.scores.add_(going).addcmul_(going, at.h, value=-1)
        self.total = torch.where(at.ends, -dp, self.total)
        ds = torch.addcmul(self.s, self.mean, at.p).addcmul_(of.scores, self.weights.halting_weight)
        if of_s is not None:
            ds.add_(of_s)
        of.inner.unflatten(1, (4, A)).mul_(ds.unsqueeze(1))
        before = ds.mul_(at.gates[:, A : 2 * A]).addmm_(of.inner[:, A:], self.weights.inner_hh)
        torch.mul(before, at.new, out=of.entered)
        self.s = before.masked_fill_(at.new, 0)
        if self.W_fed is not None:
            self.fed = self.fed.masked_fill(at.ends, 0).add_(of.inner[:, : 3 * A])
            torch.mul(self.fed, at.new, out=of.fed)

    def outer(self, at: Steps, of: Gradients) -> None:
        """From the state that the inner cell read to the outer cell and the mean inputs."""
        H, A, P = self.H, self.A, self.weights.enter_weight
        ds = of.entered if P is None else torch.mm(of.entered, P)
        gates = of.outer[:, : 4 * H]
        gates.unflatten(1, (4, H)).mul_(ds.unsqueeze(1))
        torch.mul(ds, at.projected[:, H : 2 * H], out=of.outer[:, -H:])
        torch.where(at.new, gates[:, : 3 * H], self.means[:, : 3 * H], out=of.means[:, : 3 * H])
        torch.where(at.new, of.inner[:, : 3 * A], self.means[:, 3 * H :], out=of.means[:, 3 * H :])
        self.means, self.given = of.means, (of.means * at.x).sum(1, keepdim=True)

    def attention(self, at: Steps, of: Gradients, of_share: Tensor | None) -> None:
        """From the outer cell to the query, and to the mean before the symbol."""
        H, E = self.H, len(self.looks.v4)
        torch.mm(of.outer[:, : 3 * H], self.W_context, out=of.contexts)
        if self.W_fed is not None:
            of.contexts.addmm_(of.fed, self.W_fed)
        da = torch.bmm(of.contexts.unsqueeze(1), self.looks.turned).squeeze(1)
        if of_share is not None:
            da.add_(of_share)
        query = at.projected[:, 3 * H : 3 * H + E]
        self.looks(query, at.attention, da, out=of.outer[:, 4 * H : 4 * H + E])
        self.left = torch.mm(of.outer[:, H : H + len(self.leaving)], self.leaving)
        if self.weights.leave_weight is None:
            self.left.add_(of.outer[:, -H:])


def _decode_back(
    steps: Steps,
    weights: ActDecoderWeights,
    looks: LooksBack,
    of_states: Tensor | None,
    of_attention: Tensor | None,
    of_p: Tensor | None,
    of_h: Tensor | None,
) -> Gradients:
    """All steps, from the last one to the first."""
    gradients = Gradients.slopes(steps, weights, of_h)
    back = _Back(steps, weights, looks)
    shares = None if of_attention is None else at_beginnings(of_attention.transpose(0, 1), steps.new)
    seen = steps._replace(x=_n_first(steps.x, steps.outer_n.shape[2]))
    every = (zip(*(part.unbind() for part in parts), strict=True) for parts in (seen, gradients))
    for t, (at_t, of_t) in reversed([*enumerate(zip(*every, strict=True))]):
        at, of = Steps(*at_t), Gradients(*of_t)
        of_s, p = (None if part is None else part[:, t] for part in (of_states, of_p))
        back.inner(at, of, of_s, p)
        back.outer(at, of)
        back.attention(at, of, None if shares is None else shares[t])
    return gradients


def _gradients(
    steps: Steps, of: Gradients, weights: ActDecoderWeights, looks: LooksBack, outer: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients of all arguments of `ActDecode`, from those of the steps."""
    H, A = steps.outer.shape[2], steps.states.shape[2]
    width = len(Leaving.of(weights).weight)
    projected, scores = of.outer[1:, :, H : H + width].flatten(0, 1), of.scores.flatten()
    leaving = Leaving(projected.t() @ steps.left[1:].flatten(0, 1), projected.sum(0))
    grads, of_outer = leaving.back(weights, of.outer[0, :, H:], outer)
    hidden, contexts = of.inner[..., A:].flatten(0, 1), steps.contexts.flatten(0, 1)
    grads["inner_hh"], grads["inner_bias"] = hidden.t() @ steps.before.flatten(0, 1), hidden.sum(0)
    grads["context"] = in_gate_order(of.outer[..., : 3 * H].flatten(0, 1).t() @ contexts, 0)
    if weights.inner_context is not None:
        grads["inner_context"] = in_gate_order(of.fed.flatten(0, 1).t() @ contexts, 0)
    if weights.enter_weight is not None:
        entered = of.entered.flatten(0, 1)
        grads["enter_weight"], grads["enter_bias"] = entered.t() @ steps.outer.flatten(0, 1), entered.sum(0)
    grads["energy"], grads["halting_bias"] = -2 * looks.of_v[None], scores.sum()[None]
    grads["halting_weight"] = (scores @ steps.states.flatten(0, 1))[None]
    of_x = of.means.mul_(steps.given)
    of_x[..., 3 * H :].addcmul_(of.inner[..., : 3 * A], ~steps.new)
    n, rz, inner_n, inner_rz = of_x.split((H, 2 * H, A, 2 * A), 2)
    of_x = torch.cat((rz, n, inner_rz, inner_n), 2)
    of_values = torch.bmm(steps.attention.permute(1, 2, 0), of.contexts.transpose(0, 1))
    of_memory = looks.of_keys * looks.v4, of_values
    return of_x.transpose(0, 1), of_outer, *of_memory, None, None, None, *map(grads.get, weights._fields)


def beginnings(new: Tensor) -> Tensor:
    """[U, B, 1]: where the segment began that a step belongs to."""
    return torch.where(new, torch.arange(len(new), device=new.device)[:, None, None], 0).cummax(0).values


def at_beginnings(rows: Tensor, new: Tensor) -> Tensor:
    """The sums of `rows` [U, B, ...] over segments, where they begin, and zeros elsewhere."""
    return torch.zeros_like(rows).scatter_add_(0, beginnings(new).expand_as(rows), rows)


def _n_first(rows: Tensor, size: int) -> Tensor:
    """Gates r, z, n of this size, then of another one, in the order of `gru_slopes`: n, r, z."""
    other = rows.shape[-1] // 3 - size
    rz, n, other_rz, other_n = rows.split((2 * size, size, 2 * other, other), -1)
    return torch.cat((n, rz, other_n, other_rz), -1)
