"""Shared by the Triton kernels: rounding, products, tanh, and the gates of a GRU.

Gates r, z and n lie SIZE apart. Results are computed in float32 and stored in the type of the buffer.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import triton
import triton.language as tl

from caesura.kernels import launch

INTERPRETED = tl.constexpr(launch.INTERPRETED)


@triton.jit
def tanh(x, FAST: tl.constexpr = False):
    if FAST:  # one instruction, right to 2^-11
        y = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 1 - 2 / (1 + tl.exp(2 * x))
    return y


@triton.jit
def rounded(x, KIND: tl.constexpr):
    if INTERPRETED and tl.bfloat16 == KIND:  # it would cut off, not round to nearest even
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        x = (bits & -0x10000).to(tl.float32, bitcast=True)
    return x.to(KIND)


@triton.jit
def dot(x, y, total=None):
    """total + x @ y; for float32, three products of the matrix unit's short floats keep the precision."""
    if INTERPRETED:  # it would multiply bfloat16 as if they were integers
        x, y = x.to(tl.float32), y.to(tl.float32)
    return tl.dot(x, y, total, input_precision="tf32x3")


@triton.jit
def load_gates(pointer, inside, SIZE: tl.constexpr, other=0):
    r = tl.load(pointer, mask=inside, other=other).to(tl.float32)
    z = tl.load(pointer + SIZE, mask=inside, other=other).to(tl.float32)
    n = tl.load(pointer + 2 * SIZE, mask=inside, other=other).to(tl.float32)
    return r, z, n


@triton.jit
def store_gates(pointer, r, z, n, inside, SIZE: tl.constexpr):
    kind = pointer.dtype.element_ty
    tl.store(pointer, rounded(r, kind), mask=inside)
    tl.store(pointer + SIZE, rounded(z, kind), mask=inside)
    tl.store(pointer + 2 * SIZE, rounded(n, kind), mask=inside)


@triton.jit
def gru(i_r, i_z, i_n, h_r, h_z, h_n, s):
    """One step from the projections of the input and of the state s: r, z, n and the new state."""
    r, z = tl.sigmoid(i_r + h_r), tl.sigmoid(i_z + h_z)
    n = tanh(i_n + r * h_n)
    return r, z, n, n + z * (s - n)


@triton.jit
def gru_back(ds, s, r, z, n, h_n):
    """From the gradient of the new state to those of the projections of r, z and n, and of h_n."""
    dn = ds * (1 - z) * (1 - n * n)
    return dn * h_n * r * (1 - r), ds * (s - n) * z * (1 - z), dn, dn * r
