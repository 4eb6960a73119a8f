"""Sweeps made up by hand, for tables and figures."""

import math
from typing import Any

from caesura.experiments.sweep_results import Sweep, SweepRun

TAU, BIAS = "model.segmenter.tau", "model.segmenter.halting_bias"


def result(name: str = "tau=0.1 b_h=1", seed: int = 1, **given: Any) -> SweepRun:
    """A run of ACT-ENC that slides from two characters per segment to one."""
    facts: dict[str, Any] = {
        "config": "act", "digest": "0123", "settings": {TAU: 0.1, BIAS: 1.0}, "beside": False,
        "status": "budget", "reason": "",
        "updates": 300, "sentences": 24_000, "epochs": 1, "seconds": 90.0, "parallel": 4,
        "parameters": 13_600_000, "device": "cuda", "milliseconds": 10.0,
        "curve": {
            "sentences": [0, 8000, 16000, 24000], "seconds": [0.0, 30.0, 60.0, 90.0],
            "segment_length": [2.0, 1.5, 1.2, 1.1], "longest_segment": [2, 5, 5, 4],
            "live": [0.5, 0.3, 0.2, 0.1],
            "bleu": [None, 5.0, 9.0, 8.0], "chrf": [None, 20.0, 30.0, 29.0],
        },
        "best": 2, "test": {"bleu": 8.5, "chrf": 29.5},
        "boundaries": {"white space": {"gold": 90, "precision": 0.2, "f1": 0.33, "chance": 0.3}},
        "coordination": {"source": {"overhead": 1.3, "chance": 1.9, "coordination": 0.67}, "target": None},
    }  # fmt: skip
    return SweepRun(name=f"{name} seed={seed}", seed=seed, **(facts | given))


def baseline(name: str, length: float, bleu: float) -> SweepRun:
    """A run of a system that does not segment."""
    curve = {
        "sentences": [0, 12000, 24000], "seconds": [0.0, 45.0, 90.0], "segment_length": [length] * 3,
        "bleu": [None, bleu / 2, bleu], "chrf": [None, bleu, 2 * bleu],
    }  # fmt: skip
    given = {"config": name, "settings": {}, "beside": True, "curve": curve, "best": 2, "coordination": {}}
    training = {"sentences": [6000, 18000], "cross_entropy": [1.5, 1.0]}
    return result(name, **given, milliseconds=4.0 * length, training=training)


def grid(taus: list[float], biases: list[float], seeds: int = 1) -> list[SweepRun]:
    """Runs that go to characters or to the whole sentence, by their tau."""
    runs = []
    for tau in taus:
        for bias in biases:
            for seed in range(1, seeds + 1):
                start = {-2.0: 8.5, 0.0: 2.4}.get(bias, 2.0)
                goal = 1.0 + 0.02 * seed if tau > 0.03 else 60.0 / (1 + 20 * max(tau, 0))
                way = [goal + (start - goal) * math.exp(-i * (0.3 + abs(tau))) for i in range(12)]
                curve: dict[str, list[float | None]] = {
                    "sentences": [8000 * i for i in range(12)], "seconds": [6.5 * i for i in range(12)],
                    "segment_length": list(way), "live": [1 - 1 / length for length in way],
                    "bleu": [None, *(20 - 5 * math.log(length) + i / 3 for i, length in enumerate(way[1:]))],
                    "chrf": [None, *(40.0 - length / 3 for length in way[1:])],
                }  # fmt: skip
                seen = [64 * 1.4**i for i in range(21)]
                slide = [goal + (start - goal) * math.exp(-x * (0.3 + abs(tau)) / 8000) for x in seen]
                training: dict[str, list[float | None]] = {
                    "sentences": [round(x) for x in seen], "segment_length": list(slide),
                    "live": [1 - 1 / length for length in slide],
                    "cross_entropy": [5 - math.log10(x) + bias / 50 for x in seen],
                }  # fmt: skip
                name = f"tau={tau:g} b_h={bias:g}"
                ms = 10 + 4 / way[-1]
                given = {"settings": {TAU: tau, BIAS: bias}, "curve": curve, "best": 11, "milliseconds": ms}
                given["training"] = training
                runs.append(result(name, seed, **given))
    return runs


def sweep(runs: list[SweepRun], over: list[str] | None = None) -> Sweep:
    """The runs as a sweep over tau and the bias."""
    return Sweep(
        [TAU, BIAS] if over is None else over, 90.0, ["BLEU|nrefs:1"], {"act": {"name": "act"}}, runs
    )
