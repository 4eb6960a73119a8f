"""The two kernels of ACT-ENC's recurrence in Triton; act_scan_triton.py launches them.

B sentences, T symbols, A state size, V rows of projections. A program takes ROWS sentences through all their
symbols, their states in registers. PAD is A rounded up to a power of two. With CHUNK = PAD the hidden weights
stay in shared memory; else every symbol reads them from the cache, CHUNK rows at once, which needs the state
in memory too. Products have operands of type OPERAND; everything else is float32.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import triton
import triton.language as tl

from caesura.kernels.triton_math import dot, gru_back, load_gates, rounded, store_gates, tanh


@triton.jit
def _row_of(symbols, here, inside):
    """[ROWS]: where a symbol's input projections stand among the table's rows, or those of the inputs."""
    index = here
    if symbols is not None:
        index = tl.load(symbols + here, inside, 0)
    return index


@triton.jit
def _projections(x, index, V, inside, a, A: tl.constexpr):
    # A symbol outside the table gives NaN, not whatever stands there in memory.
    at = x + index[:, None] * (3 * A) + a[None, :]
    inside = inside & (index >= 0)[:, None] & (index < V)[:, None]
    return load_gates(at, inside, A, float("nan"))


@triton.jit(do_not_specialize=["B", "T", "V"])
def forward(
    x,
    symbols,
    weight,
    bias,
    halting_weight,
    halting_bias,
    s_in,
    mean_in,
    H_in,
    R_in,
    mask,
    forced,
    segments,
    counts,
    ends,
    weights,
    scores,
    states,
    gates,
    slopes,
    s_out,
    mean_out,
    H_out,
    R_out,
    B,
    T,
    V,
    limit,
    WIDE: tl.constexpr,
    A: tl.constexpr,
    PAD: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Algorithm 1, l. 7 to 19, for ROWS sentences.

    `segments` [B, T, WIDE] gets the means of each sentence's segments, a 1 after each, `counts` [B] their
    number. `gates` (r, z, n, W_hn s + b_hn) is for the gradient.
    """
    b = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    a, rows = tl.arange(0, PAD), b < B
    columns = (a < A)[None, :]
    tile, at = rows[:, None] & columns, b[:, None] * A + a[None, :]
    s, mean = tl.load(s_in + at, tile, 0.0), tl.load(mean_in + at, tile, 0.0)
    H, R, count = tl.load(H_in + b, rows, 0.0), tl.load(R_in + b, rows, 0.0), b * 0
    b_r, b_z = tl.load(bias + a, a < A, 0.0)[None, :], tl.load(bias + A + a, a < A, 0.0)[None, :]
    b_n = tl.load(bias + 2 * A + a, a < A, 0.0)[None, :]
    w_h, b_h = tl.load(halting_weight + a, a < A, 0.0)[None, :], tl.load(halting_bias)
    if CHUNK == PAD:
        W = weight + a[None, :] * A + a[:, None]
        square = columns & (a < A)[:, None]
        W_r, W_z, W_n = load_gates(W, square, A * A)
        W_r, W_z, W_n = rounded(W_r, OPERAND), rounded(W_z, OPERAND), rounded(W_n, OPERAND)
    # What a step reads is asked for a step earlier, a symbol two steps earlier: it travels while we compute.
    here, end = b * T, b * T + T
    now = rows & (here < end)
    x_r, x_z, x_n = _projections(x, _row_of(symbols, here, now), V, tile & now[:, None], a, A)
    index = _row_of(symbols, here + 1, rows & (here + 1 < end))
    real, force = tl.load(mask + here, now, 0), tl.load(forced + here, now, 0)
    for t in range(T):
        here = b * T + t
        later = rows & (here + 1 < end)
        next_r, next_z, next_n = _projections(x, index, V, tile & later[:, None], a, A)
        index = _row_of(symbols, here + 2, rows & (here + 2 < end))
        next_real, next_force = tl.load(mask + here + 1, later, 0), tl.load(forced + here + 1, later, 0)
        real_b, at = real != 0, here[:, None] * A + a[None, :]
        keep = real_b[:, None] & columns
        if states is not None:
            tl.store(states + at, s, tile)
        if CHUNK == PAD:
            operand = rounded(s, OPERAND)
            h_r = dot(operand, W_r)
            h_z = dot(operand, W_z)
            h_n = dot(operand, W_n)
        else:
            h_r = tl.zeros((ROWS, PAD), tl.float32)
            h_z = tl.zeros((ROWS, PAD), tl.float32)
            h_n = tl.zeros((ROWS, PAD), tl.float32)
            tl.debug_barrier()  # every thread now sees the whole state
            for first in range(0, PAD, CHUNK):
                k = first + tl.arange(0, CHUNK)
                operand = tl.load(
                    states + here[:, None] * A + k[None, :], rows[:, None] & (k < A)[None, :], 0.0
                )
                operand = rounded(operand, OPERAND)
                W, inside = weight + a[None, :] * A + k[:, None], columns & (k < A)[:, None]
                h_r += dot(operand, tl.load(W, inside, 0.0))
                h_z += dot(operand, tl.load(W + A * A, inside, 0.0))
                h_n += dot(operand, tl.load(W + 2 * A * A, inside, 0.0))
        # Padding's inputs may be anything, its columns must be 0. An update gate of 1 stops its gradient.
        r = tl.sigmoid(tl.where(keep, x_r, 0.0) + h_r + b_r)
        z = tl.where(real_b[:, None], tl.sigmoid(tl.where(keep, x_z, 0.0) + h_z + b_z), 1.0)
        h_n += b_n
        n = tanh(tl.where(keep, x_n, 0.0) + r * h_n)
        new = n + z * (s - n)  # l. 7
        logit = tl.sum(new * w_h, 1) + b_h
        h = tl.where(real_b, tl.sigmoid(logit), 0.0)  # l. 9
        f = (((H + h >= limit) & (force >= 0)) | (force > 0)) & real_b  # l. 10
        full = f | (h > 1.0 - H)  # beyond a sum of 1 there is nothing left to give
        p = tl.where(full, 1.0 - H, h)  # l. 11
        mean += p[:, None] * new  # l. 13
        R += tl.where(full, 0.0, h)  # l. 15
        to = segments + (b * T + count)[:, None] * WIDE + a[None, :]
        tl.store(to, rounded(mean, segments.dtype.element_ty), f[:, None] & columns)
        count += f
        tl.store(ends + here, f, rows)
        tl.store(weights + here, p, rows)
        tl.store(scores + here, h, rows)
        if gates is not None:
            four = gates + here[:, None] * (4 * A) + a[None, :]
            store_gates(four, r, z, n, tile, A)
            tl.store(four + 3 * A, h_n, tile)
            # h (1 - h) from the logit: 1 - h has few correct digits where h is near 1. Negative
            # where a symbol that does not halt gives less than h.
            slope = h * tl.sigmoid(-logit)
            tl.store(slopes + here, tl.where(full & ~f, -tl.maximum(slope, 1e-37), slope), rows)
        s = tl.where(f[:, None], mean, tl.where(real_b[:, None], new, s))  # l. 18
        mean = tl.where(f[:, None], 0.0, mean)  # l. 19
        H = tl.where(f, 0.0, H + p)  # l. 12, 19
        x_r, x_z, x_n, real, force = next_r, next_z, next_n, next_real, next_force
    at = b[:, None] * A + a[None, :]
    tl.store(s_out + at, s, tile)
    tl.store(mean_out + at, mean, tile)
    tl.store(H_out + b, H, rows)
    tl.store(R_out + b, R, rows)
    tl.store(counts + b, count, rows)
    for first in range(0, T, PAD):  # the 1 after each mean
        k = (first + a)[None, :]
        ones = segments + (b * T * WIDE + A)[:, None] + k * WIDE
        tl.store(ones, 1.0, rows[:, None] & (k < count[:, None]))


