"""Scheduled sampling (Bengio et al. 2015): training feeds some symbols that the model has drawn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caesura.data.vocabulary import EOS, PAD
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.search.hypothesis import log_probs


@torch.no_grad()
def scheduled_inputs(decoder: Decoder[Any], encoded: Encoded, trg_in: Tensor, share: Tensor) -> Tensor:
    """`trg_in` [B, U] with each symbol but <s> replaced, with probability `share` [], by a draw.

    A draw is from the model's distribution after all that was fed before it, draws included. As draws have
    no gradient, forcing the result through the decoder gives that of the whole method. </s> is never fed.
    """
    state, fed = decoder.start(encoded, trg_in.shape[1]), [trg_in[:, :1]]
    for reference in trg_in[:, 1:].split(1, 1):
        step, state = decoder.step(state, fed[-1])
        scores = log_probs(step.logits[:, 0])
        scores[:, EOS] = -torch.inf
        # The largest sum of log-probability and Gumbel noise is distributed as the softmax.
        noise = -torch.log(torch.empty_like(scores).exponential_())
        drawn = (scores + noise).argmax(1, keepdim=True)
        replaced = (torch.rand_like(scores[:, :1]) < share) & (reference != PAD)
        fed.append(torch.where(replaced, drawn, reference))
    return torch.cat(fed, 1)
