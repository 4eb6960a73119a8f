"""The Triton kernels of a GRU layer's steps; `gru_layer_triton` runs them in order.

B sentences, S positions, N directions, H hidden size, W hidden size rounded up to whole tiles. At each step
each direction is at one place of a sentence; when the sentence has ended, all go through its padding and
write zeros, so that after all steps every place has been written.

Where launches OVERLAP, a step begins before the one before it has ended: it reads what no step writes, and
then waits.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from caesura.kernels.triton_math import dot, gru_back, load_gates, rounded, store_gates


@triton.jit
def _place(t, lengths_ptr, b, B, d):
    """Whether each sentence goes on at step t, and where direction d is."""
    length = tl.load(lengths_ptr + b, mask=b < B, other=0)
    goes_on = t < length
    return goes_on, tl.where(goes_on & (d == 1), length - 1 - t, t).to(tl.int64)


@triton.jit(do_not_specialize=["t", "B", "S", "slots"])
def advance(
    t,
    inputs_ptr,  # [B, S, N, 3H]
    lengths_ptr,  # [B]
    weight_ptr,  # [N, 3, W, W] weight_hh, zero beyond H
    bias_ptr,  # [N, 3H] float32
    state_ptr,  # [N, B, W] in float32, in and out
    steps_ptr,  # [N, slots, B, W] the states by step, in at t and out at t + 1
    gates_ptr,  # [N, S, B, 4, W] out: r, z, n, W_hn s + b_hn
    states_ptr,  # [B, S, N H] out: the states by place
    B,
    S,
    slots,  # S + 1, or 2 where no gradient will be wanted
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    KEEP: tl.constexpr,  # whether the gates are wanted
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """One GRU step: a program has the products for all three gates of a tile of states, and so the gates."""
    d = tl.program_id(2).to(tl.int64)
    b = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    h = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    if OVERLAP and t == 0:
        gdc_wait()
    goes_on, place = _place(t, lengths_ptr, b, B, d)
    inside, real = (b < B)[:, None], (h < H)[None, :]
    b = b.to(tl.int64)
    x = inputs_ptr + ((b * S + place) * N + d)[:, None] * (3 * H) + h[None, :]
    i_r = tl.load(x, mask=goes_on[:, None] & real, other=0)
    i_z = tl.load(x + H, mask=goes_on[:, None] & real, other=0)
    i_n = tl.load(x + 2 * H, mask=goes_on[:, None] & real, other=0)
    b_r, b_z, b_n = load_gates(bias_ptr + d * (3 * H) + h[None, :], real, H)
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    carried = state_ptr + (d * B + b)[:, None] * W + h[None, :]
    s = tl.load(carried, mask=inside, other=0)
    k = tl.arange(0, DEPTH)
    weight = weight_ptr + d * (3 * W * W) + h[None, :] * W + k[:, None]
    before = steps_ptr + ((d * slots + t % slots) * B + b)[:, None] * W + k[None, :]
    h_r = tl.zeros((ROWS, COLUMNS), tl.float32)
    h_z = tl.zeros((ROWS, COLUMNS), tl.float32)
    h_n = tl.zeros((ROWS, COLUMNS), tl.float32)
    deep = tl.where(tl.max(goes_on.to(tl.int32), 0) > 0, W, 0)
    for i in tl.range(0, deep, DEPTH, num_stages=STAGES):
        s_i = tl.load(before + i, mask=inside, other=0)
        h_r = dot(s_i, tl.load(weight + i), h_r)
        h_z = dot(s_i, tl.load(weight + W * W + i), h_z)
        h_n = dot(s_i, tl.load(weight + 2 * W * W + i), h_n)
    r, z = tl.sigmoid(i_r + (h_r + b_r)), tl.sigmoid(i_z + (h_z + b_z))
    h_n += b_n
    n = 2 * tl.sigmoid(2 * (i_n + r * h_n)) - 1
    s = tl.where(goes_on[:, None], n + z * (s - n), 0)
    kind = steps_ptr.dtype.element_ty
    tl.store(carried, s, mask=inside)
    after = steps_ptr + ((d * slots + (t + 1) % slots) * B + b)[:, None] * W + h[None, :]
    tl.store(after, rounded(s, kind), mask=inside)
    at_place = states_ptr + ((b * S + place) * N + d)[:, None] * H + h[None, :]
    tl.store(at_place, rounded(s, kind), mask=inside & real)
    if KEEP:
        gates = gates_ptr + ((d * S + t) * B + b)[:, None] * (4 * W) + h[None, :]
        store_gates(gates, r, z, n, inside, W)
        tl.store(gates + 3 * W, rounded(h_n, kind), mask=inside)


@triton.jit(do_not_specialize=["t", "B", "S"])
def advance_back(
    t,
    of_states_ptr,  # [B, S, N H] the gradient that comes from outside
    lengths_ptr,  # [B]
    weight_ptr,  # [N, W, 3, W] weight_hh, its last axis before the gates
    steps_ptr,  # [N, S + 1, B, W]
    gates_ptr,  # [N, S, B, 4, W] r, z, n, W_hn s + b_hn
    kept_ptr,  # [N, B, W] float32: what went past the gates of t + 1, in and out
    of_hidden_ptr,  # [N, S, B, 3, W] of the hidden projections of r, z, n: in at t + 1, out at t
    of_inputs_ptr,  # [B, S, N, 3H] out: of the input projections
    B,
    S,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The gradients of t + 1's gates, multiplied, give that of a tile of states, and that its own gates'."""
    d = tl.program_id(2).to(tl.int64)
    b = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    h = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    if OVERLAP and t == S - 1:
        gdc_wait()
    goes_on, place = _place(t, lengths_ptr, b, B, d)
    went_on, _ = _place(t + 1, lengths_ptr, b, B, d)
    inside, real, read = (b < B)[:, None], (h < H)[None, :], goes_on[:, None]
    b = b.to(tl.int64)
    outside = of_states_ptr + ((b * S + place) * N + d)[:, None] * H + h[None, :]
    ds = tl.load(outside, mask=read & real, other=0).to(tl.float32)
    gates = gates_ptr + ((d * S + t) * B + b)[:, None] * (4 * W) + h[None, :]
    r, z, n = load_gates(gates, read, W)
    h_n = tl.load(gates + 3 * W, mask=read, other=0).to(tl.float32)
    before = steps_ptr + ((d * (S + 1) + t) * B + b)[:, None] * W + h[None, :]
    s = tl.load(before, mask=read, other=0).to(tl.float32)
    if OVERLAP:
        gdc_wait()
        gdc_launch_dependents()
    carried = kept_ptr + (d * B + b)[:, None] * W + h[None, :]
    ds += tl.load(carried, mask=read, other=0)
    k = tl.arange(0, DEPTH)
    weight = weight_ptr + (d * W + h)[None, :] * (3 * W) + k[:, None]
    after = of_hidden_ptr + ((d * S + t + 1) * B + b)[:, None] * (3 * W) + k[None, :]
    # One sum per gate: three chains of products that need not wait for each other.
    by_r = tl.zeros((ROWS, COLUMNS), tl.float32)
    by_z = tl.zeros((ROWS, COLUMNS), tl.float32)
    by_n = tl.zeros((ROWS, COLUMNS), tl.float32)
    deep = tl.where(tl.max(went_on.to(tl.int32), 0) > 0, W, 0)
    for i in tl.range(0, deep, DEPTH, num_stages=STAGES):
        by_r = dot(tl.load(after + i, mask=inside, other=0), tl.load(weight + i), by_r)
        by_z = dot(tl.load(after + W + i, mask=inside, other=0), tl.load(weight + W + i), by_z)
        by_n = dot(tl.load(after + 2 * W + i, mask=inside, other=0), tl.load(weight + 2 * W + i), by_n)
    ds += by_r + by_z + by_n
    dr, dz, dn, dnr = gru_back(ds, s, r, z, n, h_n)
    tl.store(carried, ds * z, mask=read)
    out = of_hidden_ptr + ((d * S + t) * B + b)[:, None] * (3 * W) + h[None, :]
    store_gates(out, dr, dz, dnr, inside, W)
    out = of_inputs_ptr + ((b * S + place) * N + d)[:, None] * (3 * H) + h[None, :]
    store_gates(out, dr, dz, dn, inside & real, H)
