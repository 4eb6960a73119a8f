"""Searches with a Transformer are the same with a cache as without (alone and exhaustive: test_cache.py)."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from attentive import encoded, searches, transformer
from scripts import same
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.base import Decoder, DecoderStep
from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.base import Encoded
from caesura.kernels.states import ROOM
from caesura.search import rounds
from caesura.search.beam import beam_search
from caesura.search.scheduled import scheduled_inputs


@dataclass(frozen=True)
class Reread:
    read: Tensor  # [B, K, U]
    states: Tensor  # [B, K, S, M]
    lengths: Tensor  # [B, K]


class Rereading(Decoder[Reread]):
    """The same decoder without a cache: it remembers the symbols, and reads all of them in every step."""

    def __init__(self, decoder: TransformerDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def start(self, encoded: Encoded, room: int = ROOM) -> Reread:
        nothing = encoded.lengths.new_zeros(len(encoded.lengths), 1, 0)
        return Reread(nothing, encoded.states[:, None], encoded.lengths[:, None])

    def step(self, state: Reread, symbols: Tensor) -> tuple[DecoderStep, Reread]:
        read = torch.cat((state.read, symbols[..., None]), 2)
        encoded = Encoded(state.states.flatten(0, 1), state.lengths.flatten())
        sizes = torch.full((read.shape[0] * read.shape[1],), read.shape[2])
        logits = self.decoder(encoded, read.flatten(0, 1), sizes).logits[:, -1]
        return DecoderStep(logits.view(*symbols.shape, -1)), replace(state, read=read)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "options", [{"seed": 0}, {"seed": 1, "positions": "sinusoidal", "tied": True, "num_layers": 1}], ids=str
)
def test_searches_are_those_of_a_decoder_that_reads_all_again(
    pace: rounds.Pace, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = transformer(**options)
    with torch.no_grad():
        decoder.output.bias[EOS] += 2
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: rounds.Pace(1, 1, False))
        expected = searches(Rereading(decoder), encoded())
    assert len({len(h.symbols) for pool in expected for h in pool}) > 8
    assert any(h.finished and len(h.symbols) > 8 for pool in expected for h in pool)
    for _ in range(3 if pace.graphs else 1):  # plain, recorded, replayed
        for one, other in zip(searches(decoder, encoded()), expected, strict=True):
            same(one, other)


def test_scheduled_sampling_feeds_the_same_with_and_without_a_cache() -> None:
    decoder = transformer()
    reference = torch.randint(EOS + 1, 7, (3, ROOM + 9), generator=torch.Generator().manual_seed(0))
    reference[:, 0] = BOS
    fed = []
    for machine in (decoder, Rereading(decoder)):
        torch.manual_seed(0)
        fed.append(scheduled_inputs(machine, encoded(3), reference, torch.tensor(0.5)))
    assert torch.equal(*fed)
    assert not torch.equal(fed[0], reference)


def test_an_empty_batch_has_no_hypotheses() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert beam_search(transformer(), encoded(2).rows(nothing), nothing) == []
    assert transformer()(encoded(2).rows(nothing), nothing.view(0, 3), nothing).logits.shape == (0, 3, 7)
