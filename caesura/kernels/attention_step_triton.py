"""One step of the attention decoder for K hypotheses per sentence on a GPU: three products, three kernels.

Nothing is allocated that a CUDA graph could not hold, and the host waits for nothing.

B sentences, K hypotheses, S segments, H hidden size, A attention size, M size of the encoder's states, V
vocabulary.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels.attention_decoder import DecoderWeights
from caesura.kernels.launch import INTERPRETED, padded
from caesura.kernels.triton_math import dot, gru, load_gates, rounded, tanh

# Tried on an H200 at the paper's sizes: numbers of a tile of keys, and its warps
KEYS, KEY_WARPS = 2048, 1
# Segments of a tile of values, and bytes of each for up to 16 hypotheses; its warps, and tiles on their way
ROWS, BYTES, WARPS, STAGES = 16, 2048, 8, 3


@dataclass(frozen=True)
class StepWeights:
    """What every step reads and no sentence changes, in the dtype of the products."""

    table: Tensor  # [V, 3H] what each embedded symbol gives to the gates
    before: Tensor  # [3H + A, H] weight_hh and query
    bias_hh: Tensor  # [3H] in float32
    energy: Tensor  # [A] v, in float32
    context: Tensor  # [3H, M]
    output: Tensor  # [V', H] with rows of zeros up to a multiple of eight, which products like better
    bias: Tensor  # [V']

    @classmethod
    def of(
        cls, table: Tensor, weights: DecoderWeights, output: Tensor, bias: Tensor, dtype: torch.dtype
    ) -> StepWeights:
        """Cast once for all steps; `output` and `bias` are those of the layer that writes logits."""
        return cls(
            table.to(dtype).contiguous(),
            torch.cat((weights.weight_hh, weights.query)).to(dtype),
            weights.bias_hh.float(),
            weights.energy[0].float(),
            weights.context.to(dtype).contiguous(),
            F.pad(output.to(dtype), (0, 0, 0, -len(output) % 8)),
            F.pad(bias.to(dtype), (0, -len(bias) % 8)),
        )


def step(
    symbols: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, weights: StepWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [B, K, H], logits [B, K, V] and attention [B, K, S] after symbols [B, K].

    hidden [B, K, H] is in float32; keys [B, S, A] and values [B, S, M] are in the weights' dtype, contiguous.
    """
    (B, K, H), V, dtype = hidden.shape, len(weights.table), weights.before.dtype
    symbols, hidden = symbols.contiguous(), hidden.contiguous()
    new, block = torch.empty_like(hidden), min(1024, triton.next_power_of_2(H))
    with torch.autocast(hidden.device.type, enabled=False):
        projected = hidden.to(dtype).view(B * K, H) @ weights.before.t()
        contexts, attention = attend(projected.view(B, K, -1), keys, values, lengths, weights.energy)
        from_context = contexts.view(B * K, -1) @ weights.context.t()
        read = symbols, weights.table, from_context, projected, weights.bias_hh, hidden
        gates[(B * K, triton.cdiv(H, block))](
            *read, new, V, H, projected.shape[1], block, num_warps=max(1, block // 256)
        )
        logits = torch.addmm(weights.bias, new.to(dtype).view(B * K, H), weights.output.t())
    return new, logits[:, :V].view(B, K, V), attention


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, energy: Tensor
) -> tuple[Tensor, Tensor]:
    """Contexts [B, K, M] and float32 weights [B, K, S] for the last A columns of `queries` [B, K, ...].

    `lengths` [B] is how many segments each sentence has.
    """
    (B, K, width), (_, S, A), M = queries.shape, keys.shape, values.shape[2]
    energies = torch.empty(B, K, S, dtype=torch.float32, device=keys.device)
    block, contexts = padded(A), values.new_empty(B, K, M)
    rows, fast = max(1, min(32, KEYS // block)), keys.dtype == torch.bfloat16 and not INTERPRETED
    score[(B, triton.cdiv(S, rows))](
        *(queries, keys, lengths, energy, energies, K, S, width, A, rows, block, fast), num_warps=KEY_WARPS
    )
    weights = torch.softmax(energies, 2)
    some = padded(K)
    columns = max(16, min(16 * BYTES // (some * values.element_size()), triton.next_power_of_2(M)))
    gather[(B, triton.cdiv(M, columns))](
        *(weights, values, lengths, contexts, K, S, M, some, ROWS, columns, STAGES), num_warps=WARPS
    )
    return contexts, weights


@triton.jit(do_not_specialize=["K", "S"])
def score(
    queries_ptr,  # [B, K, WIDTH] the query is the end of a row
    keys_ptr,  # [B, S, A]
    lengths_ptr,  # [B]
    v_ptr,  # [A]
    energies_ptr,  # [B, K, S] out
    K,
    S,
    WIDTH: tl.constexpr,
    A: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_A: tl.constexpr,
    FAST: tl.constexpr,
):
    """e_ks = v . tanh(q_k + key_s): a program holds a tile of a sentence's keys and meets all its queries."""
    b = tl.program_id(0).to(tl.int64)
    first, a = tl.program_id(1) * ROWS, tl.arange(0, BLOCK_A)
    s, length = first + tl.arange(0, ROWS), tl.load(lengths_ptr + b)
    place = keys_ptr + (b * S + s)[:, None] * A + a[None, :]
    key = tl.load(place, mask=(s < length)[:, None] & (a < A)[None, :], other=0).to(tl.float32)
    v = tl.load(v_ptr + a, mask=a < A, other=0)
    count = tl.where(first < length, K, 0)
    for k in range(count):
        row = queries_ptr + (b * K + k) * WIDTH + WIDTH - A
        q = tl.load(row + a, mask=a < A, other=0).to(tl.float32)
        e = tl.sum(v[None, :] * tanh(q[None, :] + key, FAST), 1)
        tl.store(energies_ptr + (b * K + k) * S + s, tl.where(s < length, e, -float("inf")), mask=s < S)
    for k in range(count, K):
        # Of a sentence without segments any number: the softmax of -inf alone is NaN.
        nothing = tl.where(length > 0, tl.full((ROWS,), -float("inf"), tl.float32), 0.0)
        tl.store(energies_ptr + (b * K + k) * S + s, nothing, mask=s < S)


@triton.jit(do_not_specialize=["K", "S"])
def gather(
    weights_ptr,  # [B, K, S] in; out where a sentence has no segments
    values_ptr,  # [B, S, M]
    lengths_ptr,  # [B]
    contexts_ptr,  # [B, K, M] out
    K,
    S,
    M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    STAGES: tl.constexpr,
):
    """c_k = sum a_ks values_s: a program makes BLOCK_M features of a sentence's contexts."""
    b = tl.program_id(0).to(tl.int64)
    k, m = tl.arange(0, BLOCK_K), tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows, hypotheses, columns = (b * K + k)[:, None], (k < K)[:, None], (m < M)[None, :]
    length = tl.load(lengths_ptr + b)
    kind = values_ptr.dtype.element_ty
    context = tl.zeros((BLOCK_K, BLOCK_M), tl.float32)
    for first in tl.range(0, length, ROWS, num_stages=STAGES):
        s = first + tl.arange(0, ROWS)
        share = tl.load(weights_ptr + rows * S + s[None, :], mask=hypotheses & (s < length)[None, :], other=0)
        place = values_ptr + (b * S + s)[:, None] * M + m[None, :]
        x = tl.load(place, mask=(s < length)[:, None] & columns, other=0)
        context += dot(rounded(share, kind), x)
    tl.store(contexts_ptr + rows * M + m[None, :], rounded(context, kind), mask=hypotheses & columns)
    for first in range(0, tl.where(length > 0, 0, S), ROWS):  # a sentence without segments has no shares
        s = first + tl.arange(0, ROWS)
        zeros = tl.zeros((BLOCK_K, ROWS), tl.float32)
        tl.store(weights_ptr + rows * S + s[None, :], zeros, mask=hypotheses & (s < S)[None, :])


@triton.jit(do_not_specialize=["V"])
def gates(
    symbols_ptr,  # [B K]
    table_ptr,  # [V, 3H]
    from_context_ptr,  # [B K, 3H] W c
    projected_ptr,  # [B K, WIDTH] W_hh s, without bias, is the beginning of a row
    bias_ptr,  # [3H]
    hidden_ptr,  # [B K, H]
    new_ptr,  # [B K, H] out
    V,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One GRU step of a hypothesis from the three projections."""
    row = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok, symbol = h < H, tl.load(symbols_ptr + row) + tl.zeros_like(h)
    # A symbol outside the table gives NaN, not whatever stands there in memory.
    in_table, nan = ok & (symbol >= 0) & (symbol < V), float("nan")
    x_r, x_z, x_n = load_gates(table_ptr + symbol * 3 * H + h, in_table, H, nan)
    c_r, c_z, c_n = load_gates(from_context_ptr + row * 3 * H + h, ok, H)
    h_r, h_z, h_n = load_gates(projected_ptr + row * WIDTH + h, ok, H)
    b_r, b_z, b_n = load_gates(bias_ptr + h, ok, H)
    s = tl.load(hidden_ptr + row * H + h, mask=ok, other=0)
    _, _, _, s = gru(x_r + c_r, x_z + c_z, x_n + c_n, h_r + b_r, h_z + b_z, h_n + b_n, s)
    tl.store(new_ptr + row * H + h, s, mask=ok)
