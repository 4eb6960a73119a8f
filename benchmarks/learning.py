"""Does the fast path learn what the reference learns? ACT-ENC, fused bfloat16 against the float32 reference.

    python benchmarks/learning.py [--data DIR] [--updates 1000] [--seeds 1 2 3] [--out runs/learning]

Trains recipes/multi30k/act.yaml with each seed both ways, all side by side on one GPU, and draws the losses
of training into OUT/learning.png. The same command goes on with runs that were cut short.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.figure import Figure

from caesura.analysis.plots import COLOURS

ROOT = Path(__file__).parents[1]
# Name, environment and precision. The reference is replayed from graphs too: the operations are the same.
WAYS = {
    "float32 reference": ({"CAESURA_KERNELS": "reference"}, "float32"),
    "fused bfloat16": ({}, "bfloat16"),
}
Losses = dict[int, list[float]]  # cross-entropy by update, one per seed


def main() -> None:
    """Train what is not trained yet, then compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "multi30k-de-en")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument(
        "--max-length", type=int, default=100, help="the reference needs memory for each pair"
    )
    parser.add_argument("--time-limit", default="1h", help="of this call; the same call goes on from there")
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    parser.add_argument("--draw", type=Path, help="only draw this losses.json, into OUT")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.draw:
        read = json.loads(options.draw.read_text())
        losses_of = {name: {int(update): v for update, v in runs.items()} for name, runs in read.items()}
        draw(losses_of).savefig(options.out / "learning.png", dpi=150)
        return
    running = [train(options, seed, name, *way) for seed in options.seeds for name, way in WAYS.items()]
    ended = [process.wait() for process in running]
    if any(ended):
        sys.exit(f"a run failed; its output is in {options.out}/*.log")
    by_way = {name: losses(options, name) for name in WAYS}
    for name, runs in by_way.items():
        last = runs[max(runs)]
        print(f"{name:20} cross-entropy {fmean(last):.4f} +- {stdev(last):.4f} at update {max(runs)}: {last}")
    print(verdict(by_way))
    (options.out / "losses.json").write_text(json.dumps(by_way))
    draw(by_way).savefig(options.out / "learning.png", dpi=150)


def folder(options: argparse.Namespace, seed: int, name: str) -> Path:
    """Where a run is kept."""
    return options.out / f"{name.replace(' ', '-')}-{seed}"


def train(
    options: argparse.Namespace, seed: int, name: str, environment: dict[str, str], precision: str
) -> subprocess.Popen[bytes]:
    """Start `caesura train`."""
    settings = {"training.seed": seed, "training.updates": options.updates, "training.precision": precision}
    settings |= {f"data.{side}.max_length": options.max_length for side in ("src", "trg")}
    # One validation, at the end.
    settings |= {"training.validation_freq": 10**9, "data.test": "null"}
    for part in ("train", "dev"):
        settings |= {f"data.{part}.src": options.data / f"{part}.de.xz"}
        settings |= {f"data.{part}.trg": options.data / f"{part}.en.xz"}
    command = [sys.executable, "-m", "caesura.cli", "train", str(ROOT / "recipes/multi30k/act.yaml")]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    out = folder(options, seed, name)
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--time-limit", options.time_limit, "--out", str(out)],
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )


def losses(options: argparse.Namespace, name: str) -> Losses:
    """What the runs of one way have logged."""
    curves: Losses = {}
    for seed in options.seeds:
        for line in (folder(options, seed, name) / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "train":
                curves.setdefault(record["update"], []).append(record["cross_entropy"])
    return {update: values for update, values in curves.items() if len(values) == len(options.seeds)}


def verdict(losses_by_name: dict[str, Losses]) -> str:
    """In how many logged updates the means lie closer than the seeds' spread (two standard errors)."""
    one, other = losses_by_name.values()
    shared, inside = sorted(one.keys() & other.keys()), 0
    for update in shared:
        a, b = one[update], other[update]
        error = ((stdev(a) ** 2 + stdev(b) ** 2) / len(a)) ** 0.5
        inside += abs(fmean(a) - fmean(b)) <= 2 * error
    return f"the means differ by at most two standard errors in {inside} of {len(shared)} points"


def draw(curves: dict[str, Losses]) -> Figure:
    """Means as lines, one over the other; below, how far each run is from the mean of the first way."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    truth = {update: fmean(values) for update, values in next(iter(curves.values())).items()}
    looks = (4.5, "solid", 0.4), (1.4, (0, (4, 2)), 1.0)
    for (name, runs), colour, (width, dashes, alpha) in zip(curves.items(), COLOURS, looks, strict=False):
        updates = sorted(truth.keys() & runs.keys())
        look = {"color": colour, "linestyle": dashes, "alpha": alpha}
        above.plot(updates, [fmean(runs[u]) for u in updates], linewidth=width, label=name, **look)
        for seed in zip(*(runs[u] for u in updates), strict=True):
            below.plot(
                updates, [100 * (x / truth[u] - 1) for x, u in zip(seed, updates, strict=True)], **look
            )
    above.set_ylabel("cross-entropy\n(nats per symbol)")
    above.legend(frameon=False)
    below.set_ylabel("a run against the\nreference's mean (%)")
    below.set_xlabel("updates")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main()
