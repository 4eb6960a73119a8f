"""Small models, vocabularies and ragged batches for the tests."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from caesura.config import Config
from caesura.data.batching import collate
from caesura.data.vocabulary import BOS, SPECIALS, CharVocabulary, Vocabulary, WordVocabulary
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.inference import Translator
from caesura.search.hypothesis import log_probs

LOOKUP = {"type": "lookup", "embedding_dim": 5}
ACT = {"type": "act", "embedding_dim": 4, "act_size": 3, "output_dim": 5, "halting_bias": 0.0, "tau": 0.7}
RECURRENT = {"embedding_dim": 4, "hidden_size": 6, "attention_size": 5}
SIZES = {"size": 8, "heads": 2, "feed_forward": 7, "num_layers": 2, "dropout": 0.0}
TRANSFORMER = {"type": "transformer"} | SIZES
BIGRU = {"hidden_size": 3}
ACT_DECODER = RECURRENT | {"type": "act", "act_size": 3, "output_dim": 5, "halting_bias": 0.0, "tau": 0.4}


def make_config(
    segmenter: dict[str, Any], encoder: dict[str, Any], decoder: dict[str, Any], **sections: Any
) -> Config:
    """A config of a character model; its text files do not exist."""
    side = {"lang": "xx", "level": "char"}
    tree = {
        "name": "test",
        "data": {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side},
        "testing": {"max_output_extra": 8},  # what is drawn at random seldom comes to an end by itself
        "model": {
            "segmenter": segmenter,
            "encoder": {"type": "recurrent"} | encoder,
            "decoder": {"type": "recurrent"} | decoder,
        },
    }
    return Config.model_validate(tree | sections)


def vocabulary(size: int, kind: str = "char") -> Vocabulary:
    """A vocabulary of exactly `size` symbols, the specials included."""
    room = size - len(SPECIALS)
    if kind == "word":
        return WordVocabulary([f"w{i}" for i in range(room)])
    return CharVocabulary([chr(ord("a") + i) if i < 26 else chr(0x4E00 + i) for i in range(room)])


def tiny_model(
    segmenter: dict[str, Any] = LOOKUP,
    seed: int = 0,
    scale: float = 3.0,
    decoder: dict[str, Any] = RECURRENT,
    encoder: dict[str, Any] = BIGRU,
    **sections: Any,
) -> Translator:
    """A random model in float64 with a source vocabulary of 12 and a target one of 9.

    `scale` makes its distributions less flat than those of a fresh one, and segments of mixed lengths.
    """
    torch.manual_seed(seed)
    config = make_config(segmenter, encoder, decoder, **sections)
    model = Translator.build(config, vocabulary(12), vocabulary(9)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def ragged(lengths: list[int], vocab_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random symbols [B, T] with `lengths` [B]; what stands beyond a sentence's end is random too."""
    symbols = torch.randint(vocab_size, (len(lengths), max(lengths, default=0)), generator=generator)
    return symbols, torch.tensor(lengths, dtype=torch.long)


def sentences(count: int, seed: int, vocab_size: int = 12, longest: int = 9) -> list[list[int]]:
    """Random sentences without specials, of 1 to `longest` symbols."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(len(SPECIALS), vocab_size, (n,), generator=generator).tolist() for n in sizes]


def encode(model: Translator, texts: list[list[int]]) -> Encoded:
    """Sentences as the decoder of a model sees them."""
    batch = collate([(text, None) for text in texts])
    with torch.no_grad():
        return model.encode(batch.src, batch.src_lengths)[1]


@torch.no_grad()
def score_targets(decoder: Decoder[Any], encoded: Encoded, trg_out: Tensor, trg_lengths: Tensor) -> Tensor:
    """[B]: the log-probability of each given target [B, U], forced through the decoder."""
    start = trg_out.new_full((len(trg_out), 1), BOS)
    trg_in = torch.cat((start, trg_out[:, :-1]), 1)
    logits = decoder(encoded, trg_in, trg_lengths).logits
    picked = log_probs(logits).gather(2, trg_out[..., None]).squeeze(2)
    within = torch.arange(trg_out.shape[1], device=trg_out.device) < trg_lengths[:, None]
    return picked.masked_fill(~within, 0.0).sum(1)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10, what: str | None = None) -> None:
    """Fails, by the name of `what` it is, where two tensors differ by more."""
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=tolerance, msg=what and (lambda text: f"{what}: {text}")
    )


def check_slope(function: Callable[..., tuple[Tensor, ...]], leaves: Sequence[Tensor]) -> None:
    """`gradcheck` of a random sum of all outputs, which takes one backward pass instead of one per output."""

    def total(*inputs: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        outputs = function(*inputs)
        return sum((o * torch.randn(o.shape, generator=generator, dtype=o.dtype)).sum() for o in outputs)

    assert torch.autograd.gradcheck(total, leaves)


def check_away_from_threshold(scores: Tensor, ends: Tensor, lengths: Tensor, epsilon: float) -> None:
    """Expect no sum that decides so close to 1 - epsilon that a bump of 1e-6 would move a boundary."""
    for row, halts, n in zip(scores.tolist(), ends.tolist(), lengths.tolist(), strict=True):
        total = 0.0
        for h, f in zip(row[:n], halts[:n], strict=True):
            assert abs(total + h - (1 - epsilon)) > 1e-3
            total = 0.0 if f else total + h
