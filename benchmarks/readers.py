"""What does a reader pass on, and how fast does a model learn behind it?

    python benchmarks/readers.py CONFIG [--updates 600] [--stop N] [--seed 1] [--set KEY=VALUE] [--out FOLDER]

Trains a config, ends after `--stop` updates of its schedule, and measures about five times on the way and
once at the end, on one batch of training text and without dropout, what the pooling gives to the encoder:
- size: the root of the mean square of all features; spread: their standard deviation over segments.
- alike: the mean cosine between two segments; near 1, the encoder can hardly tell segments apart.
- order: how far a segment moves if its first two characters are swapped, over the distance of two segments.
- encoder: the spread of the encoder's states.
`train` is the cross-entropy of the last 50 batches (nats per target symbol), `dev` that of 200 dev pairs.
`order` needs segments of four characters. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import count, islice
from pathlib import Path
from statistics import fmean

import torch
from depth import RECENT, cross_entropy, dev_batches
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from caesura.config import load_config
from caesura.data.batching import Batch, BatchPlan
from caesura.inference import Translator
from caesura.layers.masks import positions_mask
from caesura.training.feed import feed
from caesura.training.prepare import prepare
from caesura.training.schedule import rate_at
from caesura.training.step import SUMS, Step

LOOKS, LENGTH = 5, 4


def main() -> None:
    """Train and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--stop", type=int)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/readers"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    settings = [f"training.updates={options.updates}", f"training.seed={options.seed}"]
    config = load_config(options.config, [*options.settings, *settings, "training.precision=float32"])
    data = prepare(config, options.out, False, lambda what, done, total: None)
    torch.manual_seed(options.seed)
    model = Translator.build(config, data.src_vocabulary, data.trg_vocabulary)
    stop = options.stop or options.updates
    plan = BatchPlan(data.corpus.lengths, config.training.batch_size, seed=options.seed)
    planned = islice((rows for epoch in count() for rows in plan.epoch(epoch)), stop + 1)
    ready = feed(data.corpus, [*planned], model.device)
    _, [probe] = next(ready)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.training.learning_rate)
    step, recent, began = Step(model, config.training), list[float](), time.process_time()
    for update, (_, [batch]) in enumerate(ready):
        if update % max(1, stop // LOOKS) == 0:
            print(f"{update:5} {measured(model, probe)}", flush=True)
        sums = dict(zip((*SUMS, *model.counted), step(batch, update).tolist(), strict=True))
        recent = [*recent, sums["cross_entropy"] / sums["symbols"]][-RECENT:]
        clip_grad_norm_(model.parameters(), config.training.clip_grad_norm or math.inf)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(config.training, config.training.learning_rate, update)
        optimizer.step()
    losses = f"train {fmean(recent):.3f} dev {cross_entropy(model, dev_batches(model)):.3f}"
    print(f"{stop:5} {measured(model, probe)} {losses} ({time.process_time() - began:.0f} s)")


@torch.no_grad()
def measured(model: Translator, batch: Batch) -> str:
    """Everything about a batch at one moment, for people."""
    model.eval()
    layer, symbols, lengths = model.segmenter, batch.src, batch.src_lengths
    segments = layer(symbols, lengths)
    mask = positions_mask(segments.lengths, segments.vectors.shape[1])
    swapped, T = symbols.clone(), symbols.shape[1]
    first = torch.arange(0, T - LENGTH - 1, 2 * LENGTH)  # of every second segment
    swapped[:, first], swapped[:, first + 1] = symbols[:, first + 1], symbols[:, first]
    pooled, moved = (
        layer.pooling(layer.reader(ids, lengths), segments.cuts, mask.shape[1]) for ids in (symbols, swapped)
    )
    within = (first + LENGTH + 1 < lengths[:, None]) & (symbols[:, first] != symbols[:, first + 1])
    steps = (pooled - moved).norm(dim=2)[:, first // LENGTH][within]
    apart = (pooled - pooled.roll(-1, 0)[:, :1]).norm(dim=2)[:, first // LENGTH][within]
    vectors = pooled[mask]
    unit = F.normalize(vectors[:1000], dim=1)
    alike = ((unit @ unit.T).sum() - len(unit)) / (len(unit) * (len(unit) - 1))
    states = model.encoder(segments.vectors, segments.lengths).states[mask]
    figures = {
        "size": vectors.square().mean().sqrt(),
        "spread": vectors.std(0).mean(),
        "alike": alike,
        "order": steps.mean() / apart.mean(),
        "encoder": states.std(0).mean(),
    }
    model.train()
    return " ".join(f"{name} {float(value):.3f}" for name, value in figures.items())


if __name__ == "__main__":
    main()
