"""The log-probability of translations that are given, forced through a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from caesura.data.batching import Ids, collate_targets
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.layers.masks import positions_mask
from caesura.search.hypothesis import log_probs


def forced_scores(decoder: Decoder[Any], encoded: Encoded, targets: Sequence[Ids]) -> list[float]:
    """The log-probability of each target as a translation, </s> included; summed in float64."""
    trg_in, trg_out, lengths = (part.to(encoded.lengths.device) for part in collate_targets(targets))
    return target_scores(decoder(encoded, trg_in, lengths).logits, trg_out, lengths)


def target_scores(logits: Tensor, trg_out: Tensor, lengths: Tensor) -> list[float]:
    """The log-probabilities from the logits [B, U, V] of targets [B, U] of these lengths [B]."""
    logs = log_probs(logits)
    picked = logs.gather(2, trg_out[..., None]).squeeze(2).double()
    within = positions_mask(lengths, picked.shape[1])
    sums: list[float] = picked.masked_fill(~within, 0.0).sum(1).tolist()
    return sums
