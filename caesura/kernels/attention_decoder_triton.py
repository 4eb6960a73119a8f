"""The attention decoder's recurrence on a GPU: two matrix products and two Triton kernels per step, each way.

A step's energies, softmax and context are one kernel that reads keys and values once. The gradient computes
tanh again. Gradients that the steps need not wait for (of keys, of values and of all weights) come after
the loop, over all steps at once.

B sentences, U target symbols, S segments, H hidden size, A attention size, M size of the encoder's states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from caesura.kernels import launch
from caesura.kernels.attention_decoder import DecoderWeights
from caesura.kernels.attention_kernels_triton import advance, advance_back, attend, attend_back, keys_back
from caesura.kernels.gru import in_gate_order
from caesura.kernels.launch import INTERPRETED, Launch, padded, product
from caesura.kernels.precision import working_dtype

WIDEST = 4096  # features of a key or value that one program holds
BLOCK = 512  # hidden features of a program of `advance`
# The kernels that attend, tuned on an H200 at the paper's sizes: programs (four per multiprocessor), at most
# this many per sentence, warps of each, and tiles in flight in the forward and the backward pass
PROGRAMS, PARTS, WARPS, STAGES, STAGES_BACK = 528, 8, 4, 3, 3
KEY_ROWS, KEY_COLUMNS, KEY_WARPS = 32, 64, 4  # a tile of the kernel for the gradient of the keys


def unsupported(inputs: Tensor, keys: Tensor, values: Tensor) -> str | None:
    """Why these arguments of `decode` are not for `TritonDecode`; None if they are."""
    if reason := launch.unsupported(inputs.device, working_dtype(inputs), torch.float32, torch.bfloat16):
        return reason
    if max(keys.shape[2], values.shape[2]) > WIDEST:
        return f"keys or values have more than {WIDEST} features"
    if not inputs.numel() or not keys.numel() or not values.numel():
        return "there is nothing to decode or nothing to attend to"
    return None


Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]
Buffers = dict[str, Tensor]


class Sizes(NamedTuple):
    """The sizes of one pass, and its dtype."""

    B: int
    U: int
    S: int
    H: int
    A: int
    M: int
    dtype: torch.dtype

    @property
    def parts(self) -> int:
        """Programs that share a sentence's segments, so that few sentences fill the GPU too."""
        return max(1, min(PROGRAMS // self.B, PARTS, triton.cdiv(self.S, 2 * self.rows)))

    @property
    def rows(self) -> int:
        """Segments that a program that attends holds at a time."""
        return max(1, min(16, 4096 // max(padded(self.A), padded(self.M))))

    def forward(self) -> Layout:
        """The buffers of the way forward."""
        B, U, S, H, A, M, dtype = self
        full, parts = torch.float32, self.parts
        return {
            "keys": ((B, S, A), dtype),  # zero in padding, as are the values
            "values": ((B, S, M), dtype),
            "seen": ((B, S), torch.uint8),
            "lengths": ((B,), torch.int32),  # up to and with the last segment that may be seen
            "v": ((A,), full),
            "W": ((3 * H + A, H), dtype),  # weight_hh and query
            "W_context": ((3 * H, M), dtype),
            "bias": ((3 * H,), full),
            "state": ((B, H), full),
            "from_context": ((B, 3 * H), dtype),
            "states": ((U + 1, B, H), dtype),
            "projected": ((U, B, 3 * H + A), dtype),  # r, z, W_hn s + b_hn and the query
            "n": ((U, B, H), dtype),
            "contexts": ((U, B, M), dtype),
            "attention": ((U, B, S), full),
            "normalizers": ((U, B, 1), full),
            "partial": ((B, parts, A + M), full),
            "sums": ((2, B, parts), full),
            "counters": ((B,), torch.int32),
        }

    def backward(self) -> Layout:
        """The buffers of the way back."""
        B, U, S, H, A, M, dtype = self
        return {
            # In the order of `gru_slopes`: n, r, z are the inputs', r, z, n * r the hidden projections';
            # the query's gradient is behind them.
            "of_gates": ((U, B, 4 * H + A), dtype),
            "of_contexts": ((U, B, M), dtype),
            "of_energies": ((U, B, S), torch.float32),
            "to_context": ((3, B, M), dtype),
            "to_state": ((4, B, H), dtype),
            "kept": ((B, H), torch.float32),
            "W_turned": ((3 * H, M), dtype),  # W_context with its rows in the order n, r, z
        }


class TritonDecode(torch.autograd.Function):
    """`decode_reference` in float32; under bfloat16 autocast products take bfloat16, states stay float32."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decode time-major, into buffers that the gradient will need."""
        (B, U, _), dtype = inputs.shape, working_dtype(inputs)
        sizes = Sizes(B, U, keys.shape[1], hidden.shape[1], keys.shape[2], values.shape[2], dtype)
        ctx.device, ctx.sizes = inputs.device, sizes
        buffers = new_buffers(sizes.forward(), inputs.device)
        with torch.autocast(inputs.device.type, enabled=False):
            _fill(sizes, buffers, hidden, keys, values, mask, DecoderWeights(*weights))
            _forward(sizes, buffers, inputs.to(dtype).contiguous())
        ctx.save_for_backward(*buffers.values())
        ctx.set_materialize_grads(False)
        states = buffers["states"][1:].to(torch.promote_types(inputs.dtype, hidden.dtype))
        return states.transpose(0, 1), buffers["attention"].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_states: Tensor | None, of_attention: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """From the gradients of the states and of the attention to those of all inputs."""
        sizes: Sizes = ctx.sizes
        buffers = dict(zip(sizes.forward(), ctx.saved_tensors, strict=True))
        buffers |= new_buffers(sizes.backward(), ctx.device)
        with torch.autocast(ctx.device.type, enabled=False):
            _clear(buffers)
            of_states = None if of_states is None else of_states.contiguous()
            of_attention = None if of_attention is None else of_attention.contiguous()
            _backward(sizes, buffers, of_states, of_attention)
            return _gradients(sizes, buffers)


def new_buffers(layout: Layout, device: torch.device) -> Buffers:
    return {name: torch.empty(shape, dtype=dtype, device=device) for name, (shape, dtype) in layout.items()}


def _fill(
    sizes: Sizes,
    to: Buffers,
    hidden: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    weights: DecoderWeights,
) -> None:
    """Fill the buffers that the steps read or add to."""
    fill_memory(to, keys, values, mask, weights.energy)
    to["W"][: 3 * sizes.H].copy_(weights.weight_hh)
    to["W"][3 * sizes.H :].copy_(weights.query)
    to["W_context"].copy_(weights.context)
    to["bias"].copy_(weights.bias_hh)
    to["state"].copy_(hidden)
    to["states"][0].copy_(hidden)


def fill_memory(to: Buffers, keys: Tensor, values: Tensor, mask: Tensor, energy: Tensor) -> None:
    """Fill the buffers that the kernels that attend read or add to."""
    padding = ~mask[..., None]
    to["keys"].copy_(keys).masked_fill_(padding, 0)
    to["values"].copy_(values).masked_fill_(padding, 0)
    to["seen"].copy_(mask)
    to["lengths"].copy_((mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1))
    to["v"].copy_(energy[0])
    to["attention"].fill_(-torch.inf)
    to["counters"].zero_()


def _forward(sizes: Sizes, at: Buffers, inputs: Tensor) -> None:
    """Fill the buffers step by step."""
    B, U, _, H, A, _, _ = sizes
    attend_at, block = attending(sizes, at, 3 * H), min(BLOCK, padded(H))
    args = inputs, *named(at, "from_context projected bias state states n"), B, U, H, 3 * H + A, block
    advance_at = Launch(advance, (B, triton.cdiv(H, block), 1), args, block // 128 or 1)
    W, W_context, from_context = at["W"].t(), at["W_context"].t(), at["from_context"]
    states, projected, contexts = (buffer.unbind() for buffer in named(at, "states projected contexts"))
    for t in range(U):
        torch.mm(states[t], W, out=projected[t])
        attend_at(t)
        torch.mm(contexts[t], W_context, out=from_context)
        advance_at(t)
    at["attention"].sub_(at["normalizers"]).exp_()


def named(at: Buffers, names: str) -> list[Tensor]:
    """The buffers of these names, separated by spaces."""
    return [at[name] for name in names.split()]


def attending(sizes: Sizes, at: Buffers, head: int, moves: Tensor | None = None) -> Launch:
    """`attend`, with the query behind `head` other projections.

    `moves` [U, B] says which sentences attend at which step; None: all of them, at every step.
    """
    args = named(
        at, "projected keys values seen lengths v attention normalizers contexts partial sums counters"
    )
    args += [at["seen"] if moves is None else moves]
    rest = sizes.B, sizes.S, moves is not None, head, sizes.A, sizes.M, *tiles(sizes, STAGES)
    return Launch(attend, (sizes.B, sizes.parts, 1), (*args, *rest), WARPS)


def attending_back(
    sizes: Sizes,
    at: Buffers,
    of_attention: Tensor | None,
    heads: tuple[int, int],
    moves: Tensor | None = None,
) -> Launch:
    """`attend_back`, as in `attending`; `heads`: projections before the query, and before its gradient."""
    args = named(at, "to_context of_contexts contexts attention")
    args += [at["kept"] if of_attention is None else of_attention]
    args += named(at, "projected keys values lengths v of_energies of_gates partial counters")
    args += [at["seen"] if moves is None else moves]
    rest = sizes.B, sizes.S, sizes.U, moves is not None, *heads, sizes.A, sizes.M, of_attention is not None
    parts = sizes.B, sizes.parts, 1
    return Launch(attend_back, parts, (*args, *rest, *tiles(sizes, STAGES_BACK)), WARPS)


def _clear(at: Buffers) -> None:
    """Prepare the buffers of the backward pass for the last step."""
    for buffer in named(at, "of_energies to_state kept"):
        buffer.zero_()
    at["W_turned"].copy_(at["W_context"].roll(len(at["W_context"]) // 3, 0))


def _backward(sizes: Sizes, at: Buffers, of_states: Tensor | None, of_attention: Tensor | None) -> None:
    """From the last step to the first: the gradients of the gates, contexts and energies."""
    B, U, _, H, A, M, _ = sizes
    block = min(BLOCK, padded(H))
    outside = at["kept"] if of_states is None else of_states
    buffers = named(at, "to_state kept projected states n of_gates")
    args = outside, *buffers, B, U, H, 3 * H + A, of_states is not None, block
    advance_at = Launch(advance_back, (B, triton.cdiv(H, block), 1), args, block // 128 or 1)
    attend_at = attending_back(sizes, at, of_attention, (3 * H, 4 * H))
    # One product per gate, added up by the kernels that read them: one with so few columns and so long a
    # sum would leave most of the GPU idle.
    of_gates, W_turned, W = at["of_gates"], at["W_turned"].view(3, H, M), at["W"]
    of_inputs = of_gates[..., : 3 * H].unflatten(2, (3, H)).transpose(1, 2).unbind()
    of_before = of_gates[..., H : 4 * H].unflatten(2, (3, H)).transpose(1, 2).unbind()
    of_query, W_gates = of_gates[..., 4 * H :].unbind(), W[: 3 * H].view(3, H, H)
    if A == H:
        of_before, W_gates = of_gates[..., H:].unflatten(2, (4, H)).transpose(1, 2).unbind(), W.view(4, H, H)
    to_context, to_state = at["to_context"], at["to_state"]
    from_gates, from_query = to_state[: len(W_gates)], to_state[3]
    for t in range(U - 1, -1, -1):
        advance_at(t)
        torch.bmm(of_inputs[t], W_turned, out=to_context)
        attend_at(t)
        torch.bmm(of_before[t], W_gates, out=from_gates)
        if A != H:
            torch.mm(of_query[t], W[3 * H :], out=from_query)


def _gradients(sizes: Sizes, at: Buffers) -> tuple[Tensor | None, ...]:
    """The gradients of all arguments of `TritonDecode`, from those of the steps."""
    B, U, _, H, _, _, dtype = sizes
    of_keys, of_v = keys_gradients(sizes, at, 3 * H)
    of_inputs, of_before = at["of_gates"][..., : 3 * H], at["of_gates"][..., H:]
    rows = U * B
    of_W = product(of_before.reshape(rows, -1).t(), at["states"][:-1].reshape(rows, -1))
    of_context = product(of_inputs.reshape(rows, -1).t(), at["contexts"].reshape(rows, -1))
    return (
        torch.cat((of_inputs[..., H:], of_inputs[..., :H]), 2).transpose(0, 1),
        at["kept"] + at["to_state"].sum(0, dtype=torch.float32),
        of_keys,
        torch.bmm(at["attention"].to(dtype).permute(1, 2, 0), at["of_contexts"].transpose(0, 1)),
        None,
        of_W[3 * H :],
        of_v[None],
        in_gate_order(of_context, 0),
        of_W[: 3 * H],
        of_before[..., : 3 * H].sum((0, 1), dtype=torch.float32),
    )


def keys_gradients(
    sizes: Sizes, at: Buffers, head: int, order: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of the keys [B, S, A] and of v [A]; the query is behind `head` other projections.

    `order` [B, U] has the steps at which a sentence attends, and how many they are [B]; None: all of them.
    """
    B, U, S, _, A, _, dtype = sizes
    columns = min(KEY_COLUMNS, padded(A))
    grid = triton.cdiv(A, columns), triton.cdiv(S, KEY_ROWS), B
    of_keys, of_v = torch.empty_like(at["keys"]), at["v"].new_empty(B, grid[1], A)
    read = named(at, "projected keys lengths v of_energies")
    steps = (at["seen"], at["lengths"]) if order is None else order
    rest = B, S, order is not None, head, A, KEY_ROWS, columns, 1, fast(dtype)
    Launch(keys_back, grid, (*read, of_keys, of_v, *steps, *rest), KEY_WARPS)(U)
    return of_keys, of_v.sum((0, 1))


def tiles(sizes: Sizes, stages: int) -> tuple[Any, ...]:
    """The compile-time arguments that the kernels that attend end with."""
    parts = triton.next_power_of_2(sizes.parts)
    return parts, sizes.rows, padded(sizes.A), padded(sizes.M), stages, fast(sizes.dtype)


def fast(dtype: torch.dtype) -> bool:
    return dtype == torch.bfloat16 and not INTERPRETED
