"""Why do deep recurrent encoders get worse? What each layer passes on, and what its gradients agree on.

    python benchmarks/depth.py CONFIG [--layers 1,3,5] [--ways printed,residual+norm] [--updates 400]

Trains a config with encoders of several depths, with and without options for depth (a way joins their names
with +; `printed` has none). At the first update, and ten times after it, each layer has three measurements:
- spread: the standard deviation of its states over the symbols of a batch, mean over features, no dropout.
  It is what a layer above can tell symbols apart by.
- agreement: the cosine between the gradients of its input weights on two different batches, with dropout.
  Where it is near 0, a gradient is mostly noise. Adam scales gradients, so their size alone says little.
- share: the length of that gradient, as a share of the whole model's.
`dev` is the cross-entropy of 200 dev pairs (nats per target symbol, no dropout), `train` that of the last 50
batches. OUT/depth.json has the same numbers. `--updates 0` measures a fresh model alone. Seconds are of CPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from caesura.config import load_config
from caesura.data.batching import Batch, BatchPlan, collate
from caesura.inference import Translator
from caesura.layers.masks import positions_mask
from caesura.training.feed import feed
from caesura.training.prepare import parallel_text, prepare
from caesura.training.schedule import rate_at
from caesura.training.step import SUMS, Step

DEV, LOOKS, RECENT = 200, 10, 50
KEYS = ("spread", "agreement", "share")


def main() -> None:
    """Train and measure every depth in every way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--layers", default="1,3,5")
    parser.add_argument("--ways", default="printed,orthogonal,norm,residual,residual+norm")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/depth"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Any] = {}
    for layers in map(int, options.layers.split(",")):
        for way in options.ways.split(","):
            if layers == 1 and "residual" in way:
                continue
            began, looks = time.process_time(), list[Any]()
            runs[f"{layers} {way}"] = looks
            for look in train(options, layers, way):
                looks.append(look | {"seconds": time.process_time() - began})
                print(shown(f"{layers} {way}", looks[-1]), flush=True)
                (options.out / "depth.json").write_text(json.dumps(runs, indent=1))


def train(options: argparse.Namespace, layers: int, way: str) -> Iterator[dict[str, Any]]:
    """The measurements of one run."""
    extra = [f"model.encoder.{name}=true" for name in way.split("+") if name != "printed"]
    settings = [f"model.encoder.num_layers={layers}", f"training.seed={options.seed}", *extra]
    settings += [f"training.updates={max(1, options.updates)}", "training.precision=float32"]
    config = load_config(options.config, [*options.settings, *settings])
    data = prepare(config, options.out, False, lambda what, done, total: None)
    torch.manual_seed(options.seed)
    model = Translator.build(config, data.src_vocabulary, data.trg_vocabulary)
    dev = dev_batches(model)
    plan = BatchPlan(data.corpus.lengths, config.training.batch_size, seed=options.seed)
    planned = islice((rows for epoch in count() for rows in plan.epoch(epoch)), options.updates + 2)
    ready = feed(data.corpus, [*planned], model.device)
    (_, [one]), (_, [two]) = next(ready), next(ready)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.training.learning_rate)
    step, recent = Step(model, config.training), list[float]()
    every = max(1, options.updates // LOOKS)
    for update, (_, [batch]) in enumerate(ready):
        if update % every == 0:
            yield {"update": update, **measured(model, step, one, two, dev, recent)}
        sums = dict(zip((*SUMS, *model.counted), step(batch, update).tolist(), strict=True))
        recent = [*recent, sums["cross_entropy"] / sums["symbols"]][-RECENT:]
        clip_grad_norm_(model.parameters(), config.training.clip_grad_norm or float("inf"))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(config.training, config.training.learning_rate, update)
        optimizer.step()
    yield {"update": options.updates, **measured(model, step, one, two, dev, recent)}


def dev_batches(model: Translator) -> list[Batch]:
    """The first pairs of dev, in the order of their lengths."""
    text = parallel_text(model.config.data.dev).pairs(with_bounds=False)
    pairs = [(src, trg) for (src, trg, _), _ in zip(text, range(DEV), strict=False)]
    numbered = [(model.src_vocabulary.encode(src), model.trg_vocabulary.encode(trg)) for src, trg in pairs]
    numbered.sort(key=lambda pair: len(pair[0]))
    return [collate(numbered[i : i + 40]) for i in range(0, len(numbered), 40)]


def measured(
    model: Translator, step: Step, one: Batch, two: Batch, dev: list[Batch], recent: list[float]
) -> dict[str, Any]:
    """Everything about a model at one moment; its weights stay as they are."""
    gradients = []
    for batch in (one, two):
        step(batch)
        gradients.append([p.grad.clone() for p in first_weights(model)])
        whole = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    cosines = [
        torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), 0)
        for a, b in zip(*gradients, strict=True)
    ]
    return {
        "spread": spreads(model, one),
        "agreement": [float(c) for c in cosines],
        "share": [float(g.norm()) / whole**0.5 for g in gradients[1]],
        "dev": cross_entropy(model, dev),
        "train": sum(recent) / len(recent) if recent else None,
    }


def first_weights(model: Translator) -> list[Tensor]:
    """The input weights of each layer's forward direction."""
    return [layer.get_parameter("weight_ih_l0") for layer in model.encoder.forwards]


@torch.no_grad()
def spreads(model: Translator, batch: Batch) -> list[float]:
    """By layer; PyTorch's own GRUs run on a CPU, so their outputs can be caught."""
    caught: list[Tensor] = []
    layers = [*model.encoder.forwards]
    hooks = [layer.register_forward_hook(lambda _, __, made: caught.append(made[0])) for layer in layers]
    model.eval()
    segments = model.segmenter(batch.src, batch.src_lengths)
    model.encoder(segments.vectors, segments.lengths)
    for hook in hooks:
        hook.remove()
    mask = positions_mask(segments.lengths, segments.vectors.shape[1])
    model.train()
    return [float(states[mask].std(0).mean()) for states in caught]


@torch.no_grad()
def cross_entropy(model: Translator, batches: list[Batch]) -> float:
    """Nats per target symbol."""
    model.eval()
    total = symbols = 0.0
    for batch in batches:
        loss = model.loss(batch, model.segmenter(batch.src, batch.src_lengths))
        total, symbols = total + float(loss.cross_entropy.sum()), symbols + float(loss.symbols)
    model.train()
    return total / symbols


def shown(name: str, look: dict[str, Any]) -> str:
    """A line for people."""
    parts = [f"{key} " + " ".join(f"{x:.3f}" for x in look[key]) for key in KEYS]
    train = "" if look["train"] is None else f", train {look['train']:.3f}"
    head = f"{name:16} {look['update']:5} ({look['seconds']:.0f} s)  dev {look['dev']:.3f}{train}"
    return f"{head}  {'; '.join(parts)}"


if __name__ == "__main__":
    main()
