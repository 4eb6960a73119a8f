"""The paper's systems in its sizes, batches for them, and the least time that a training step could take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from caesura.config import Config
from caesura.data.batching import Batch, collate
from caesura.data.vocabulary import SPECIALS, CharVocabulary
from caesura.inference import Translator

EMBEDDING, ENCODER, DECODER, ATTENTION, ACT_SIZE, ACT_DEC_SIZE, READER = 620, 500, 1000, 1000, 50, 250, 512


@dataclass(frozen=True)
class System:
    """A row of the table: `symbols` of its vocabulary make a sentence of 100 characters."""

    name: str
    segment: float | None = None  # characters per segment of ACT-ENC; None: a lookup table
    parts: dict[str, Any] | None = None  # cutter, pooling and rate behind a bidirectional GRU of 2 x READER
    written: int | None = None  # symbols per segment of ACT-DEC; None: a recurrent decoder
    layers: int = 1
    symbols: int = 100
    vocabulary: tuple[int, int] = (117, 97)

    def model(self, precision: str = "bfloat16", device: str = "cuda") -> Translator:
        """A fresh model."""
        segmenter: dict[str, Any] = {"type": "lookup", "embedding_dim": EMBEDDING}
        if self.segment:
            # A fresh unit with this bias scores every symbol about 0.9 or 0.3 (docs/paper_notes.md, 7).
            bias = 1.0 if self.segment < 3 else -1.0
            segmenter |= {"type": "act", "act_size": ACT_SIZE, "output_dim": EMBEDDING, "halting_bias": bias}
        if self.parts:
            reader = {"type": "bigru", "embedding_dim": EMBEDDING, "size": READER}
            segmenter = {"type": "parts", "reader": reader, "output_dim": EMBEDDING, **self.parts}
        sizes = {"embedding_dim": EMBEDDING, "hidden_size": DECODER, "attention_size": ATTENTION}
        decoder: dict[str, Any] = {"type": "recurrent", **sizes}
        if self.written:
            assert self.written == 2  # as a fresh unit with the default bias cuts
            decoder |= {"type": "act", "act_size": ACT_DEC_SIZE}
        side = {"lang": "xx", "level": "char"}
        config = Config.model_validate(
            {
                "name": "benchmark",
                "training": {"precision": precision},
                "testing": {"precision": precision},
                "data": {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side},
                "model": {
                    "segmenter": segmenter,
                    "encoder": {"type": "recurrent", "hidden_size": ENCODER, "num_layers": self.layers},
                    "decoder": decoder,
                },
            }
        )
        torch.manual_seed(1)
        return Translator.build(config, *map(vocabulary, self.vocabulary)).to(device)

    def batch(self, size: int, length: int | None = None) -> Batch:
        """Random sentences of one length, </s> included, in memory that a GPU fetches, where there is one."""
        count = (length or self.symbols) - 1
        rows = torch.randint(len(SPECIALS), min(self.vocabulary), (size, 2, count)).tolist()
        batch = collate([(source, target) for source, target in rows])
        return batch.pin() if torch.cuda.is_available() else batch


SYSTEMS = (
    System("char, 1 layer"),
    System("ACT-ENC 50, segments of 2", segment=2),
    System("ACT-ENC 50, segments of 4", segment=4),
    System("BPE 15k, 1 layer", symbols=25, vocabulary=(15_000, 15_000)),
    System("char, 5 layers", layers=5),
    System("char, ACT-DEC 250, segs of 2", written=2),
)


PARTS = {
    "fixed": System("bigru, fixed 4, mean", parts={"cutter": {"type": "fixed", "k": 4}, "pooling": "mean"}),
    "cif": System(
        "bigru, cif at 4, weighted", parts={"cutter": "cif", "pooling": "weighted", "rate": {"target": 4.0}}
    ),
}


def _drawn(cuttings: int) -> System:
    options = (
        {"gradient": "straight-through"} if cuttings == 1 else {"gradient": "score", "cuttings": cuttings}
    )
    cutter, pooling = {"type": "bernoulli", **options}, "weighted" if cuttings == 1 else "mean"
    parts = {"cutter": cutter, "pooling": pooling, "rate": {"target": 4.0}}
    return System(f"bigru, {cuttings} drawn cuttings at 4", parts=parts)


CUTTINGS = {number: _drawn(number) for number in (1, 2, 4)}


def vocabulary(size: int) -> CharVocabulary:
    return CharVocabulary([chr(0x4E00 + i) for i in range(size - len(SPECIALS))])


@dataclass(frozen=True)
class Work:
    """What a training step does as we do it.

    Not the least that could be done: embeddings are multiplied symbol by symbol, tanh is taken three times,
    and keys and values of a small batch would stay in the cache.
    """

    flop: float  # of matrix products, forward and twice backward
    traffic: float  # bytes of keys and values, once per step of the decoder each way
    tanh: float  # of the attention: forward, and again for the gradients of queries and keys

    @classmethod
    def of(cls, system: System, B: int, S: float, U: int) -> Work:
        """For B sentences of S segments and U target symbols; weights, Adam and what is small left out."""
        M, symbols = 2 * ENCODER, B * U
        sizes = [EMBEDDING] + [M] * (system.layers - 1)
        encoder = sum(B * S * 2 * 3 * ENCODER * (size + ENCODER) for size in sizes)
        if system.parts:
            encoder += B * system.symbols * 2 * 3 * READER * (EMBEDDING + READER)
            encoder += B * S * 2 * READER * EMBEDDING
        if system.segment:
            encoder += B * system.symbols * 3 * ACT_SIZE * ACT_SIZE + B * S * ACT_SIZE * EMBEDDING
        # What moves the outer state, with ACT-DEC once per segment; then what every symbol costs.
        moves = symbols / (system.written or 1)
        decoder = moves * (3 * DECODER * (EMBEDDING + M + DECODER) + ATTENTION * DECODER)
        last = DECODER
        if system.written:
            A, last = ACT_DEC_SIZE, EMBEDDING
            decoder += moves * 2 * A * DECODER + symbols * (3 * A * (EMBEDDING + A) + A * EMBEDDING)
        attention = B * S * M * ATTENTION + moves * S * M  # keys once, contexts every move
        products = encoder + decoder + attention + symbols * last * system.vocabulary[1]
        return cls(6.0 * products, 2.0 * 2 * moves * S * (ATTENTION + M), 3.0 * moves * S * ATTENTION)


@dataclass(frozen=True)
class Ceilings:
    """What this GPU can do at most, measured here and now."""

    flops: float  # of bfloat16 products, per second
    bandwidth: float  # bytes per second
    tanh: float  # per second

    def floor(self, work: Work) -> float:
        """Milliseconds, one kind of work after the other."""
        seconds = work.flop / self.flops + work.traffic / self.bandwidth + work.tanh / self.tanh
        return 1000 * seconds