@triton.jit
def _optional(pointer, at, inside, like):
    """What stands there, or zeros like `like` where nothing was handed in."""
    value = like * 0.0
    if pointer is not None:
        value = tl.load(pointer + at, inside, 0.0)
    return value


@triton.jit
def _saved(states, gates, g_segments, here, segment, a, tile, WIDE: tl.constexpr, A: tl.constexpr):
    """s, r, z, n, W_hn s + b_hn and the mean's gradient, at one symbol.

    `segment` [ROWS] is the row of the segment that may end there.
    """
    at, four = here[:, None] * A + a[None, :], gates + here[:, None] * (4 * A) + a[None, :]
    s = tl.load(states + at, tile, 0.0)
    r, z, n = load_gates(four, tile, A)
    h_n = tl.load(four + 3 * A, tile, 0.0)
    g_m = _optional(g_segments, segment[:, None] * WIDE + a[None, :], tile, s)
    return s, r, z, n, h_n, g_m.to(tl.float32)


@triton.jit
def _saved_rows(weights, slopes, ends, g_weights, g_scores, here, rows):
    p, slope = tl.load(weights + here, rows, 0.0), tl.load(slopes + here, rows, 0.0)
    return (
        p,
        slope,
        tl.load(ends + here, rows, 0),
        _optional(g_weights, here, rows, p),
        _optional(g_scores, here, rows, p),
    )


