"""The Triton kernels of ACT-DEC's steps, without those that attend; `act_decoder_triton` runs them in order.

B sentences, U target symbols, H size of the outer state, A of the ACT state, X = 3H + 3A; rows of
`projected`, of what the context gives and of states are WIDTH, CONTEXT and WIDE long. At a
step, `new` [U + 1, B] says that a segment begins with the symbol that is scored, so that the one that is read
ended another; `p` [U + 1, B] is what the symbol that is read gives to its segment.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import triton
import triton.language as tl

from caesura.kernels.triton_math import gru, gru_back, load_gates, rounded, store_gates


@triton.jit(do_not_specialize=["t", "B", "U"])
def outer(
    t,
    inputs_ptr,  # [B, U, X]
    from_context_ptr,  # [B, CONTEXT]
    projected_ptr,  # [U, B, WIDTH] in: R s_rnn + b, s_rnn; out in place of the first: r, z, R_n s_rnn + b_n
    p_ptr,
    new_ptr,
    means_ptr,  # [B, X] in and out: the mean inputs of the open segment, in float32
    n_ptr,  # [U, B, H] out
    outers_ptr,  # [U, B, WIDE] out: the new state, or zeros
    B,
    U,
    H: tl.constexpr,
    X: tl.constexpr,
    WIDTH: tl.constexpr,
    CONTEXT: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add the symbol to the mean inputs; where a segment begins, one GRU step with them."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = h < H
    p = tl.load(p_ptr + row)
    means = means_ptr + b * X + h
    x_r, x_z, x_n = load_gates(inputs_ptr + (b * U + t) * X + h, ok, H)
    m_r, m_z, m_n = load_gates(means, ok, H)
    m_r += p * x_r
    m_z += p * x_z
    m_n += p * x_n
    out = outers_ptr + row * WIDE + h
    if tl.load(new_ptr + row) != 0:
        projected = projected_ptr + row * WIDTH + h
        c_r, c_z, c_n = load_gates(from_context_ptr + b * CONTEXT + h, ok, H)
        h_r, h_z, h_n = load_gates(projected, ok, H)
        s = tl.load(projected + 3 * H, mask=ok, other=0).to(tl.float32)
        r, z, n, s = gru(m_r + c_r, m_z + c_z, m_n + c_n, h_r, h_z, h_n, s)
        store_gates(projected, r, z, h_n, ok, H)
        tl.store(n_ptr + row * H + h, rounded(n, n_ptr.dtype.element_ty), mask=ok)
        tl.store(out, rounded(s, outers_ptr.dtype.element_ty), mask=ok)
        zero = tl.zeros((BLOCK,), tl.float32)
        store_gates(means, zero, zero, zero, ok, H)
    else:
        tl.store(out, tl.zeros((BLOCK,), outers_ptr.dtype.element_ty), mask=ok)
        store_gates(means, m_r, m_z, m_n, ok, H)


@triton.jit(do_not_specialize=["t", "B", "U"])
def inner(
    t,
    inputs_ptr,  # [B, U, X]
    from_context_ptr,  # [B, CONTEXT] behind what is the outer gates'; read if FED
    projected_ptr,  # [U, B, WIDTH] behind 4H others: S s + b, where no segment begins
    entered_ptr,  # [B, 4A] where one begins: S s + b, and s
    p_ptr,  # out at t + 1
    new_ptr,  # out at t + 1
    forced_ptr,  # [U, B]
    means_ptr,  # [B, X] in and out
    s_ptr,  # [B, A] in and out, in float32 as are the next two
    mean_ptr,  # [B, A] in and out: of the open segment
    total_ptr,  # [B] in and out: its halting sum
    w_ptr,  # [A] halting weight
    b_ptr,  # [1]
    gates_ptr,  # [U, B, 4A] out: r, z, n, S_n s + b_n
    before_ptr,  # [U, B, A] out: the state that the cell read
    states_ptr,  # [U, B, A] out: its new one
    scores_ptr,  # [U, B] out
    slopes_ptr,  # [U, B] out: h (1 - h)
    carried_ptr,  # [U + 1, B, WIDE] out at t + 1: the mean of a segment that ended, else the state
    limit,
    B,
    U,
    H: tl.constexpr,
    A: tl.constexpr,
    X: tl.constexpr,
    WIDTH: tl.constexpr,
    CONTEXT: tl.constexpr,
    WIDE: tl.constexpr,
    FED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One GRU step, halting, and the mean state; one program per sentence."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    a = tl.arange(0, BLOCK)
    ok = a < A
    kind = states_ptr.dtype.element_ty
    p = tl.load(p_ptr + row)
    means = means_ptr + b * X + 3 * H + a
    x_r, x_z, x_n = load_gates(inputs_ptr + (b * U + t) * X + 3 * H + a, ok, A)
    m_r, m_z, m_n = load_gates(means, ok, A)
    m_r += p * x_r
    m_z += p * x_z
    m_n += p * x_n
    if tl.load(new_ptr + row) != 0:
        entered = entered_ptr + b * (4 * A) + a
        h_r, h_z, h_n = load_gates(entered, ok, A)
        s = tl.load(entered + 3 * A, mask=ok, other=0).to(tl.float32)
        x_r, x_z, x_n = m_r, m_z, m_n
        zero = tl.zeros((BLOCK,), tl.float32)
        store_gates(means, zero, zero, zero, ok, A)
    else:
        h_r, h_z, h_n = load_gates(projected_ptr + row * WIDTH + 4 * H + a, ok, A)
        s = tl.load(s_ptr + b * A + a, mask=ok, other=0)
        store_gates(means, m_r, m_z, m_n, ok, A)
    if FED:
        c_r, c_z, c_n = load_gates(from_context_ptr + b * CONTEXT + 3 * H + a, ok, A)
        x_r, x_z, x_n = x_r + c_r, x_z + c_z, x_n + c_n
    tl.store(before_ptr + row * A + a, rounded(s, kind), mask=ok)
    r, z, n, s = gru(x_r, x_z, x_n, h_r, h_z, h_n, s)
    gates = gates_ptr + row * (4 * A) + a
    store_gates(gates, r, z, n, ok, A)
    tl.store(gates + 3 * A, rounded(h_n, kind), mask=ok)
    tl.store(states_ptr + row * A + a, rounded(s, kind), mask=ok)
    tl.store(s_ptr + b * A + a, s, mask=ok)
    logit = tl.sum(s * tl.load(w_ptr + a, mask=ok, other=0), 0) + tl.load(b_ptr)
    score, total = tl.sigmoid(logit), tl.load(total_ptr + b)
    f = (total + score >= limit) | (tl.load(forced_ptr + row) != 0)
    p = tl.where(f, 1 - total, score)
    mean = tl.load(mean_ptr + b * A + a, mask=ok, other=0) + p * s
    tl.store(carried_ptr + (row + B) * WIDE + a, rounded(tl.where(f, mean, s), kind), mask=ok)
    tl.store(mean_ptr + b * A + a, tl.where(f, 0.0, mean), mask=ok)
    tl.store(total_ptr + b, tl.where(f, 0.0, total + score))
    tl.store(new_ptr + row + B, f.to(new_ptr.dtype.element_ty))
    tl.store(p_ptr + row + B, p)
    tl.store(scores_ptr + row, score)
    # from the logit: 1 - h has few correct digits where h is near 1
    tl.store(slopes_ptr + row, score * tl.sigmoid(-logit))


@triton.jit(do_not_specialize=["t", "B", "U"])
def inner_back(
    t,
    to_carried_ptr,  # [SPLIT, B, WIDE] what t + 1 gives to what it was handed, in parts
    kept_ptr,  # [B, A] in and out, in float32 as are the next five: what went past the gates of t + 1
    of_mean_ptr,  # [B, A] in and out
    of_total_ptr,  # [B] in and out
    of_means_ptr,  # [B, X] in and out: of the mean inputs of the segment that is read
    of_p_read_ptr,  # [DOTS, B] in: what those of t + 1 give to p; out at 0, the rest is `outer_back`'s
    of_fed_ptr,  # [B, 3A] in and out: of the inner gates, from the segment's end on; used if FED
    inputs_ptr,  # [B, U, X]
    states_ptr,  # [U, B, A]
    before_ptr,  # [U, B, A]
    gates_ptr,  # [U, B, 4A] r, z, n, S_n s + b_n
    w_ptr,  # [A]
    p_ptr,
    new_ptr,
    slopes_ptr,  # [U, B]
    of_states_ptr,  # [B, U, A] the gradients that come from outside
    of_p_ptr,  # [B, U]
    of_h_ptr,  # [B, U]
    of_inputs_ptr,  # [B, U, X] out
    of_entered_ptr,  # [U, B, 4A] out: r, z, n * r, and what passes them by, where a segment begins
    of_gates_ptr,  # [U, B, WIDTH] out behind 4H others: r, z, n * r, where none begins
    of_from_context_ptr,  # [U, B, CONTEXT] out if FED, behind the outer gates'
    of_scores_ptr,  # [U, B] out: before the sigmoid
    B,
    U,
    H: tl.constexpr,
    A: tl.constexpr,
    X: tl.constexpr,
    WIDTH: tl.constexpr,
    CONTEXT: tl.constexpr,
    WIDE: tl.constexpr,
    SPLIT: tl.constexpr,
    DOTS: tl.constexpr,
    BLOCK_DOTS: tl.constexpr,
    FED: tl.constexpr,
    OF_STATES: tl.constexpr,
    OF_P: tl.constexpr,
    OF_H: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """From what t + 1 and the outside give to the gates of the inner cell; one program per sentence."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    outside = b * U + t
    a, dot = tl.arange(0, BLOCK), tl.arange(0, BLOCK_DOTS)
    ok = a < A
    here = b * A + a
    f = tl.load(new_ptr + row + B) != 0
    handed = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT):
        handed += tl.load(to_carried_ptr + (part * B + b) * WIDE + a, mask=ok, other=0).to(tl.float32)
    dmean = tl.where(f, handed, tl.load(of_mean_ptr + here, mask=ok, other=0))
    ds = tl.where(f, 0.0, handed + tl.load(kept_ptr + here, mask=ok, other=0))
    s = tl.load(states_ptr + row * A + a, mask=ok, other=0).to(tl.float32)
    dp = tl.sum(dmean * s, 0) + tl.sum(tl.load(of_p_read_ptr + dot * B + b, mask=dot < DOTS, other=0), 0)
    if OF_P:
        dp += tl.load(of_p_ptr + outside)
    total = tl.load(of_total_ptr + b)
    # Where a score did not end a segment, its gradient also comes from p and the sum.
    dh = tl.where(f, 0.0, dp + total)
    if OF_H:
        dh += tl.load(of_h_ptr + outside)
    dh *= tl.load(slopes_ptr + row)
    tl.store(of_scores_ptr + row, dh)
    tl.store(of_total_ptr + b, tl.where(f, -dp, total))
    tl.store(of_mean_ptr + here, dmean, mask=ok)
    ds += tl.load(p_ptr + row + B) * dmean + dh * tl.load(w_ptr + a, mask=ok, other=0)
    if OF_STATES:
        ds += tl.load(of_states_ptr + outside * A + a, mask=ok, other=0).to(tl.float32)
    gates = gates_ptr + row * (4 * A) + a
    r, z, n = load_gates(gates, ok, A)
    h_n = tl.load(gates + 3 * A, mask=ok, other=0).to(tl.float32)
    before = tl.load(before_ptr + row * A + a, mask=ok, other=0).to(tl.float32)
    dr, dz, dn, dnr = gru_back(ds, before, r, z, n, h_n)
    kept = ds * z
    tl.store(kept_ptr + here, kept, mask=ok)
    begins = tl.load(new_ptr + row) != 0
    first, later = tl.where(begins, 1.0, 0.0), tl.where(begins, 0.0, 1.0)
    entered = of_entered_ptr + row * (4 * A) + a
    store_gates(entered, first * dr, first * dz, first * dnr, ok, A)
    tl.store(entered + 3 * A, rounded(first * kept, of_entered_ptr.dtype.element_ty), mask=ok)
    store_gates(of_gates_ptr + row * WIDTH + 4 * H + a, later * dr, later * dz, later * dnr, ok, A)
    # The mean inputs of a segment are those of all its symbols; within one, a symbol is read by itself too.
    means, x = of_means_ptr + b * X + 3 * H + a, inputs_ptr + outside * X + 3 * H + a
    m_r, m_z, m_n = load_gates(means, ok, A)
    m_r, m_z, m_n = tl.where(begins, dr, m_r), tl.where(begins, dz, m_z), tl.where(begins, dn, m_n)
    store_gates(means, m_r, m_z, m_n, ok, A)
    x_r, x_z, x_n = load_gates(x, ok, A)
    tl.store(of_p_read_ptr + b, tl.sum(m_r * x_r + m_z * x_z + m_n * x_n, 0))
    p = tl.load(p_ptr + row)
    of_x = of_inputs_ptr + outside * X + 3 * H + a
    store_gates(of_x, p * m_r + later * dr, p * m_z + later * dz, p * m_n + later * dn, ok, A)
    if FED:
        fed = of_fed_ptr + b * (3 * A) + a
        f_r, f_z, f_n = load_gates(fed, ok, A)
        f_r, f_z = tl.where(f, dr, f_r + dr), tl.where(f, dz, f_z + dz)
        f_n = tl.where(f, dn, f_n + dn)
        store_gates(fed, f_r, f_z, f_n, ok, A)
        from_context = of_from_context_ptr + row * CONTEXT + 3 * H + a
        store_gates(from_context, first * f_r, first * f_z, first * f_n, ok, A)


