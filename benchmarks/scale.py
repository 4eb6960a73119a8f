"""The time of a pass over the paper's WMT text on 1, 8 and 64 H200s, computed: `python benchmarks/scale.py`.

Measured: a step on one H200, by batch size (docs/performance.md). Computed: everything else. A process
computes its share of a batch; then all gradients are summed, and no process goes on before that.
"""

from __future__ import annotations

import math

import numpy as np

PAIRS = 12_075_604 * (1 - 0.305)  # the paper leaves out 30.5% of the sentences, by 200 characters
# Milliseconds of a step by its number of sentences of 100 characters each: docs/performance.md.
STEPS = {
    "char, 1 layer": {16: 5.87, 32: 6.81, 64: 8.36, 128: 12.02, 256: 18.90, 512: 32.38, 1024: 61.66},
    "ACT-ENC": {16: 5.76, 32: 6.43, 64: 7.41, 128: 9.70, 256: 14.59, 512: 23.77, 1024: 43.32},
    "char, 5 layers": {40: 11.71, 128: 18.87, 512: 49.04},
}
PARAMETERS = {"char, 1 layer": 14_129_400, "ACT-ENC": 14_194_071, "char, 5 layers": 32_153_400}
NODE = 8  # GPUs of one machine
BANDWIDTH = {"in": 300e9, "between": 40e9}  # bytes per second and GPU: assumed
LATENCY = {"in": 50e-6, "between": 200e-6}  # seconds: assumed


def step(system: str, share: float) -> float:
    """Seconds of a step of so many sentences: linear between measured sizes, constant below the smallest."""
    sizes, times = zip(*STEPS[system].items(), strict=True)
    if share > sizes[-1]:  # parts one after the other
        return math.ceil(share / sizes[-1]) * times[-1] / 1000
    return float(np.interp(share, sizes, times)) / 1000


def exchange(system: str, gpus: int) -> float:
    """Seconds of the sum of all gradients: a ring sends them twice, four bytes per parameter."""
    if gpus == 1:
        return 0.0
    place = "in" if gpus <= NODE else "between"
    return LATENCY[place] + 2 * (gpus - 1) / gpus * 4 * PARAMETERS[system] / BANDWIDTH[place]


def main() -> None:
    """Print the table."""
    print("| | sentences per update | H200s | step, ms | exchange, ms | pairs/s | one pass | GPU hours |")
    print("|---|---|---|---|---|---|---|---|")
    for system in STEPS:
        for batch in (40, 512, 8192):
            for gpus in (1, 8, 64) if batch > NODE * NODE else (1,):
                own, sent = step(system, batch / gpus), exchange(system, gpus)
                rate = batch / (own + sent)
                minutes = PAIRS / rate / 60
                cells = [
                    system,
                    f"{batch:,}",
                    gpus,
                    f"{1000 * own:.1f}",
                    f"{1000 * sent:.2f}",
                    f"{rate:,.0f}",
                ]
                print(
                    "|",
                    " | ".join(map(str, [*cells, f"{minutes:.1f} min", f"{gpus * minutes / 60:.2f}"])),
                    "|",
                )


if __name__ == "__main__":
    main()
