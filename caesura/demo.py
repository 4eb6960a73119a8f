"""`caesura demo`: a character model and ACT-ENC on German numbers, side by side, in minutes on two cores."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura import terminal
from caesura.analysis.plots import Trajectory, plot_trajectories
from caesura.comparison import training_seconds
from caesura.data.corpus import ParallelText
from caesura.data.files import write_beside
from caesura.data.numerals import write_corpus
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.evaluation.pieces import join_pieces
from caesura.model import Translator
from caesura.training.journal import METRICS
from caesura.training.prepare import Sentences, read_sentences
from caesura.training.run import TrainingError

SYSTEMS = {
    "char": "{type: lookup, embedding_dim: 64}",
    # epsilon is 0.01 in the paper; with that, segments here end as single characters or as the whole number
    # (docs/log.md has what was tried).
    "act": "{type: act, tau: 0.03, epsilon: 0.3, embedding_dim: 32, act_size: 64, output_dim: 64}",
}
CONFIG = """\
# Written by `caesura demo`; `caesura train {file} --out FOLDER` trains it alone.
name: numerals-{system}-{seed}
data:
  train: corpus/train.tsv
  dev: corpus/dev.tsv
  test: corpus/test.tsv
  src: {{lang: de, level: char}}
  trg: {{lang: en, level: char}}
model:
  segmenter: {segmenter}
  encoder: {{type: recurrent, hidden_size: 64}}
  decoder: {{type: recurrent, embedding_dim: 32, hidden_size: 128, attention_size: 64}}
training:
  seed: {seed}
  batch_size: 64
  learning_rate: 3e-3
  clip_grad_norm: 1.0
  validation_freq: 6400
  updates: {updates}
  device: cpu
  threads: 1