@triton.jit(do_not_specialize=["B", "T", "WIDTH"])
def backward(
    symbols,
    weight,
    halting_weight,
    states,
    gates,
    slopes,
    weights,
    ends,
    g_segments,
    counts,
    g_weights,
    g_scores,
    g_s,
    g_mean,
    g_H,
    g_R,
    of_gates,
    factors,
    sums,
    of_s,
    of_mean,
    of_H,
    B,
    T,
    WIDTH,
    WIDE: tl.constexpr,
    A: tl.constexpr,
    PAD: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """From g_*, the gradients of what came out, to those of the gates [B, T, 4A] and of the carry.

    Gates: r, z, n, and n's hidden part. `factors` [B, T, WIDTH] gets what the gates' gradients are to be
    multiplied with for those of the weights: the state, and a one-hot symbol. `sums` [programs, 4A + 1]: the
    gradients of the halting weight, of the three hidden biases, and of the halting bias.
    """
    b = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    a, rows = tl.arange(0, PAD), b < B
    columns = (a < A)[None, :]
    tile, at = rows[:, None] & columns, b[:, None] * A + a[None, :]
    w_h = tl.load(halting_weight + a, a < A, 0.0)[None, :]
    nothing, no_row = tl.zeros((ROWS, PAD), tl.float32), tl.zeros((ROWS,), tl.float32)
    ds, dmean = _optional(g_s, at, tile, nothing), _optional(g_mean, at, tile, nothing)
    dH, dR = _optional(g_H, b, rows, no_row), _optional(g_R, b, rows, no_row)
    sum_h, sum_r, sum_z, sum_n, sum_b = nothing, nothing, nothing, nothing, no_row
    if CHUNK == PAD:
        W = weight + a[:, None] * A + a[None, :]
        square = columns & (a < A)[:, None]
        W_r, W_z, W_n = load_gates(W, square, A * A)
        W_r, W_z, W_n = rounded(W_r, OPERAND), rounded(W_z, OPERAND), rounded(W_n, OPERAND)
    here, begin = b * T + T - 1, b * T
    now = rows & (here >= begin)
    p, slope, ended, g_p, g_h = _saved_rows(weights, slopes, ends, g_weights, g_scores, here, now)
    segment = begin
    if g_segments is not None:
        segment = tl.maximum(begin + tl.load(counts + b, rows, 0) - 1, begin)
    if CHUNK == PAD:
        inside = tile & now[:, None]
        s, r, z, n, h_n, g_m = _saved(states, gates, g_segments, here, segment, a, inside, WIDE, A)
    for back in range(T):
        here = b * T + T - 1 - back
        now = rows & (here > begin)
        next_p, next_slope, next_ended, next_g_p, next_g_h = _saved_rows(
            weights, slopes, ends, g_weights, g_scores, here - 1, now
        )
        f = ended != 0
        if CHUNK < PAD:
            s, r, z, n, h_n, g_m = _saved(states, gates, g_segments, here, segment, a, tile, WIDE, A)
        if g_segments is not None:
            segment = tl.maximum(segment - f, begin)
        if CHUNK == PAD:  # a step ahead, as in `forward`; wide states have no registers for it
            inside = tile & now[:, None]
            next_s, next_r, next_z, next_n, next_h_n, next_g_m = _saved(
                states, gates, g_segments, here - 1, segment, a, inside, WIDE, A
            )
        if g_segments is not None:
            g_m = tl.where(f[:, None], g_m, 0.0)
        new = n + z * (s - n)
        dmean = tl.where(f[:, None], ds, dmean) + g_m
        dp = tl.sum(dmean * new, 1) + g_p
        # Where a score is what its symbol gave, its gradient also comes from p, H and R.
        full = f | (slope < 0.0)
        dh = tl.abs(slope) * (g_h + tl.where(full, 0.0, dp + dH + dR))
        dH = tl.where(full, -dp, dH)
        dnew = tl.where(f[:, None], 0.0, ds) + dmean * p[:, None] + dh[:, None] * w_h
        dr, dz, dn, dh_n = gru_back(dnew, s, r, z, n, h_n)
        four = of_gates + here[:, None] * (4 * A) + a[None, :]
        o_r, o_z, o_n = rounded(dr, OPERAND), rounded(dz, OPERAND), rounded(dh_n, OPERAND)
        store_gates(four, dr, dz, dn, tile, A)
        tl.store(four + 3 * A, rounded(dh_n, of_gates.dtype.element_ty), tile)
        ds = dnew * z
        if CHUNK == PAD:
            ds += dot(o_r, W_r)
            ds += dot(o_z, W_z)
            ds += dot(o_n, W_n)
        else:
            product = tl.zeros((ROWS, PAD), tl.float32)
            tl.debug_barrier()  # every thread now sees all gates' gradients
            for first in range(0, PAD, CHUNK):
                k = first + tl.arange(0, CHUNK)
                part = of_gates + here[:, None] * (4 * A) + k[None, :]
                some = rows[:, None] & (k < A)[None, :]
                W, inside = weight + k[:, None] * A + a[None, :], columns & (k < A)[:, None]
                operand = rounded(tl.load(part, some, 0.0), OPERAND)
                product += dot(operand, tl.load(W, inside, 0.0))
                operand, W = rounded(tl.load(part + A, some, 0.0), OPERAND), W + A * A
                product += dot(operand, tl.load(W, inside, 0.0))
                operand, W = rounded(tl.load(part + 3 * A, some, 0.0), OPERAND), W + A * A
                product += dot(operand, tl.load(W, inside, 0.0))
            ds += product
        tl.store(factors + here[:, None] * WIDTH + a[None, :], rounded(s, OPERAND), tile)
        if symbols is not None:
            index = tl.load(symbols + here, rows, 0)
            tl.store(factors + here * WIDTH + A + index, 1.0, rows & (index >= 0) & (index < WIDTH - A))
        sum_h += dh[:, None] * new
        sum_r, sum_z, sum_n, sum_b = sum_r + dr, sum_z + dz, sum_n + dh_n, sum_b + dh
        if CHUNK == PAD:
            s, r, z, n, h_n, g_m = next_s, next_r, next_z, next_n, next_h_n, next_g_m
        p, slope, ended, g_p, g_h = next_p, next_slope, next_ended, next_g_p, next_g_h
    sums += tl.program_id(0) * (4 * A + 1) + a
    tl.store(sums, tl.sum(sum_h, 0), a < A)
    tl.store(sums + A, tl.sum(sum_r, 0), a < A)
    tl.store(sums + 2 * A, tl.sum(sum_z, 0), a < A)
    tl.store(sums + 3 * A, tl.sum(sum_n, 0), a < A)
    tl.store(sums + 4 * A, tl.sum(sum_b, 0), a == 0)
    at = b[:, None] * A + a[None, :]
    tl.store(of_s + at, ds, tile)
    tl.store(of_mean + at, dmean, tile)
    tl.store(of_H + b, dH, rows)
