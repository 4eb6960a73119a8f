"""ACT-DEC's machine on a GPU, teacher-forced: three products and three Triton kernels per step, each way.

What a step hands on is one row of A features: the mean where a segment ended, which only the outer cell and
the attention read (through Q), else the ACT state, which only the inner cell reads. So one product serves
both. Only sentences in which a segment begins attend.

B sentences, U target symbols, S segments of the source, H size of the outer state, A of the ACT state, E of
the attention, M of the encoder's states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from caesura.kernels import attention_decoder_triton as attention
from caesura.kernels.act_decoder_fused import at_beginnings, beginnings
from caesura.kernels.act_decoder_kernels_triton import inner, inner_back, outer, outer_back
from caesura.kernels.act_decoder_weights import ActDecoderWeights, Entering, Leaving
from caesura.kernels.attention_decoder_triton import Buffers, Layout, named, new_buffers
from caesura.kernels.launch import Launch, padded, product
from caesura.kernels.precision import working_dtype

SPLIT = 6  # parts of the product that gives the gradient of what was handed on: few columns, a long sum


def unsupported(inputs: Tensor, keys: Tensor, values: Tensor, weights: ActDecoderWeights) -> str | None:
    """Why these arguments of `act_decode` are not for `TritonActDecode`; None if they are."""
    if weights.inner_hh.shape[1] > attention.WIDEST:
        return f"the ACT state has more than {attention.WIDEST} features"
    return attention.unsupported(inputs, keys, values)


class Sizes(NamedTuple):
    """The sizes of one pass, and its dtype."""

    B: int
    U: int
    S: int
    H: int
    A: int
    E: int
    M: int
    fed: bool
    dtype: torch.dtype

    @property
    def looks(self) -> attention.Sizes:
        """The sizes of the kernels that attend."""
        return attention.Sizes(self.B, self.U, self.S, self.H, self.E, self.M, self.dtype)

    @property
    def head(self) -> int:
        """Columns of `projected` before the query: those of the gates, of s_rnn, of S s; then padding."""
        return _rounded(4 * self.H + 3 * self.A + self.E, 8 * SPLIT) - self.E

    @property
    def width(self) -> int:
        """Columns of `projected`."""
        return self.head + self.E

    @property
    def context(self) -> int:
        """Columns from the context to the gates, in three parts of whole vectors."""
        return _rounded(3 * (self.H + (self.A if self.fed else 0)), 24)

    @property
    def block(self) -> int:
        """Features of a program of the kernels of the outer cell."""
        return min(attention.BLOCK, padded(self.H))

    def forward(self) -> Layout:
        """The buffers of the way forward, without those of attending."""
        B, U, _, H, A, _, M, _, dtype = self
        full, flag = torch.float32, torch.uint8
        return {
            # biases are a column behind the weights, where the carried rows and outer states have a 1
            "W": ((self.width, _wide(A)), dtype),  # R Q, Q, S, padding, query Q
            "W_outer": ((4 * A, _wide(H)), dtype),  # S P, P
            "W_context": ((self.context, M), dtype),
            "w": ((A,), full),
            "b": ((1,), full),
            "first": ((B, H), full),
            "carried": ((U + 1, B, _wide(A)), dtype),
            "projected": ((U, B, self.width), dtype),
            "n": ((U, B, H), dtype),
            "outers": ((U, B, _wide(H)), dtype),
            "from_context": ((B, self.context), dtype),
            "entered": ((B, 4 * A), dtype),
            "gates": ((U, B, 4 * A), dtype),
            "before": ((U, B, A), dtype),
            "states": ((U, B, A), dtype),
            "s": ((B, A), full),
            "mean": ((B, A), full),
            "means": ((B, 3 * H + 3 * A), full),
            "total": ((B,), full),
            "scores": ((U, B), full),
            "slopes": ((U, B), full),
            "p": ((U + 1, B), full),
            "new": ((U + 1, B), flag),
            "forced": ((U, B), flag),
        }

    def backward(self) -> Layout:
        """The buffers of the way back."""
        B, U, S, H, A, _, M, _, dtype = self
        full = torch.float32
        return {
            "of_gates": ((U, B, self.width), dtype),
            "of_from_context": ((U, B, self.context), dtype),
            "of_entered": ((U, B, 4 * A), dtype),
            "of_contexts": ((U, B, M), dtype),
            "of_energies": ((U, B, S), full),
            "of_inputs": ((B, U, 3 * H + 3 * A), dtype),
            "of_scores": ((U, B), full),
            "to_carried": ((SPLIT, B, _wide(A)), dtype),
            "to_outer": ((B, _wide(H)), dtype),
            "to_context": ((3, B, M), dtype),
            "kept": ((B, A), full),
            "of_mean": ((B, A), full),
            "of_means": ((B, 3 * H + 3 * A), full),
            "of_total": ((B,), full),
            "of_p_read": ((1 + triton.cdiv(H, self.block), B), full),
            "of_fed": ((B, 3 * A), full),
        }


# Buffers of the recurrent decoder's layout that the kernels that attend take.
SHARED = ("keys", "values", "seen", "lengths", "v", "contexts", "attention", "normalizers")
SCRATCH = ("partial", "sums", "counters")


class TritonActDecode(torch.autograd.Function):
    """`act_decode_reference` in float32; under bfloat16 autocast products take bfloat16, all else float32."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        outer_state: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        forced: Tensor,
        epsilon: float,
        *given: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Decode time-major, into buffers that the gradient will need."""
        weights, (B, U, _), dtype = ActDecoderWeights.of(given), inputs.shape, working_dtype(inputs)
        A, fed = weights.inner_hh.shape[1], weights.inner_context is not None
        (S, E), M, H = keys.shape[1:], values.shape[2], outer_state.shape[1]
        sizes = Sizes(B, U, S, H, A, E, M, fed, dtype)
        ctx.sizes, ctx.device = sizes, inputs.device
        at = new_buffers(_layout(sizes), inputs.device)
        with torch.autocast(inputs.device.type, enabled=False):
            inputs = inputs.to(dtype).contiguous()
            _fill(sizes, at, outer_state, keys, values, mask, forced, weights.to(torch.float32))
            _forward(sizes, at, inputs, 1 - epsilon)
        ctx.save_for_backward(inputs, *weights, *at.values())
        ctx.set_materialize_grads(False)
        seen = at["attention"].gather(0, beginnings(at["new"][:U, :, None] != 0).expand_as(at["attention"]))
        ends = at["new"][1:].t() != 0
        ctx.mark_non_differentiable(ends)
        scalars = ends, at["p"][1:].t().contiguous(), at["scores"].t().contiguous()
        return at["states"].transpose(0, 1), seen.transpose(0, 1), *scalars

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """From the gradients of the trace to those of all inputs."""
        sizes: Sizes = ctx.sizes
        inputs, *saved = ctx.saved_tensors
        count = len(ActDecoderWeights._fields)
        at = dict(zip(_layout(sizes), saved[count:], strict=True)) | new_buffers(sizes.backward(), ctx.device)
        with torch.autocast(ctx.device.type, enabled=False):
            of_states, of_attention, _, of_p, of_h = grads
            if of_attention is not None:
                new = at["new"][: sizes.U, :, None] != 0
                of_attention = at_beginnings(of_attention.transpose(0, 1), new).transpose(0, 1)
            outside = of_states, of_attention, of_p, of_h
            _clear(sizes, at)
            _backward(sizes, at, inputs, *(None if part is None else part.contiguous() for part in outside))
            return _gradients(sizes, at, ActDecoderWeights.of(saved[:count]).to(torch.float32))


def _layout(sizes: Sizes) -> Layout:
    """The buffers of the way forward."""
    looks = sizes.looks.forward()
    return sizes.forward() | {name: looks[name] for name in (*SHARED, *SCRATCH)}


def _fill(
    sizes: Sizes,
    to: Buffers,
    outer_state: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    forced: Tensor,
    weights: ActDecoderWeights,
) -> None:
    """Fill the buffers that the steps read or add to."""
    H, A, E, W = sizes.H, sizes.A, sizes.E, to["W"]
    attention.fill_memory(to, keys, values, mask, weights.energy)
    for name in ("W", "W_outer", "W_context", "s", "mean", "means", "total"):
        to[name].zero_()
    W[3 * H : 4 * H, :A].fill_diagonal_(1)  # where Q is the identity
    blocks = zip((W, W[sizes.head :], W[3 * H :]), Leaving.of(weights).split(H, E), strict=False)
    for rows, (weight, bias) in blocks:
        _set(rows, weight, bias)
    _set(W[4 * H :], weights.inner_hh, weights.inner_bias)
    _set(to["W_outer"], *Entering.of(weights))
    to["W_context"][: 3 * H] = weights.context
    if weights.inner_context is not None:
        to["W_context"][3 * H : 3 * H + 3 * A] = weights.inner_context
    to["w"].copy_(weights.halting_weight[0])
    to["b"].copy_(weights.halting_bias)
    for name, size in (("carried", A), ("outers", H)):  # the 1 that biases are multiplied with
        to[name][..., size:].zero_()
        to[name][..., size].fill_(1)
    to["carried"][0].zero_()
    first, projected = to["first"].copy_(outer_state), to["projected"][0].zero_()
    projected[:, : 3 * H] = F.linear(first, weights.outer_hh, weights.outer_bias)
    projected[:, 3 * H : 4 * H] = first
    projected[:, sizes.head :] = F.linear(first, weights.query)
    to["p"][0].fill_(1)
    to["new"][0].fill_(1)
    to["forced"].copy_(forced.t())


def _set(W: Tensor, weight: Tensor, bias: Tensor) -> None:
    """The first rows of W: a weight, and behind it its bias."""
    rows, columns = weight.shape
    W[:rows, :columns] = weight
    W[:rows, columns] = bias


def _forward(sizes: Sizes, at: Buffers, inputs: Tensor, limit: float) -> None:
    """Fill the buffers step by step."""
    B, U, _, H, A, _, _, fed, _ = sizes
    wide, X = (sizes.width, sizes.context), 3 * H + 3 * A
    attend_at = attention.attending(sizes.looks, at, sizes.head, at["new"])
    args = named(at, "from_context projected p new means n outers")
    outer_at = _launch(outer, sizes, inputs, *args, B, U, H, X, *wide, _wide(H), sizes.block)
    args = named(at, "from_context projected entered p new forced means s mean total w b")
    args += named(at, "gates before states scores slopes carried")
    inner_at = _launch(inner, sizes, inputs, *args, limit, B, U, H, A, X, *wide, _wide(A), fed, padded(A))
    W, W_context, W_outer = (weight.t() for weight in named(at, "W W_context W_outer"))
    carried, projected, contexts, outers = (
        b.unbind() for b in named(at, "carried projected contexts outers")
    )
    for t in range(U):
        if t:
            torch.mm(carried[t], W, out=projected[t])
        attend_at(t)
        torch.mm(contexts[t], W_context, out=at["from_context"])
        outer_at(t)
        torch.mm(outers[t], W_outer, out=at["entered"])
        inner_at(t)
    at["attention"].sub_(at["normalizers"]).exp_()


def _launch(kernel: Any, sizes: Sizes, *args: Any) -> Launch:
    """A kernel that takes its block of features last, for all features of a state."""
    size, block = sizes.A if kernel in (inner, inner_back) else sizes.H, args[-1]
    return Launch(kernel, (sizes.B, triton.cdiv(size, block), 1), args, max(1, min(8, block // 128)))


def _clear(sizes: Sizes, at: Buffers) -> None:
    """Make the buffers of the way back ready for the last step."""
    for buffer in named(at, "of_energies to_carried kept of_mean of_means of_total of_p_read of_fed"):
        buffer.zero_()
    at["of_gates"][..., 4 * sizes.H + 3 * sizes.A : sizes.head].zero_()
    at["of_from_context"][..., 3 * sizes.H :].zero_()


def _backward(
    sizes: Sizes,
    at: Buffers,
    inputs: Tensor,
    of_states: Tensor | None,
    of_attention: Tensor | None,
    of_p: Tensor | None,
    of_h: Tensor | None,
) -> None:
    """From the last step to the first: the gradients of the gates, contexts and energies."""
    B, U, _, H, A, _, M, fed, _ = sizes
    wide, X = (sizes.width, sizes.context), 3 * H + 3 * A
    given, dots = (of_states, of_p, of_h), len(at["of_p_read"])
    args = named(at, "to_carried kept of_mean of_total of_means of_p_read of_fed")
    args += [inputs, *named(at, "states before gates w p new slopes")]
    args += [at["kept"] if part is None else part for part in given]
    args += named(at, "of_inputs of_entered of_gates of_from_context of_scores")
    rest = B, U, H, A, X, *wide, _wide(A), SPLIT, dots, triton.next_power_of_2(dots), fed
    inner_at = _launch(inner_back, sizes, *args, *rest, *(part is not None for part in given), padded(A))
    args = [*named(at, "to_outer of_means of_p_read"), inputs]
    args += named(at, "projected n p new of_inputs of_gates of_from_context")
    outer_at = _launch(outer_back, sizes, *args, B, U, H, X, *wide, _wide(H), sizes.block)
    attend_at = attention.attending_back(sizes.looks, at, of_attention, (sizes.head, sizes.head), at["new"])
    # Products in parts, added up by the kernels that read them: with so few columns and so long a sum, one
    # alone would leave most of the GPU idle.
    of_gates, W = _parts(at["of_gates"], SPLIT), at["W"].view(SPLIT, -1, _wide(A))
    of_from_context, W_context = _parts(at["of_from_context"], 3), at["W_context"].view(3, -1, M)
    of_entered, W_outer = at["of_entered"].unbind(), at["W_outer"]
    for t in range(U - 1, -1, -1):
        inner_at(t)
        torch.mm(of_entered[t], W_outer, out=at["to_outer"])
        outer_at(t)
        torch.bmm(of_from_context[t], W_context, out=at["to_context"])
        attend_at(t)
        if t:
            torch.bmm(of_gates[t], W, out=at["to_carried"])


def _parts(rows: Tensor, count: int) -> tuple[Tensor, ...]:
    """[count, B, columns / count] per step."""
    return rows.unflatten(2, (count, -1)).transpose(1, 2).unbind()


def _gradients(sizes: Sizes, at: Buffers, weights: ActDecoderWeights) -> tuple[Tensor | None, ...]:
    """The gradients of all arguments of `TritonActDecode`, from those of the steps."""
    U, H, A, head = sizes.U, sizes.H, sizes.A, sizes.head
    of_keys, of_v = attention.keys_gradients(sizes.looks, at, head, _order(at["new"][:U].t() != 0))
    of_W, of_W_outer, of_context = (
        product(of.flatten(0, 1).t(), rows[:U].flatten(0, 1))
        for of, rows in (
            (at["of_gates"], at["carried"]),
            (at["of_entered"], at["outers"]),
            (at["of_from_context"], at["contexts"]),
        )
    )
    first, of_S = at["of_gates"][0].float(), of_W[4 * H : 4 * H + 3 * A]
    first = torch.cat((first[:, : 3 * H], first[:, head:], first[:, 3 * H : 4 * H]), 1)
    of_Q = of_W[3 * H : 4 * H] if weights.leave_weight is not None else of_W[:0]
    leaving = torch.cat((of_W[: 3 * H], of_W[head:], of_Q))
    grads, of_first = Leaving(leaving[:, :A], leaving[:, A]).back(weights, first, at["first"])
    grads |= Entering(of_W_outer[:, :H], of_W_outer[:, H]).back(weights)
    grads["inner_hh"], grads["inner_bias"] = grads["inner_hh"] + of_S[:, :A], grads["inner_bias"] + of_S[:, A]
    grads["context"], grads["energy"] = of_context[: 3 * H], of_v[None]
    if weights.inner_context is not None:
        grads["inner_context"] = of_context[3 * H : 3 * H + 3 * A]
    scores = at["of_scores"].flatten()
    grads["halting_weight"] = (scores @ at["states"].flatten(0, 1).float())[None]
    grads["halting_bias"] = scores.sum()[None]
    of_values = torch.bmm(at["attention"].to(sizes.dtype).permute(1, 2, 0), at["of_contexts"].transpose(0, 1))
    memory = of_first, of_keys, of_values
    return at["of_inputs"], *memory, None, None, None, *map(grads.get, weights._fields)


def _order(new: Tensor) -> tuple[Tensor, Tensor]:
    """[B, U]: the steps at which each sentence attends, then anything; and how many they are [B]."""
    B, U = new.shape
    slots = torch.where(new, new.cumsum(1) - 1, U)
    steps = torch.arange(U, dtype=torch.int32, device=new.device).expand(B, U)
    order = torch.zeros(B, U + 1, dtype=torch.int32, device=new.device).scatter_(1, slots, steps)
    return order[:, :U].contiguous(), new.sum(1, dtype=torch.int32)


def _rounded(columns: int, whole: int) -> int:
    return triton.cdiv(columns, whole) * whole


def _wide(size: int) -> int:
    """A row's features, the 1 for the biases, and zeros up to a multiple of eight, which products like."""
    return _rounded(size + 1, 8)
