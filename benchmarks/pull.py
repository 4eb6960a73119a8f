"""What makes ACT-ENC's segments longer where no penalty does? The halting unit's gradient, and what happens.

    python benchmarks/pull.py [--data DIR] [--updates 500] [--seed 1] [--out runs/pull]

Trains a small ACT-ENC with tau 0 within one epoch, so that each batch is new to the model when measured: free
(eps 0.01 and 0.3), with fixed segments of k characters, fixed until half-way, and with fixed segments that
also have to end after every space, or after every "e", which is almost as frequent. Every few updates:
- dCE/dh of each score that does not halt (nats per sentence, the cuts as they are): what weight moved to its
  symbol from the segment's last one does, `emitted` in the segment's own vector, `carried` in the state that
  the next segment starts from, `total` in both. Above 0, learning lowers h.
- CE (nats per symbol) with b_h shifted, cut anew (what happens) or as before (what the gradient knows of).
  The rest of the model is what it was for the cuts before; only runs with fixed segments have adapted.
Errors are over updates; OUT/pull.json has windows of them. The same command adds the runs that are missing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pull_measures import LAST_WEIGHTS, SHIFTS, measure
from torch.nn.utils import clip_grad_norm_

from caesura.analysis.plots import AXIS, COLOURS, FAINT
from caesura.config import load_config
from caesura.data.batching import BatchPlan
from caesura.inference import Translator
from caesura.training.feed import feed
from caesura.training.prepare import prepare
from caesura.training.step import SUMS, Step

Windows = list[dict[str, Any]]  # a run's, each with what `averaged` gives of all that was measured
ROOT = Path(__file__).parents[1]
# Epsilon, the b_h of a unit that scores all alike or None, the share of the updates for which it stays so,
# and characters that end a segment.
RUNS: dict[str, tuple[float, float | None, float, str]] = {
    "eps 0.01": (0.01, None, 0, ""),
    "eps 0.3": (0.3, None, 0, ""),
    "released": (0.01, 1.0, 0.5, ""),  # two characters per segment, weights 0.73 and 0.27
    "k = 1": (0.01, 20.0, 1, ""),
    **{f"k = {k}": (0.01, -math.log(k - 1), 1, "") for k in (2, 3, 4, 8)},  # h = 1 / k
    **{f"k = {k}, words": (0.01, -math.log(k - 1), 1, " ") for k in (2, 4)},
    **{f"k = {k}, after e": (0.01, -math.log(k - 1), 1, "e") for k in (2, 4)},
}
WINDOW = 25  # updates
SPANS = range(50, 100), range(100, 150), range(150, 10**9)
SETTINGS = (
    *("data.src.max_length=100", "data.trg.max_length=100", "model.segmenter.tau=0"),
    *("model.segmenter.embedding_dim=64", "model.segmenter.output_dim=128"),
    *("model.encoder.hidden_size=128", "model.encoder.dropout=0", "model.decoder.dropout=0"),
    *("model.decoder.embedding_dim=64", "model.decoder.hidden_size=256", "model.decoder.attention_size=128"),
    *("training.batch_size=64", "training.learning_rate=2e-3", "training.label_smoothing=0"),
    "training.precision=float32",
)


def main() -> None:
    """Train and measure what is missing, then draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "iwslt14-de-en")
    parser.add_argument("--updates", type=int, default=500, help="an epoch's at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=2, help="runs side by side, of one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/pull"))
    parser.add_argument("--draw", type=Path, help="only draw this pull.json, into OUT")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.draw:
        runs = json.loads(options.draw.read_text())
    else:
        with ProcessPoolExecutor(options.parallel) as pool:
            runs = dict(zip(RUNS, pool.map(partial(kept, options), RUNS), strict=True))
        (options.out / "pull.json").write_text(json.dumps(runs, separators=(",", ":")))
    print(*summary(runs), sep="\n")
    draw(runs).savefig(options.out / "pull.png", dpi=150)


def kept(options: argparse.Namespace, name: str) -> Windows:
    """The windows of a run, which is made where its file is not there yet."""
    folder = options.out / name.replace(" ", "")
    file = folder / "updates.jsonl"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        lines = [json.dumps(record) + "\n" for record in train(options, folder, *RUNS[name])]
        file.write_text("".join(lines))
    return windows([json.loads(line) for line in file.read_text().splitlines()])


def train(
    options: argparse.Namespace, folder: Path, epsilon: float, bias: float | None, share: float, ends: str
) -> Iterator[dict[str, Any]]:
    """One record per update: loss, segment length, dCE/db_h, and every few updates what else is measured."""
    torch.set_num_threads(1)
    settings = [f"training.seed={options.seed}", f"model.segmenter.epsilon={epsilon}"]
    settings += [f"model.segmenter.cut_after={json.dumps(ends)}"]
    for part in ("train", "dev"):
        settings += [
            f"data.{part}.{x}={options.data / part}.{y}.xz" for x, y in (("src", "de"), ("trg", "en"))
        ]
    config = load_config(ROOT / "recipes/freedom/act.yaml", [*SETTINGS, *settings])
    data = prepare(config, folder, False, lambda what, done, total: None)
    torch.manual_seed(options.seed)
    model = Translator.build(config, data.src_vocabulary, data.trg_vocabulary)
    halting = model.segmenter.halting
    if bias is not None:
        halting.weight.data.zero_()
        halting.bias.data.fill_(bias)
    plan = BatchPlan(data.corpus.lengths, config.training.batch_size, seed=options.seed).epoch(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.training.learning_rate)
    step = Step(model, config.training)
    ready = feed(data.corpus, plan, model.device)
    for update, (_, [batch]) in zip(range(options.updates), ready, strict=False):
        halting.requires_grad_(update >= share * options.updates)
        measured = halting.weight.requires_grad and update % 2 == 0
        record = measure(model, batch, update % 6 == 0) if measured else {}
        sums = dict(zip((*SUMS, *model.counted), step(batch).tolist(), strict=True))
        record |= {"update": update, "CE": sums["cross_entropy"] / sums["symbols"]}
        record |= {"length": sums["source_symbols"] / sums["segments"], "b_h": halting.bias.item()}
        record |= {"slope": halting.bias.grad.item()} if halting.bias.grad is not None else {}
        clip_grad_norm_(model.parameters(), config.training.clip_grad_norm)
        optimizer.step()
        yield record


def windows(records: Iterable[dict[str, Any]]) -> Windows:
    """What `averaged` gives of all values in every WINDOW updates.

    Of the smallest shift that lengthens by a tenth, `told` is the change of CE by the slope, `came` the true
    one, `wrong` how often their signs differ.
    """
    averages: Windows = []
    for start, window in groupby(records, lambda record: record.pop("update") // WINDOW * WINDOW):
        values: dict[str, list[float]] = {}
        for record in window:
            longer = [shift for shift in SHIFTS if shift < 0 and record.get(f"longer {shift}", 0) >= 1.1]
            if longer:
                predicted, came = record["slope"] * longer[-1], record[f"anew {longer[-1]}"]
                record |= {"told": predicted, "came": came, "wrong": float(predicted * came < 0)}
            for key, value in record.items():
                values.setdefault(key, []).append(value)
        averages.append({"update": start} | {key: averaged(column) for key, column in values.items()})
    return averages


def averaged(values: list[float]) -> list[float]:
    """Mean, its standard error (0 where there is but one), number."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return [float(f"{fmean(values):.4g}"), float(f"{error:.2g}"), len(values)]


def pooled(run: Windows, key: str) -> list[float]:
    """The same of several windows together; nothing where none has it."""
    rows = [window[key] for window in run if key in window]
    if not (n := sum(count for *_, count in rows)):
        return []
    return [sum(m * c for m, _, c in rows) / n, sum((e * c) ** 2 for _, e, c in rows) ** 0.5 / n, n]


def within(run: Windows, updates: range) -> Windows:
    """The windows that start in some updates."""
    return [window for window in run if window["update"] in updates]


def summary(runs: dict[str, Windows]) -> Iterator[str]:
    """How the runs were pulled, what the slope's word was worth, and where they came to."""
    for name, run in runs.items():
        for updates in SPANS:
            values = {
                key: pooled(within(run, updates), key) for key in ("slope", "total", "told", "came", "wrong")
            }
            figures = [f"{key} {v[0]:.5f} +- {v[1]:.5f} ({v[2]:.0f})" for key, v in values.items() if v]
            yield f"{name}, updates from {updates.start}: " + ", ".join(figures or ["not measured"])
        yield f"{name}: CE {run[-1]['CE'][0]:.3f}, {run[-1]['length'][0]:.2f} characters per segment"


def draw(runs: dict[str, Windows]) -> Figure:
    """The pull by length and by last weight, what the slope promises and what comes, what lengths cost."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    by_length, by_weight, word, loss = panels = figure.subplots(2, 2).flatten()

    def line(axes: Axes, points: Iterable[tuple[Any, list[float]]], **look: Any) -> None:
        rows = [(x, value[0], 2 * value[1]) for x, value in points if value]
        if rows:
            axes.errorbar(*zip(*rows, strict=True), capsize=2, **{"marker": "o", "markersize": 3} | look)

    learning = dict(zip(runs, COLOURS[:3], strict=False))  # those that learn to halt
    for name, colour in learning.items():
        run, look = runs[name], {"label": name, "color": colour}
        line(by_length, [(w["length"][0], w["slope"]) for w in run if "slope" in w], linestyle="none", **look)
        moving = [window for window in run if 2.02 < window["length"][0] < 20]
        means = [pooled(moving, f"total weight {a}") for a in LAST_WEIGHTS[:-1]]
        bins = [f"{a} to {min(b, 1)}" for a, b in pairwise(LAST_WEIGHTS)]
        line(by_weight, zip(bins, means, strict=True), **look)
    short = {name: [w for w in runs[name] if w["length"][0] < 20] for name in learning}
    for key, label, colour in (
        ("told", "the slope promises", COLOURS[1]),
        ("came", "with the text cut anew", COLOURS[0]),
    ):
        points = [(name, pooled(run, key)) for name, run in short.items()]
        line(word, points, linestyle="none", color=colour, label=label, markersize=6)
    base = {window["update"]: window["CE"][0] for window in runs["k = 1"]}
    colours = dict(zip((name for name in runs if "," not in name), (*COLOURS, AXIS), strict=True))
    for name, run in runs.items():
        fixed, _, given = name.partition(", ")
        style = {"words": "dotted", "after e": "dashdot"}.get(given, "solid" if "k" in name else "dashed")
        points = [(w["update"] + WINDOW / 2, [w["CE"][0] - base[w["update"]], 0]) for w in run]
        line(loss, points, label=name, color=colours[fixed], marker="", linestyle=style)
    by_length.set(xscale="log", xlabel="characters per segment", ylabel="dCE/db$_h$ (nats per symbol)")
    by_length.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    by_length.minorticks_off()
    by_weight.set(
        xlabel="weight of the last symbol (segments of 2 to 20 characters)",
        ylabel="dCE/dh (nats per sentence)\nabove 0: h is lowered",
    )
    word.set(
        xlabel="segments a tenth longer (while they have less than 20 characters)",
        ylabel="change of CE\n(nats per symbol)",
    )
    word.margins(x=0.3)
    loss.set(xlabel="updates", ylabel="CE minus that of k = 1\n(nats per symbol)", ylim=(-0.02, None))
    for letter, axes in zip("abcd", panels, strict=True):
        axes.axhline(0, color=FAINT, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, ncols=2 if axes is loss else 1)
        axes.set_title(letter, loc="left", fontweight="bold", fontsize=11)
    return figure


if __name__ == "__main__":
    main()
