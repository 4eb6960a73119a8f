"""ACT-ENC's recurrence (Algorithm 1) on plain tensors: the reference, and a form with its gradient by hand.

B sentences, T symbols, A state size. `ends` (f) is a constant for the gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from caesura.kernels import pick
from caesura.kernels.gru import gru_slopes, gru_step, in_gate_order


class ActWeights(NamedTuple):
    """The parameters inside the loop."""

    weight_hh: Tensor  # [3A, A]
    bias_hh: Tensor  # [3A]
    halting_weight: Tensor  # [1, A]
    halting_bias: Tensor  # [1]


class ActCarry(NamedTuple):
    """The state that one symbol hands to the next."""

    s: Tensor  # [B, A]    the state
    mean: Tensor  # [B, A] the open segment's running mean
    H: Tensor  # [B]       halting sum
    R: Tensor  # [B]       sum of the scores that did not halt


class ActTrace(NamedTuple):
    """The results per symbol."""

    means: Tensor  # [B, T, A] the mean after this symbol: the segment's where it ends
    ends: Tensor  # [B, T]     bool
    weights: Tensor  # [B, T]  p, 0 on padding
    scores: Tensor  # [B, T]   h, 0 on padding


class ActSegments(NamedTuple):
    """The results per segment, and those of the trace per symbol."""

    vectors: Tensor  # [B, T, > A] each sentence's segments: mean, 1, zeros; only zeros beyond the last one
    lengths: Tensor  # [B]        segments
    ends: Tensor
    weights: Tensor
    scores: Tensor


def act_segments(
    projections: Tensor,
    symbols: Tensor | None,
    weights: ActWeights,
    carry: ActCarry,
    mask: Tensor,
    forced: Tensor,
    epsilon: float,
    shift: Tensor | None = None,
) -> tuple[ActSegments, ActCarry]:
    """Scan input projections, going on from `carry`.

    With `symbols` [B, T], `projections` is a table [V, 3A] over the vocabulary; without, it is [B, T, 3A].
    `mask` [B, T] is True on real symbols. `forced` [B, T] is 1 where a symbol must halt, -1 where it must
    not, and 0 (or False) where its score decides; on padding it is not read. Where segments go on beyond a
    sum of 1, the symbols beyond it get nothing: p = min(h, 1 - H).
    Only the reference takes a `shift` [B, T] of the halting logits, so it runs where one is given.
    """
    picked = pick(projections.device, "act_scan", projections, weights, carry)[0] if shift is None else ""
    if picked == "triton":
        from caesura.kernels.act_scan_triton import segments  # here: Triton is not everywhere

        return segments(projections, symbols, weights, carry, mask, forced, epsilon)
    inputs = projections if symbols is None else F.embedding(symbols, projections)
    if picked == "fused":
        results = ActScan.apply(inputs, *weights, *carry, mask, forced, epsilon)
        trace, carry = ActTrace(*results[:4]), ActCarry(*results[4:])
    else:
        trace, carry = act_scan_reference(inputs, weights, carry, mask, forced, epsilon, shift)
    rows, (count, steps) = F.pad(trace.means, (0, 1), value=1.0), mask.shape
    # Symbols within a segment go to a last row that is cut off.
    slots = (trace.ends.cumsum(1) - 1).masked_fill(~trace.ends, steps)[..., None].expand_as(rows)
    vectors = rows.new_zeros(count, steps + 1, rows.shape[2]).scatter(1, slots, rows)[:, :steps]
    return ActSegments(vectors, trace.ends.sum(1), *trace[1:]), carry


def act_scan_reference(
    inputs: Tensor,
    weights: ActWeights,
    carry: ActCarry,
    mask: Tensor,
    forced: Tensor,
    epsilon: float,
    shift: Tensor | None = None,
) -> tuple[ActTrace, ActCarry]:
    """Algorithm 1's loop over all sentences at once, in autograd's operations.

    `inputs` is [B, T, 3A], `shift` [B, T] is added to the halting logits; the rest is as in `act_segments`.
    """
    s, mean, H, R = carry
    shifts = inputs.new_zeros(1, mask.shape[1]) if shift is None else shift
    # Padding is never read, so that not even NaN there can reach a result or a gradient.
    inputs = inputs.masked_fill(~mask[..., None], 0)
    rows: list[tuple[Tensor, ...]] = []
    # unbind: its gradient is one stack; that of inputs[:, t] would fill a whole [B, T, 3A] per step
    steps = (tensor.unbind(1) for tensor in (inputs, mask, forced, shifts))
    for x, real, force, more in zip(*steps, strict=True):
        new = gru_step(x, F.linear(s, weights.weight_hh, weights.bias_hh), s)  # Alg. 1, l. 7
        with torch.autocast(inputs.device.type, enabled=False):
            logit = F.linear(new, weights.halting_weight, weights.halting_bias).squeeze(1)
            h = torch.sigmoid(logit if shift is None else logit + more)  # l. 9
        f = (((H + h >= 1 - epsilon) & (force >= 0)) | (force > 0)) & real  # l. 10
        # Beyond a sum of 1, which only a forbidden halt can reach, a symbol has nothing left to give.
        going = real & ~f & (h <= 1 - H)
        p = torch.where(f | (real & ~going), 1 - H, h * going)  # l. 11
        mean = mean + p[:, None] * new  # l. 13
        R = R + h * going  # l. 15
        s = torch.where(f[:, None], mean, torch.where(real[:, None], new, s))  # l. 18
        rows.append((mean, f, p, h * real))
        mean = mean * ~f[:, None]  # l. 19
        H = torch.where(real & ~f & ~going, 1, H + h * going) * ~f  # l. 12, 19
    if not rows:
        empty = inputs.new_zeros(mask.shape)
        return ActTrace(inputs.new_zeros(*mask.shape, s.shape[1]), mask, empty, empty), carry
    trace = ActTrace(*(torch.stack(columns, 1) for columns in zip(*rows, strict=True)))
    return trace, ActCarry(s, mean, H, R)


class ActScan(torch.autograd.Function):
    """`act_scan_reference` with few operations per step and all weight gradients outside the loop.

    Padding costs nothing inside the loop: an update gate of exactly 1 keeps the state, a halting bias of -inf
    gives a score of exactly 0, and a threshold of inf never halts.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, *given: Any) -> tuple[Tensor, ...]:
        """Scan time-major, into buffers that the gradient will need; arguments as in the reference."""
        weight_hh, bias_hh, halting_weight, halting_bias, s, mean, H, R, mask, forced, epsilon = given
        size, (count, steps) = s.shape[1], mask.shape
        real, W, w = mask.t().contiguous(), weight_hh.t().contiguous(), halting_weight[0]
        x = inputs.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        x.masked_fill_(~real[..., None], 0)[..., size : 2 * size].masked_fill_(~real[..., None], torch.inf)
        biases = torch.where(real, halting_bias, -torch.inf).unbind()
        never = ~real | (forced < 0).t()
        limits = x.new_full(real.shape, 1 - epsilon).masked_fill_(never, torch.inf).unbind()
        states, gates = x.new_empty(steps + 1, count, size), x.new_empty(steps, count, 3 * size)
        n, new, means = (x.new_empty(steps, count, size) for _ in range(3))
        p, h, ends = x.new_empty(steps, count), x.new_empty(steps, count), torch.empty_like(real)
        full = torch.empty_like(real)
        states[0] = s
        forces, s_at = ((forced > 0) & mask).unbind(1), states.unbind()
        p_at, p_columns = p.unbind(), p[..., None].unbind()
        x_rz, x_n = (part.unbind() for part in x.split((2 * size, size), 2))
        r, z, h_n = (part.unbind() for part in gates.split(size, 2))
        rz, f_columns = gates[..., : 2 * size].unbind(), ends[..., None].unbind()
        rows = (buffer.unbind() for buffer in (gates, n, new, means, h, ends, full))
        for t, (gates_t, n_t, new_t, mean_t, h_t, f, full_t) in enumerate(zip(*rows, strict=True)):
            torch.addmm(bias_hh, s_at[t], W, out=gates_t)
            rz[t].add_(x_rz[t]).sigmoid_()
            torch.addcmul(x_n[t], r[t], h_n[t], out=n_t).tanh_()
            torch.lerp(n_t, s_at[t], z[t], out=new_t)
            torch.addmv(biases[t], new_t, w, out=h_t).sigmoid_()
            room = 1 - H
            torch.ge(H + h_t, limits[t], out=f).logical_or_(forces[t])
            torch.gt(h_t, room, out=full_t).logical_or_(f)  # beyond a sum of 1 there is nothing left to give
            torch.where(full_t, room, h_t, out=p_at[t])
            torch.addcmul(mean, new_t, p_columns[t], out=mean_t)
            torch.where(f_columns[t], mean_t, new_t, out=s_at[t + 1])
            mean, H = mean_t.masked_fill(f_columns[t], 0), (H + p_at[t]).masked_fill_(f, 0)
        ctx.save_for_backward(weight_hh, w, states, gates, n, new, p, h, ends, full)
        trace = means.transpose(0, 1), ends.t().contiguous(), p.t().contiguous(), h.t().contiguous()
        ctx.mark_non_differentiable(trace[1])
        # Outputs are never inputs, as they would be where there are no steps.
        return *trace, states[steps].clone(), mean.clone(), H.clone(), R + (h * ~full).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """From the gradients of the trace and of the last carry to those of all inputs."""
        weight_hh, w, states, gates, n, new, p, h, ends, full = ctx.saved_tensors
        size = n.shape[2]
        of_means, _, of_p, of_h, ds, dmean, dH, dR = grads
        of_means_at, of_p_at = of_means.transpose(0, 1).contiguous().unbind(), of_p.unbind(1)
        # A score's gradient passes the sigmoid; where it is what its symbol gave, also that of p, H and R.
        slope = h * (1 - h)
        going = slope * ~full
        of_score = torch.addcmul(of_h.t() * slope, going, dR)
        of_gates = gru_slopes(gates, n, states[:-1])
        by_gate, of_hidden = of_gates.unflatten(2, (4, size)).unbind(), of_gates[..., size:].unbind()
        z, new_at, full_at = gates[..., size : 2 * size].unbind(), new.unbind(), full.unbind()
        going_at, of_score_at = going.unbind(), of_score.unbind()
        p_columns, f_columns, score_columns = (rows[..., None].unbind() for rows in (p, ends, of_score))
        ds = ds.clone()
        for t in range(len(n) - 1, -1, -1):
            dmean = torch.where(f_columns[t], ds, dmean).add_(of_means_at[t])
            dp = torch.linalg.vecdot(dmean, new_at[t]).add_(of_p_at[t])
            of_score_at[t].addcmul_(dp + dH, going_at[t])
            dH = torch.where(full_at[t], -dp, dH)
            dnew = ds.masked_fill_(f_columns[t], 0).addcmul_(dmean, p_columns[t])
            dnew.addcmul_(score_columns[t], w)
            by_gate[t].mul_(dnew.unsqueeze(1))
            ds = dnew.mul_(z[t]).addmm_(of_hidden[t], weight_hh)
        all_hidden, all_scores = of_gates[..., size:].flatten(0, 1), of_score.flatten()
        return (
            in_gate_order(of_gates[..., : 3 * size].transpose(0, 1), 2),
            all_hidden.t() @ states[:-1].flatten(0, 1),
            all_hidden.sum(0),
            (all_scores @ new.flatten(0, 1))[None],
            all_scores.sum()[None],
            *(ds, dmean, dH, dR),
            *(None, None, None),
        )