testing: {{batch_size: 500}}
"""
UPDATES = 900
TIME_LIMIT = "180s"  # of training; a slow machine stops there, and the table says how far it came
WANTED = 0.9  # share of held-out numbers that each model should get exactly right


@dataclass(frozen=True)
class Trained:
    """One model of the demo and how it does on the three test sets."""

    system: str
    seed: int
    folder: Path
    model: Translator
    found: dict[str, Evaluation]  # test, test.long, test.typo


def run_demo(out: Path, seeds: Sequence[int]) -> bool:
    """Train both systems for every seed; True where each gets at least 90% of the test numbers right."""
    terminal.out.print(
        "Learning to read German numbers: siebenhundertdreiundzwanzig → seven hundred and twenty-three.\n"
        "Two models train side by side, one a core: char reads single characters,\n"
        "act (ACT-ENC) decides itself where to cut.\n"
    )
    out.mkdir(parents=True, exist_ok=True)
    paths = write_corpus(out / "corpus", language="de", forms=("cardinal",))
    trained = []
    for seed in seeds:
        folders = _train(out, seed)
        for system, folder in folders.items():
            model = Translator.from_pretrained(folder)
            found = {}
            for name in ("test", "test.long", "test.typo"):
                text = read_sentences(ParallelText(paths[name]), "strict")
                found[name] = evaluate(model, text.sources, text.references, text.gold, model.searcher(1))
            trained.append(Trained(system, seed, folder, model, found))
    _show_table(trained)
    _show_examples(trained[:2], read_sentences(ParallelText(paths["test"]), "strict"))
    _show_slide(trained, out)
    return all(run.found["test"].scores.exact >= WANTED for run in trained)


def _train(out: Path, seed: int) -> dict[str, Path]:
    """Train both systems in two processes, and print their validations as they come."""
    folders, children = {}, {}
    for system, segmenter in SYSTEMS.items():
        config = out / f"{system}-{seed}.yaml"
        values = {"file": config, "system": system, "seed": seed, "segmenter": segmenter, "updates": UPDATES}
        with write_beside(config) as file:
            file.write(CONFIG.format(**values).encode())
        folders[system] = out / f"{system}-{seed}"
        command = [sys.executable, "-m", "caesura.cli", "train", str(config), "--out", str(folders[system])]
        log = (out / f"{system}-{seed}.log").open("wb")
        children[system] = subprocess.Popen(
            [*command, "--time-limit", TIME_LIMIT],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        log.close()
    try:
        _watch(folders, children)
    finally:
        for child in children.values():
            if child.poll() is None:
                child.terminate()
                child.wait()
    for system, child in children.items():
        if child.returncode:
            log_file = out / f"{system}-{seed}.log"
            tail = log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise TrainingError(f"training {system} failed: {' '.join(tail)} (all of it: {log_file})")
    return folders


def _watch(folders: dict[str, Path], children: dict[str, subprocess.Popen[bytes]]) -> None:
    """Print a line a validation until both processes have ended."""
    seen = dict.fromkeys(folders, 0)
    with terminal.counting("training") as _:
        while True:
            running = any(child.poll() is None for child in children.values())
            for system, folder in folders.items():
                for record in list(validations(folder))[seen[system] :]:
                    seen[system] += 1
                    terminal.out.print(f"{system:>4} {terminal.validation_line(record)}", markup=False)
            if not running:
                return
            time.sleep(0.5)


def validations(folder: Path) -> Iterator[dict[str, Any]]:
    """The validations of a run so far, from its metrics.jsonl."""
    return (record for record in _records(folder) if record["kind"] == "validation")


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / METRICS
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):  # still being written
                return
            yield json.loads(line)


def _show_table(trained: Sequence[Trained]) -> None:
    rows = []
    for run in trained:
        test = run.found["test"]
        boundaries = test.boundaries or {}
        seconds = training_seconds(run.folder)
        rows.append(
            [
                f"{run.system}, seed {run.seed}",
                *(f"{run.found[name].scores.exact:.1%}" for name in ("test", "test.long", "test.typo")),
                f"{run.model.parameter_count():,}",
                f"{test.segments.mean:.2f} (max {test.segments.longest})",
                f"{boundaries['model'].f1:.2f}" if boundaries else "",
                terminal.duration(seconds) if seconds is not None else "?",
            ]
        )
    boundaries = trained[0].found["test"].boundaries or {}
    trivial = ", ".join(f"{name} {row.f1:.2f}" for name, row in boundaries.items() if name != "model")
    sizes = {name: trained[0].found[name].scores.sentences for name in trained[0].found}
    columns = ["model", "exact", "one digit more", "a typo", "parameters", "segment length"]
    columns += ["boundary F1", "time to best"]
    terminal.table(
        f"{sizes['test']} held-out German numbers",
        columns,
        rows,
        f"boundary F1 against morphemes; trivial cuts reach: {trivial}",
    )


def _show_examples(runs: Sequence[Trained], text: Sentences) -> None:
    terminal.out.print("\nHow they were read:")
    for i in range(3):
        for run in runs:
            output = run.found["test"].outputs[i]
            right = "=" if output.best == text.references[i] else f"should be: {text.references[i]}"
            shown = join_pieces(output.segmentation.pieces)
            terminal.out.print(f"{run.system:>6}  {shown} → {output.best}  ({right})", markup=False)


def _show_slide(trained: Sequence[Trained], out: Path) -> None:
    """How the segments moved during training, in a line and in a plot."""
    curves = {}
    for run in trained:
        start, *records = (r for r in _records(run.folder) if r["kind"] in ("start", "validation"))
        lengths = [r["segment_length"] for r in (start, *records)]
        shares = [math.nan if r["gradient_share"] is None else r["gradient_share"] for r in (start, *records)]
        curves[f"{run.system} {run.seed}"] = Trajectory(
            sentences=[0, *(r["sentences"] for r in records)],
            segment_length=lengths,
            score=[math.nan, *(r["exact"] for r in records)],
            gradient_share=None if run.system == "char" else shares,
        )
        if run.system != "char":
            shown = " → ".join(f"{length:.2f}" for length in lengths)
            terminal.out.print(f"\nACT-ENC's segment length as it trained, seed {run.seed}: {shown}")
    png, svg = plot_trajectories(curves, out / "trajectories")
    terminal.out.print(
        f"\nThe same as a plot: {png} and {svg}\nThe models: {out}/*/ "
        f"(try: echo neunundneunzig | caesura translate {trained[-1].folder} --segments)"
    )
