"""The Triton kernels of the attention decoder's steps; `attention_decoder_triton` runs them in order.

Those that attend are ACT-DEC's too, which does not attend at every step (SOME).

B sentences, U target symbols, S segments, H hidden size, A attention size, M size of the encoder's states.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import triton
import triton.language as tl

from caesura.kernels.triton_math import gru, gru_back, load_gates, rounded, store_gates, tanh


@triton.jit
def _last(counter_ptr):
    """Whether this is the last program of its sentence: then it sees what all the others have written."""
    tl.debug_barrier()
    last = tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu") == tl.num_programs(1) - 1
    if last:
        tl.store(counter_ptr, 0)
    tl.debug_barrier()
    return last


@triton.jit(do_not_specialize=["t", "B", "S"])
def attend(
    t,
    projected_ptr,  # [U, B, H3 + A] the query is its end
    keys_ptr,  # [B, S, A]
    values_ptr,  # [B, S, M]
    mask_ptr,  # [B, S]
    lengths_ptr,  # [B]
    v_ptr,  # [A]
    energies_ptr,  # [U, B, S] out, up to the sentence's length
    normalizers_ptr,  # [U, B] out: log sum exp of the energies
    contexts_ptr,  # [U, B, M] out
    partial_ptr,  # [B, parts, A + M] scratch, as are the next two
    sums_ptr,  # [2, B, parts] largest energy, and the sum of exp below it
    counters_ptr,  # [B] zero, before and after
    moves_ptr,  # [U, B] whether a sentence attends at a step; read if SOME
    B,
    S,
    SOME: tl.constexpr,
    H3: tl.constexpr,
    A: tl.constexpr,
    M: tl.constexpr,
    PARTS: tl.constexpr,  # programs per sentence, rounded up to a power of two
    ROWS: tl.constexpr,
    BLOCK_A: tl.constexpr,
    BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
    FAST: tl.constexpr,
):
    """e_s = v . tanh(q + k_s); a = softmax(e); c = sum a_s values_s, the softmax taken as the segments pass.

    A program takes a part of a sentence; where there are several, the last one to end puts them together. A
    sentence that does not attend keeps its context, and its energies are left as they are.
    """
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    a, m = tl.arange(0, BLOCK_A), tl.arange(0, BLOCK_M)
    if SOME:  # noqa: SIM102 (it is decided when compiling)
        if tl.load(moves_ptr + row) == 0:
            if tl.program_id(1) == 0:
                last_context = tl.load(contexts_ptr + (row - B) * M + m, mask=m < M, other=0)
                tl.store(contexts_ptr + row * M + m, last_context, mask=m < M)
                tl.store(normalizers_ptr + row, 0.0)
            return
    length = tl.load(lengths_ptr + b)
    q = tl.load(projected_ptr + row * (H3 + A) + H3 + a, mask=a < A, other=0).to(tl.float32)
    v = tl.load(v_ptr + a, mask=a < A, other=0)
    keys, values = keys_ptr + b * S * A, values_ptr + b * S * M
    context = tl.zeros((BLOCK_M,), tl.float32)
    top = -float("inf")
    total = 0.0
    tiles = tl.cdiv(length, ROWS)
    share_of_tiles = tl.cdiv(tiles, tl.num_programs(1))
    first = tl.program_id(1) * share_of_tiles
    beyond = tl.minimum(first + share_of_tiles, tiles)
    for i in tl.range(first, beyond, num_stages=STAGES):
        # There and back: what the last step read last is still in the cache.
        tile = tl.where(t % 2 == 0, i, first + beyond - 1 - i)
        s = tile * ROWS + tl.arange(0, ROWS)
        inside = (s < length)[:, None]
        k = tl.load(keys + s[:, None] * A + a[None, :], mask=inside & (a < A)[None, :], other=0)
        x = tl.load(values + s[:, None] * M + m[None, :], mask=inside & (m < M)[None, :], other=0)
        seen = tl.load(mask_ptr + b * S + s, mask=s < length, other=0)
        e = tl.sum(v[None, :] * tanh(q[None, :] + k.to(tl.float32), FAST), 1)
        e = tl.where(seen != 0, e, -float("inf"))
        tl.store(energies_ptr + row * S + s, e, mask=s < length)
        high = tl.maximum(top, tl.max(e, 0))
        base = tl.where(high == -float("inf"), 0.0, high)
        scale = tl.exp(top - base)
        share = tl.exp(e - base)
        total = total * scale + tl.sum(share, 0)
        context = context * scale + tl.sum(share[:, None] * x.to(tl.float32), 0)
        top = high
    last = True
    if PARTS > 1:
        parts = tl.num_programs(1)
        tl.store(partial_ptr + (b * parts + tl.program_id(1)) * (A + M) + m, context, mask=m < M)
        tl.store(sums_ptr + b * parts + tl.program_id(1), top)
        tl.store(sums_ptr + (B + b) * parts + tl.program_id(1), total)
        last = _last(counters_ptr + b)
        if last:
            part = tl.arange(0, PARTS)
            real = part < parts
            tops = tl.load(sums_ptr + b * parts + part, mask=real, other=-float("inf"), cache_modifier=".cg")
            totals = tl.load(sums_ptr + (B + b) * parts + part, mask=real, other=0, cache_modifier=".cg")
            x = tl.load(
                partial_ptr + (b * parts + part[:, None]) * (A + M) + m[None, :],
                mask=real[:, None] & (m < M)[None, :],
                other=0,
                cache_modifier=".cg",
            )
            top = tl.max(tops, 0)
            share = tl.exp(tops - tl.where(top == -float("inf"), 0.0, top))
            total = tl.sum(share * totals, 0)
            context = tl.sum(share[:, None] * x, 0)
    if last:
        top = tl.where(top == -float("inf"), 0.0, top)  # a sentence without segments: shares of 0
        total = tl.where(total == 0.0, 1.0, total)
        tl.store(normalizers_ptr + row, top + tl.log(total))
        tl.store(
            contexts_ptr + row * M + m, rounded(context / total, contexts_ptr.dtype.element_ty), mask=m < M
        )


@triton.jit(do_not_specialize=["t", "B", "U"])
def advance(
    t,
    inputs_ptr,  # [B, U, 3H]
    from_context_ptr,  # [B, 3H] W c
    projected_ptr,  # [U, B, 3H + A] in: W_hh s, without bias; out: r, z, W_hn s + b_hn
    bias_ptr,  # [3H]
    state_ptr,  # [B, H] in float32, in and out
    states_ptr,  # [U + 1, B, H] out at t + 1
    n_ptr,  # [U, B, H] out
    B,
    U,
    H: tl.constexpr,
    WIDTH: tl.constexpr,  # 3H + A
    BLOCK: tl.constexpr,
):
    """One GRU step from the three projections."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = h < H
    x = inputs_ptr + (b * U + t) * (3 * H) + h
    c = from_context_ptr + b * (3 * H) + h
    p = projected_ptr + row * WIDTH + h
    kind = projected_ptr.dtype.element_ty
    x_r, x_z, x_n = load_gates(x, ok, H)
    c_r, c_z, c_n = load_gates(c, ok, H)
    h_r, h_z, h_n = load_gates(p, ok, H)
    b_r, b_z, b_n = load_gates(bias_ptr + h, ok, H)
    h_n += b_n
    s = tl.load(state_ptr + b * H + h, mask=ok, other=0)
    r, z, n, s = gru(x_r + c_r, x_z + c_z, x_n + c_n, h_r + b_r, h_z + b_z, h_n, s)
    store_gates(p, r, z, h_n, ok, H)
    tl.store(n_ptr + row * H + h, n.to(kind), mask=ok)
    tl.store(state_ptr + b * H + h, s, mask=ok)
    tl.store(states_ptr + (row + B) * H + h, s.to(kind), mask=ok)


