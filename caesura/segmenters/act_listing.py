"""Algorithm 1 of the paper, line by line, for one sentence: the reference that ActSegmenter is held to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caesura.segmenters.act import ActSegmenter


class Listing(NamedTuple):
    """The outputs of Algorithm 1 for one sentence of T symbols and S segments."""

    vectors: Tensor  # [S, D]
    ends: list[bool]  # [T]
    weights: Tensor  # [T]
    scores: Tensor  # [T]
    penalty: Tensor  # []


def act_enc(layer: ActSegmenter, x: Tensor) -> Listing:
    """Run Algorithm 1 with the parameters of `layer` on one sentence x [T]."""
    outputs, ends, weights, scores = [], [], [], []
    zero = layer.embedding.weight.new_zeros(())
    R = zero  # l. 2
    s_mean, o_mean, H = zero, zero, zero  # l. 3, 4
    s = zero.expand(1, layer.cell.hidden_size)  # l. 5
    for t, x_t in enumerate(x):  # l. 6
        s = layer.cell(layer.embedding(x_t)[None], s)  # l. 7
        o = layer.output(s)  # l. 8
        h = torch.sigmoid(layer.halting(s)).squeeze()  # l. 9
        # l. 10; the last symbol halts too, or the tail would be lost (docs/paper_notes.md, 1)
        f = bool(H + h >= 1 - layer.epsilon) or t == len(x) - 1 or int(x_t) in layer.cut_after
        p = 1 - H if f else h  # l. 11
        H = H + h  # l. 12
        s_mean = s_mean + p * s  # l. 13
        o_mean = o_mean + p * o  # l. 14
        R = R + (0 if f else h)  # l. 15
        ends.append(f)
        weights.append(p)
        scores.append(h)
        if f:  # l. 16
            outputs.append(o_mean)  # l. 17
            s = s_mean  # l. 18
            s_mean, o_mean, H = zero, zero, zero  # l. 19
    R = (1 - R) / len(x)  # l. 22
    return Listing(torch.cat(outputs), ends, torch.stack(weights), torch.stack(scores), R)


def act_enc_both_ways(layer: ActSegmenter, x: Tensor) -> Listing:
    """The same for a bidirectional `layer`: Algorithm 1, and once more from the end under the same cuts."""
    assert layer.back is not None
    ahead = act_enc(layer, x)
    outputs: list[Tensor] = []
    zero = layer.embedding.weight.new_zeros(())
    s_mean, o_mean, H = zero, zero, zero  # l. 3, 4
    s = zero.expand(1, layer.cell.hidden_size)  # l. 5
    for t in range(len(x) - 1, -1, -1):  # l. 6, from the end
        s = layer.back.cell(layer.embedding(x[t])[None], s)  # l. 7
        o = layer.back.output(s)  # l. 8
        h = torch.sigmoid(layer.back.halting(s)).squeeze()  # l. 9
        f = t == 0 or ahead.ends[t - 1]  # in place of l. 10: a segment begins here
        p = 1 - H if f else torch.minimum(h, 1 - H)  # l. 11, where a halt may come late
        H = H + p  # l. 12
        s_mean = s_mean + p * s  # l. 13
        o_mean = o_mean + p * o  # l. 14
        if f:  # l. 16
            outputs.insert(0, o_mean)  # l. 17
            s = s_mean  # l. 18
            s_mean, o_mean, H = zero, zero, zero  # l. 19
    # W_o [s; s'] + b_o of both states, concatenated, is the sum of both outputs.
    return ahead._replace(vectors=ahead.vectors + torch.cat(outputs))
