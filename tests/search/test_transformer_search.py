"""Searches with a Transformer: with a cache as without, alone as in company, exhaustive where wide enough."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
import torch
from helpers import SIZES
from scripts import same
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS, UNK
from caesura.decoders.base import Decoder, DecoderStep
from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.base import Encoded
from caesura.kernels.states import ROOM
from caesura.layers.masks import positions_mask
from caesura.search import rounds
from caesura.search.beam import beam_search
from caesura.search.forced import forced_scores
from caesura.search.greedy import greedy
from caesura.search.sampling import sample
from caesura.search.scheduled import scheduled_inputs

LIMITS = torch.tensor([3, 30, 1, 17, 9, 40, 8])  # [B]


def made(vocab_size: int = 7, seed: int = 0, **options: Any) -> TransformerDecoder:
    torch.manual_seed(seed)
    decoder = TransformerDecoder(vocab_size, 6, **(SIZES | options)).double().eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    return decoder


def sources(count: int = len(LIMITS), seed: int = 0) -> Encoded:
    """Encoded sentences of one to three segments, NaN behind them."""
    states = torch.randn(count, 4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    lengths = torch.arange(count) % 3 + 1
    return Encoded(states.where(positions_mask(lengths, 4)[..., None], torch.nan), lengths)


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


def searches(decoder: Decoder[Any], count: int = len(LIMITS)) -> list[Any]:
    source, limits = sources(count), LIMITS[:count]
    return [
        *beam_search(decoder, source, limits, 3),
        greedy(decoder, source, limits),
        sample(decoder, source, limits, [*range(count)]),
    ]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "options", [{"seed": 0}, {"seed": 1, "positions": "sinusoidal", "tied": True, "num_layers": 1}], ids=str
)
def test_searches_are_those_of_a_decoder_that_reads_all_again(
    pace: rounds.Pace, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = made(**options)
    with torch.no_grad():
        decoder.output.bias[EOS] += 2
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "pace", lambda _: rounds.Pace(1, 1, False))
        expected = searches(Rereading(decoder))
    assert len({len(h.symbols) for pool in expected for h in pool}) > 8
    assert any(h.finished and len(h.symbols) > 8 for pool in expected for h in pool)
    for _ in range(3 if pace.graphs else 1):  # plain, recorded, replayed
        for one, other in zip(searches(decoder), expected, strict=True):
            same(one, other)


@pytest.mark.usefixtures("pace", "small")
def test_a_sentence_alone_a_beam_of_one_and_forced_scores_agree() -> None:
    decoder, source = made(seed=1), sources()
    together, best = beam_search(decoder, source, LIMITS, 3), greedy(decoder, source, LIMITS)
    same([one for (one,) in beam_search(decoder, source, LIMITS, 1)], best)
    for b in range(len(LIMITS)):
        single = source.rows(slice(b, b + 1))
        same(together[b], beam_search(decoder, single, LIMITS[b : b + 1], 3)[0])
        for h in (*together[b], best[b]):
            if h.finished:
                assert forced_scores(decoder, single, [h.symbols[:-1]]) == pytest.approx([h.log_prob])


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_enough_beam_finds_the_best_of_all_sequences(seed: int) -> None:
    decoder, source, limit, going = made(6, seed), sources(2), 3, (UNK, 4, 5)
    finished = [(*stem, EOS) for size in range(limit) for stem in product(going, repeat=size)]
    pools = beam_search(decoder, source, torch.tensor([limit] * 2), len(finished) + len(going) ** limit)
    for b, pool in enumerate(pools):
        single = source.rows(torch.full((len(finished),), b))
        scores = forced_scores(decoder, single, [symbols[:-1] for symbols in finished])
        ranks = {symbols: score / len(symbols) for symbols, score in zip(finished, scores, strict=True)}
        expected = sorted(finished, key=ranks.__getitem__, reverse=True)
        assert [h.symbols for h in pool if h.finished] == expected


def test_scheduled_sampling_feeds_the_same_with_and_without_a_cache() -> None:
    decoder = made()
    reference = torch.randint(EOS + 1, 7, (3, ROOM + 9), generator=torch.Generator().manual_seed(0))
    reference[:, 0] = BOS
    fed = []
    for machine in (decoder, Rereading(decoder)):
        torch.manual_seed(0)
        fed.append(scheduled_inputs(machine, sources(3), reference, torch.tensor(0.5)))
    assert torch.equal(*fed)
    assert not torch.equal(fed[0], reference)


def test_an_empty_batch_has_no_hypotheses() -> None:
    nothing = torch.zeros(0, dtype=torch.long)
    assert beam_search(made(), sources(2).rows(nothing), nothing) == []
    assert made()(sources(2).rows(nothing), nothing.view(0, 3), nothing).logits.shape == (0, 3, 7)
