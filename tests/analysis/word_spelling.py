"""A toy language of spelled words, and a model of it for which every way of cutting means something."""

from __future__ import annotations

from dataclasses import replace

import torch
from helpers import make_config, vocabulary
from torch import Tensor

from caesura.data.batching import Batch, collate
from caesura.data.vocabulary import SPECIALS
from caesura.inference import Translator
from caesura.kernels.adam import Adam
from caesura.segmenters.parts import Cutter, Segmenter
from caesura.segmenters.pooling import Weighted
from caesura.segmenters.rate import Rate

LETTERS, WORDS, SIZE = 6, 16, 24
SPACE = len(SPECIALS) + LETTERS


class Spelling:
    """Draws pairs of words, spelled in letters with a space between them, and the words themselves."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        words: set[tuple[int, ...]] = set()
        while len(words) < WORDS:
            words.add(tuple(self._integers(len(SPECIALS), SPACE, self._integers(2, 6, 1)[0])))
        self.words = sorted(words)

    def _integers(self, low: int, high: int, count: int) -> list[int]:
        return torch.randint(low, high, (count,), generator=self.generator).tolist()

    def batch(self, count: int) -> Batch:
        """So many sentences, not cut."""
        pairs = [self._integers(0, WORDS, 2) for _ in range(count)]
        spelled = [[*self.words[a], SPACE, *self.words[b]] for a, b in pairs]
        written = [[len(SPECIALS) + word for word in pair] for pair in pairs]
        return collate([*zip(spelled, written, strict=True)])

    def cut(self, batch: Batch) -> Batch:
        """The batch cut at random places, of each sentence more or fewer; some are cut into words."""
        rates, share = (torch.rand(len(batch), 1, generator=self.generator) for _ in range(2))
        cuts = torch.rand(batch.src.shape, generator=self.generator) < rates
        cuts = torch.where(share < 0.15, batch.src == SPACE, cuts)
        return replace(batch, src_cuts=torch.where(cuts, 1, -1).to(torch.int8))


def trained(spelling: Spelling, updates: int, seed: int) -> Translator:
    """A model that has seen the words cut in all ways."""
    torch.manual_seed(seed)
    reader = {"type": "gru", "embedding_dim": SIZE, "size": SIZE}
    parts = {"type": "parts", "reader": reader, "cutter": {"type": "fixed", "k": 2}, "pooling": "weighted"}
    decoder = {"embedding_dim": 16, "hidden_size": 48, "attention_size": SIZE}
    config = make_config(parts, {"hidden_size": SIZE}, decoder)
    words = vocabulary(len(SPECIALS) + WORDS, "word")
    model = Translator.build(config, vocabulary(SPACE + 1), words)
    optimizer = Adam(model.parameters(), 8e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, updates)
    for _ in range(updates):
        optimizer.zero_grad()
        model(spelling.cut(spelling.batch(64))).total.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def with_cutter(
    model: Translator, cutter: Cutter, unit: torch.nn.Linear, batch: Batch, rate: Rate | None = None
) -> None:
    """Put a cutter with random scores into the model: logits of the batch are -0.85 on average, +- 0.3."""
    segmenter = model.segmenter
    assert isinstance(segmenter, Segmenter)
    states: Tensor = segmenter.reader(batch.src, batch.src_lengths)[batch.src > 0]
    torch.manual_seed(100)
    unit.weight.normal_()
    unit.weight.mul_(0.3 / unit(states).std())
    unit.bias.sub_(unit(states).mean() + 0.85)
    model.segmenter = Segmenter(segmenter.reader, cutter, Weighted(), rate=rate)
