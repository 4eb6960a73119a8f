"""Algorithm 2 of the paper, line by line, for one sentence: the reference that ActDecoder is held to.

Nested loops as printed; its slips are put right and noted (docs/paper_notes.md, 9 to 12).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.act import ActDecoder
from caesura.encoders.base import Encoded


class Listing(NamedTuple):
    """The outputs of Algorithm 2 for one sentence: U target symbols, S segments of the source."""

    symbols: list[int]  # [U]  </s> included
    logits: Tensor  # [U, V]
    ends: list[bool]  # [U]
    weights: Tensor  # [U]
    scores: Tensor  # [U]
    attention: Tensor  # [t, S] one row an outer step
    penalty: Tensor  # []


def act_dec(layer: ActDecoder, encoded: Encoded, target: Tensor | None = None, limit: int = 100) -> Listing:
    """Run Algorithm 2 with the parameters of `layer` on one encoded sentence.

    `target` [U], which ends in </s>, is forced; without it the symbols are chosen greedily, at most `limit`.
    """
    T_max = limit if target is None else len(target)
    keys = layer.attention.key(encoded.states)
    mask = encoded.states.new_ones(encoded.states.shape[:2], dtype=torch.bool)
    Y: list[int] = []  # l. 1
    logits, ends, weights, scores, attention = [], [], [], [], []
    R = zero = encoded.states.new_zeros(())  # l. 2
    e = layer.embedding(torch.tensor([BOS]))  # l. 3
    s_rnn = layer.initial(encoded.summary)
    while not (EOS in Y or len(Y) == T_max):  # l. 4, 5
        c, looked = layer.attention(s_rnn[None], keys, encoded.states, mask)  # l. 7
        s_rnn = layer.outer(torch.cat((e, c[0]), 1), s_rnn)  # l. 8
        s_mean, o_mean = zero, zero  # l. 9
        H = zero  # l. 10: h_bar and H are one variable, reset for every segment (9)
        s = layer.enter(s_rnn)  # l. 11
        i = e  # l. 12: the mean embedding, though the text says "always the single previous character" (11)
        for _ in range(T_max):  # l. 13
            fed = torch.cat((i, c[0]), 1) if layer.inner.input_size > i.shape[1] else i  # the second footnote
            s = layer.inner(fed, s)  # l. 14
            o = layer.output(s)  # l. 15
            scored = layer.symbols(o)[0]
            y = int(scored.argmax()) if target is None else int(target[len(Y)])  # l. 16, or the teacher's
            Y = [*Y, y]  # l. 17
            h = torch.sigmoid(layer.halting(s)).squeeze()  # l. 18
            f = bool(H + h >= 1 - layer.epsilon) or y == EOS or len(Y) == T_max  # l. 19; </s> halts too (10)
            p = 1 - H if f else h  # l. 21: by the sum before it is incremented, as in Algorithm 1 (9)
            H = H + h  # l. 20
            s_mean = s_mean + p * s  # l. 22
            o_mean = o_mean + p * layer.embedding(torch.tensor([y]))  # l. 23
            R = R + (0 if f else h)  # l. 24
            i = layer.embedding(torch.tensor([y]))  # l. 25
            logits.append(scored)
            ends.append(f)
            weights.append(p)
            scores.append(h)
            if f:  # l. 26
                break
        attention.append(looked[0, 0])
        s_rnn = layer.leave(s_mean)  # l. 29, of step t + 1 (9)
        e = o_mean  # l. 30, of step t + 1 (9)
    R = (1 - R) / len(Y)  # l. 31: once, and over symbols, not over outer steps (12)
    rows = [torch.stack(values) for values in (logits, weights, scores, attention)]
    return Listing(Y, rows[0], ends, rows[1], rows[2], rows[3], R)