@triton.jit(do_not_specialize=["t", "B", "U"])
def outer_back(
    t,
    to_outer_ptr,  # [B, WIDE] the gradient of the new outer state
    of_means_ptr,  # [B, X] in and out
    of_p_read_ptr,  # [DOTS, B] out, but for 0
    inputs_ptr,  # [B, U, X]
    projected_ptr,  # [U, B, WIDTH] r, z, R_n s_rnn + b_n, s_rnn
    n_ptr,  # [U, B, H]
    p_ptr,
    new_ptr,
    of_inputs_ptr,  # [B, U, X] out
    of_gates_ptr,  # [U, B, WIDTH] out: r, z, n * r, and what passes them by
    of_from_context_ptr,  # [U, B, CONTEXT] out: r, z, n
    B,
    U,
    H: tl.constexpr,
    X: tl.constexpr,
    WIDTH: tl.constexpr,
    CONTEXT: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Where a segment begins, from its outer state to the gates; everywhere, what its symbols get."""
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * B + b
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = h < H
    means, outside = of_means_ptr + b * X + h, (b * U + t) * X + h
    gates, from_context = of_gates_ptr + row * WIDTH + h, of_from_context_ptr + row * CONTEXT + h
    kind = of_gates_ptr.dtype.element_ty
    if tl.load(new_ptr + row) != 0:
        projected = projected_ptr + row * WIDTH + h
        r, z, h_n = load_gates(projected, ok, H)
        s = tl.load(projected + 3 * H, mask=ok, other=0).to(tl.float32)
        n = tl.load(n_ptr + row * H + h, mask=ok, other=0).to(tl.float32)
        ds = tl.load(to_outer_ptr + b * WIDE + h, mask=ok, other=0).to(tl.float32)
        m_r, m_z, m_n, dnr = gru_back(ds, s, r, z, n, h_n)
        store_gates(means, m_r, m_z, m_n, ok, H)
        store_gates(gates, m_r, m_z, dnr, ok, H)
        tl.store(gates + 3 * H, rounded(ds * z, kind), mask=ok)
        store_gates(from_context, m_r, m_z, m_n, ok, H)
    else:
        m_r, m_z, m_n = load_gates(means, ok, H)
        zero = tl.zeros((BLOCK,), tl.float32)
        store_gates(gates, zero, zero, zero, ok, H)
        tl.store(gates + 3 * H, zero.to(kind), mask=ok)
        store_gates(from_context, zero, zero, zero, ok, H)
    x_r, x_z, x_n = load_gates(inputs_ptr + outside, ok, H)
    dot = tl.sum(m_r * x_r + m_z * x_z + m_n * x_n, 0)
    tl.store(of_p_read_ptr + (1 + tl.program_id(1)) * B + b, dot)
    p = tl.load(p_ptr + row)
    store_gates(of_inputs_ptr + outside, p * m_r, p * m_z, p * m_n, ok, H)
