"""The log-probability of translations that are given, forced through a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from caesura.data.batching import Ids, collate
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.layers.masks import positions_mask
from caesura.search.hypothesis import log_probs


def forced_scores(decoder: Decoder[Any], encoded: Encoded, targets: Sequence[Ids]) -> list[float]:
    """Of each target, </s> included, as a translation of its sentence; summed in float64."""
    batch = collate([((), target) for target in targets]).to(encoded.lengths.device)
    assert batch.trg_in is not None
    assert batch.trg_out is not None
    assert batch.trg_lengths is not None
    logs = log_probs(decoder(encoded, batch.trg_in, batch.trg_lengths).logits)
    picked = logs.gather(2, batch.trg_out[..., None]).squeeze(2).double()
    within = positions_mask(batch.trg_lengths, picked.shape[1])
    found: list[float] = picked.masked_fill(~within, 0.0).sum(1).tolist()
    return found
