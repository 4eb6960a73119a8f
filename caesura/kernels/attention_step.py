"""Attention of K hypotheses per sentence, for one step of a search: the reference, and a form for CPUs.

B sentences, K hypotheses, S segments, A attention size, M size of the encoder's states.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.kernels.attention_decoder import Sigmoids, shares_of

BLOCK = 1 << 20  # numbers that a CPU works on at a time, so that they stay in its cache


def attend_reference(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, energy: Tensor
) -> tuple[Tensor, Tensor]:
    """Context [B, K, M] and weights [B, K, S] for projected queries [B, K, A], by v . tanh(query + key).

    A sentence's hypotheses share keys [B, S, A], values [B, S, M] and mask [B, S]; energy [1, A] is v.
    """
    hidden = torch.tanh(query[:, :, None] + keys[:, None])
    weights = shares_of(F.linear(hidden, energy).squeeze(3), mask[:, None])
    return weights.to(values.dtype) @ values, weights


def attend_in_blocks(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    energy: Tensor,
    sigmoids: Sigmoids,
    sentences: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`attend_reference` without gradients, given the keys' `sigmoids`.

    With `sentences` [N], queries [n] are for sentence `sentences[n]`, which may repeat; else for sentence n.

    tanh(x) is 1 - 2 sigmoid(-2x), so the energy v . tanh is -2v . sigmoid plus a constant, which the
    softmax takes away.
    """
    prepared = 2 * query
    sigmoids.prepare_(prepared)
    if not sigmoids.hold(prepared):
        sigmoids, prepared = Sigmoids.of(keys, safe=True), 2 * query
    (B, K, A), S = query.shape, keys.shape[1]
    if sentences is not None:
        mask = mask[sentences]
    count = max(1, BLOCK // (K * S * A))
    energies, y, v = query.new_empty(B, K, S), query.new_empty(min(B, count), K, S, A), -2 * energy[0]
    for first in range(0, B, count):
        block = slice(first, first + count)
        memory = sigmoids.memory[block if sentences is None else sentences[block]]
        out, queries = energies[block], prepared[block]
        block_y = y[: len(out)]
        sigmoids._replace(memory=memory[:, None]).at(queries[:, :, None], out=block_y)
        torch.mv(block_y.view(-1, A), v, out=out.view(-1))
    weights = shares_of(energies, mask[:, None])
    if sentences is None:
        return torch.bmm(weights, values), weights
    count = max(1, BLOCK // (S * values.shape[2]))
    pairs = zip(weights.split(count), sentences.split(count), strict=True)
    return torch.cat([torch.bmm(shares, values[rows]) for shares, rows in pairs]), weights