@triton.jit(do_not_specialize=["t", "B", "U"])
def advance_back(
    t,
    of_states_ptr,  # [B, U, H] the gradient that comes from outside
    product_ptr,  # [4, B, H] what r, z, n * r and the query of t + 1 give to that of the state
    kept_ptr,  # [B, H] float32: what went past the gates of t + 1, in and out
    projected_ptr,  # [U, B, 3H + A] r, z, W_hn s + b_hn
    states_ptr,  # [U + 1, B, H]
    n_ptr,  # [U, B, H]
    of_gates_ptr,  # [U, B, 4H + A] out, in the order of `gru_slopes`: n, r, z, n * r
    B,
    U,
    H: tl.constexpr,
    WIDTH: tl.constexpr,  # 3H + A
    OUTSIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of a state becomes that of its gates, and what passes them by."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = h < H
    p = projected_ptr + row * WIDTH + h
    out = of_gates_ptr + row * (WIDTH + H) + h
    kind = of_gates_ptr.dtype.element_ty
    ds = tl.load(kept_ptr + b * H + h, mask=ok, other=0)
    for gate in tl.static_range(4):
        ds += tl.load(product_ptr + (gate * B + b) * H + h, mask=ok, other=0).to(tl.float32)
    if OUTSIDE:
        ds += tl.load(of_states_ptr + (b * U + t) * H + h, mask=ok, other=0).to(tl.float32)
    r, z, h_n = load_gates(p, ok, H)
    s = tl.load(states_ptr + row * H + h, mask=ok, other=0).to(tl.float32)
    n = tl.load(n_ptr + row * H + h, mask=ok, other=0).to(tl.float32)
    dr, dz, dn, dnr = gru_back(ds, s, r, z, n, h_n)
    store_gates(out, dn, dr, dz, ok, H)
    tl.store(out + 3 * H, rounded(dnr, kind), mask=ok)
    tl.store(kept_ptr + b * H + h, ds * z, mask=ok)


@triton.jit(do_not_specialize=["t", "B", "S", "U"])
def attend_back(
    t,
    product_ptr,  # [3, B, M] what the gates give to the context's gradient, in three parts
    of_contexts_ptr,  # [U, B, M] out: their sum
    contexts_ptr,  # [U, B, M]
    attention_ptr,  # [U, B, S]
    of_attention_ptr,  # [B, U, S] the gradient that comes from outside
    projected_ptr,  # [U, B, H3 + A] the query is its end
    keys_ptr,  # [B, S, A]
    values_ptr,  # [B, S, M]
    lengths_ptr,  # [B]
    v_ptr,  # [A]
    of_energies_ptr,  # [U, B, S] out, up to the sentence's length; zero before
    of_gates_ptr,  # [U, B, H4 + A] out: its end, the query's gradient
    partial_ptr,  # [B, parts, A + M] scratch
    counters_ptr,  # [B] zero, before and after
    moves_ptr,  # [U, B] whether a sentence attends at a step; read if SOME
    B,
    S,
    U,
    SOME: tl.constexpr,
    H3: tl.constexpr,
    H4: tl.constexpr,
    A: tl.constexpr,
    M: tl.constexpr,
    OUTSIDE: tl.constexpr,
    PARTS: tl.constexpr,  # programs per sentence, rounded up to a power of two
    ROWS: tl.constexpr,
    BLOCK_A: tl.constexpr,
    BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
    FAST: tl.constexpr,
):
    """de_s = a_s (da_s - sum a da), da_s = values_s . dc: that sum is c . dc; dq = v sum de (1 - tanh^2)."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    a, m = tl.arange(0, BLOCK_A), tl.arange(0, BLOCK_M)
    kind = of_gates_ptr.dtype.element_ty
    if SOME:  # noqa: SIM102 (it is decided when compiling)
        if tl.load(moves_ptr + row) == 0:
            if tl.program_id(1) == 0:
                tl.store(of_contexts_ptr + row * M + m, tl.zeros((BLOCK_M,), kind), mask=m < M)
                tl.store(of_gates_ptr + row * (H4 + A) + H4 + a, tl.zeros((BLOCK_A,), kind), mask=a < A)
            return
    length = tl.load(lengths_ptr + b)
    q = tl.load(projected_ptr + row * (H3 + A) + H3 + a, mask=a < A, other=0).to(tl.float32)
    dc = tl.zeros((BLOCK_M,), tl.float32)
    for gate in tl.static_range(3):
        dc += tl.load(product_ptr + (gate * B + b) * M + m, mask=m < M, other=0).to(tl.float32)
    if tl.program_id(1) == 0:
        tl.store(of_contexts_ptr + row * M + m, rounded(dc, kind), mask=m < M)
    mean = tl.sum(dc * tl.load(contexts_ptr + row * M + m, mask=m < M, other=0).to(tl.float32), 0)
    if OUTSIDE:
        for i in range(tl.cdiv(length, BLOCK_A)):
            s = i * BLOCK_A + a
            share = tl.load(attention_ptr + row * S + s, mask=s < length, other=0)
            da = tl.load(of_attention_ptr + (b * U + t) * S + s, mask=s < length, other=0).to(tl.float32)
            mean += tl.sum(share * da, 0)
    keys, values = keys_ptr + b * S * A, values_ptr + b * S * M
    dq = tl.zeros((BLOCK_A,), tl.float32)
    tiles = tl.cdiv(length, ROWS)
    share_of_tiles = tl.cdiv(tiles, tl.num_programs(1))
    first = tl.program_id(1) * share_of_tiles
    beyond = tl.minimum(first + share_of_tiles, tiles)
    for i in tl.range(first, beyond, num_stages=STAGES):
        tile = tl.where(t % 2 == 0, i, first + beyond - 1 - i)
        s = tile * ROWS + tl.arange(0, ROWS)
        inside = (s < length)[:, None]
        x = tl.load(values + s[:, None] * M + m[None, :], mask=inside & (m < M)[None, :], other=0)
        k = tl.load(keys + s[:, None] * A + a[None, :], mask=inside & (a < A)[None, :], other=0)
        share = tl.load(attention_ptr + row * S + s, mask=s < length, other=0)
        da = tl.sum(dc[None, :] * x.to(tl.float32), 1)
        if OUTSIDE:
            da += tl.load(of_attention_ptr + (b * U + t) * S + s, mask=s < length, other=0).to(tl.float32)
        de = share * (da - mean)
        tl.store(of_energies_ptr + row * S + s, de, mask=s < length)
        y = tanh(q[None, :] + k.to(tl.float32), FAST)
        dq += tl.sum(de[:, None] * (1 - y * y), 0)
    last = True
    if PARTS > 1:
        parts = tl.num_programs(1)
        tl.store(partial_ptr + (b * parts + tl.program_id(1)) * (A + M) + a, dq, mask=a < A)
        last = _last(counters_ptr + b)
        if last:
            part = tl.arange(0, PARTS)
            real = (part < parts)[:, None] & (a < A)[None, :]
            place = partial_ptr + (b * parts + part[:, None]) * (A + M) + a[None, :]
            dq = tl.sum(tl.load(place, mask=real, other=0, cache_modifier=".cg"), 0)
    if last:
        v = tl.load(v_ptr + a, mask=a < A, other=0)
        tl.store(of_gates_ptr + row * (H4 + A) + H4 + a, rounded(v * dq, kind), mask=a < A)


@triton.jit(do_not_specialize=["U", "B", "S"])
def keys_back(
    U,
    projected_ptr,  # [U, B, H3 + A] the query is its end
    keys_ptr,  # [B, S, A]
    lengths_ptr,  # [B]
    v_ptr,  # [A]
    of_energies_ptr,  # [U, B, S]
    of_keys_ptr,  # [B, S, A] out
    of_v_ptr,  # [B, tiles of S, A] out, to be added up
    order_ptr,  # [B, U] the steps at which a sentence attends, as many as `counts` [B] says; read if SOME
    counts_ptr,
    B,
    S,
    SOME: tl.constexpr,
    H3: tl.constexpr,
    A: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_A: tl.constexpr,
    STAGES: tl.constexpr,
    FAST: tl.constexpr,
):
    """dk = v sum_u de_u (1 - tanh^2), dv = sum_u de_u tanh: one program per tile of keys, for all steps."""
    b = tl.program_id(2).to(tl.int64)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A)
    length = tl.load(lengths_ptr + b)
    inside = (s < length)[:, None] & (a < A)[None, :]
    place = s[:, None] * A + a[None, :]
    k = tl.load(keys_ptr + b * S * A + place, mask=inside, other=0).to(tl.float32)
    squares = tl.zeros((BLOCK_S, BLOCK_A), tl.float32)
    firsts = tl.zeros((BLOCK_S, BLOCK_A), tl.float32)
    total = tl.zeros((BLOCK_S,), tl.float32)
    count = U
    if SOME:
        count = tl.load(counts_ptr + b)
    steps = tl.where(tl.program_id(1) * BLOCK_S < length, count, 0)
    queries, of_energies = projected_ptr + b * (H3 + A) + H3 + a, of_energies_ptr + b * S + s
    for u in tl.range(0, steps, num_stages=STAGES):
        at = u
        if SOME:
            at = tl.load(order_ptr + b * U + u)
        row = at * B.to(tl.int64)
        q = tl.load(queries + row * (H3 + A), mask=a < A, other=0).to(tl.float32)
        de = tl.load(of_energies + row * S, mask=s < length, other=0)
        y = tanh(q[None, :] + k, FAST)
        once = de[:, None] * y
        firsts += once
        squares += once * y
        total += de
    v = tl.load(v_ptr + a, mask=a < A, other=0)
    dk = v[None, :] * (total[:, None] - squares)
    written = (s < S)[:, None] & (a < A)[None, :]
    tl.store(of_keys_ptr + b * S * A + place, rounded(dk, of_keys_ptr.dtype.element_ty), mask=written)
    part = b * tl.num_programs(1) + tl.program_id(1)
    tl.store(of_v_ptr + part * A + a, tl.sum(firsts, 0), mask=a < A)
