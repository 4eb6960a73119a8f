"""Does HM-LSTM keep its rate if its loss works against it? Its segmenter alone, at full size.

    python benchmarks/locking.py TRAIN.de.xz DEV.de.xz [--target 4] [--updates 60] [--push 3]

Each segment's vector predicts the characters of the next one. `--push` is the weight of the mean score, so
that fewer cuts mean less loss. The learning rate is four times that of `recipes/grid-cutters.yaml`. Lines of
training text are cut off at 60 characters; the table is of 12 dev lines of 61 to 200 characters.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.data.files import read_lines
from caesura.layers.masks import positions_mask
from caesura.schedules import Schedule
from caesura.segmenters.base import Segments
from caesura.segmenters.hmrnn import HmrnnSegmenter
from caesura.segmenters.rate import Rate, count_cuts

LENGTH, LONGEST, LINES, DEV_LINES, BATCH = 60, 200, 20_000, 12, 4


def numbered(lines: list[str], numbers: dict[str, int]) -> tuple[Tensor, Tensor]:
    """Symbols [B, T], 0 for </s> and padding, and lengths [B]."""
    rows = [torch.tensor([*(numbers[c] for c in line), 0]) for line in lines]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def loss_of(segments: Segments, head: nn.Linear, symbols: Tensor, lengths: Tensor, push: float) -> Tensor:
    """Of each character under the vector of the segment before its own, and the mean score times `push`."""
    shares = F.log_softmax(head(segments.vectors), 2)
    place = F.pad(segments.ends.long().cumsum(1), (1, 0))[:, :-1]  # of each symbol's segment
    counted = positions_mask(lengths, symbols.shape[1]) & (place > 0)
    before = (place - 1).clamp(min=0)[..., None].expand(-1, -1, shares.shape[2])
    chosen = shares.gather(1, before).gather(2, symbols[..., None]).squeeze(2)
    inner = positions_mask(lengths - 1, symbols.shape[1])
    assert segments.scores is not None
    score = (segments.scores * inner).sum() / inner.sum()
    return push * score - (chosen * counted).sum() / counted.sum().clamp(min=1)


@torch.no_grad()
def show(what: str, layer: HmrnnSegmenter, symbols: Tensor, lengths: Tensor) -> None:
    """One line of the table."""
    assert layer.control is not None
    assert layer.control.current_threshold is not None
    cuts = layer(symbols, lengths).cuts
    count = count_cuts(cuts.ends, lengths)
    places = [[-1, *row.nonzero().flatten().tolist()] for row in cuts.ends]
    longest = max(b - a for row in places for a, b in pairwise(row))
    live, spread = cuts.live.sum() / lengths.sum(), cuts.logits[positions_mask(lengths - 1, symbols.shape[1])]
    threshold = layer.control.current_threshold.item()
    print(
        f"{what:>8} {count.characters / count.segments:7.2f} {longest:8d} {threshold:10.4g} "
        f"{spread.std():7.2f} {live:6.1%}",
        flush=True,
    )


def main() -> None:
    """Train, and print how the length goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--target", type=float, default=4.0)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--push", type=float, default=3.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    drawn = random.Random(0)
    train = [line[:LENGTH] for line in [*read_lines(options.train)][:LINES] if line and len(line) > LENGTH]
    dev = [line for line in read_lines(options.dev) if line and LENGTH < len(line) <= LONGEST][:DEV_LINES]
    numbers = {c: n for n, c in enumerate(sorted({*"".join(train + dev)}), 1)}
    slope = Schedule(1.0, 5.0, options.updates // 2)
    layer = HmrnnSegmenter(len(numbers) + 1, 620, 512, 64, slope=slope, rate=Rate(options.target))
    head, text = nn.Linear(64, len(numbers) + 1), numbered(dev, numbers)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=3e-3)
    assert layer.control is not None
    print(f"asked for: {options.target:g}\n update  length  longest  threshold  spread   live")
    for update in range(options.updates):
        if update % max(1, options.updates // 6) == 0:
            show(str(update), layer, *text)
        layer.slope.follow(update)
        symbols, lengths = numbered(drawn.sample(train, BATCH), numbers)
        segments = layer(symbols, lengths)
        optimizer.zero_grad()
        loss_of(segments, head, symbols, lengths, options.push).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        layer.control.observe(count_cuts(segments.ends, lengths), torch.tensor(True))
    show("the end", layer, *text)
    layer.settle([(*text, None)])
    show("settled", layer.eval(), *text)


if __name__ == "__main__":
    main()
