"""`caesura demo`: four ways to cut German numbers, each with its translator, in minutes on two cores."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caesura import terminal
from caesura.analysis.cost import training_seconds
from caesura.analysis.figures import history_figure
from caesura.analysis.halting import history
from caesura.analysis.plots import save as save_figure
from caesura.analysis.report import PAGE
from caesura.analysis.study import Settings as Analysed
from caesura.comparison import Text, begin_report, compared, write_report
from caesura.data.corpus import ParallelText
from caesura.data.files import read_tail, refuse_unwritable, write_beside
from caesura.data.numerals import HeldOut, write_corpus
from caesura.data.sentences import Sentences, read_sentences
from caesura.errors import InputError, Interrupted, TrainingError
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.evaluation.pieces import join_pieces
from caesura.experiments.processes import Children, kill_notice
from caesura.model import Translator
from caesura.model_folder import WEIGHTS
from caesura.training.checkpoint import Progress, newest_progress
from caesura.training.journal import read_records
from caesura.training.lock import hold

# 0.01 in the paper; with that, segments here end as single characters or as the whole number (docs/log.md).
EPSILON = 0.3
READER = "reader: {type: bigru, embedding_dim: 32, size: 64}"
TARGET = 5.0  # characters per segment that cif and entropy are asked for; morphemes have 5.3


@dataclass(frozen=True)
class System:
    """One way to cut: how its model is trained, and its goals on the test set."""

    about: str
    segmenter: str  # and the other options are as a config has them
    cuts: str = "null"
    updates: int = 900
    learning_rate: str = "3e-3"
    decay: str = "none"
    exact: float = 0.9  # share of numbers that are exactly right
    length: float = 1.0  # characters per segment
    f1: float = 0.0  # of boundaries against morphemes


SYSTEMS = {
    "char": System("reads single characters", "{type: lookup, embedding_dim: 64}", updates=700),
    "act": System(
        "ACT-ENC: cuts while it reads, and learns where",
        f"{{type: act, tau: 0.03, epsilon: {EPSILON}, embedding_dim: 32, act_size: 64, output_dim: 64}}",
    ),
    "cif": System(
        f"reads both ways, then learns where to cut; {TARGET:g} characters per segment",
        f"{{{READER}, cutter: {{type: cif}}, pooling: weighted, rate: {{target: {TARGET}}}, output_dim: 64}}",
        updates=450,
        learning_rate="7e-3",
        decay="linear",
        exact=0.99,
        length=4.0,
    ),
    "entropy": System(
        "reads both ways; cut where the next character is hard to predict, at the same length",
        f"{{{READER}, cutter: {{type: given}}, pooling: mean, output_dim: 64}}",
        cuts=f"{{type: entropy, order: 5, target: {TARGET}}}",
        updates=500,
        learning_rate="7e-3",
        decay="linear",
        exact=0.99,
        f1=0.8,
    ),
}
AT_ONCE = 2  # models that train side by side, one per core
CONFIG = """\
# Written by `caesura demo`; `caesura train` with this file and an --out trains it alone.
name: numerals-{name}-{seed}
data:
  train: corpus/train.tsv
  dev: corpus/dev.tsv
  test: corpus/test.tsv
  src: {{lang: de, level: char}}
  trg: {{lang: en, level: char}}
  cuts: {system.cuts}
model:
  segmenter: {system.segmenter}
  encoder: {{type: recurrent, hidden_size: 64}}
  decoder: {{type: recurrent, embedding_dim: 32, hidden_size: 128, attention_size: 64}}
training:
  seed: {seed}
  batch_size: 64
  learning_rate: {system.learning_rate}
  decay: {system.decay}
  clip_grad_norm: 1.0
  validation_freq: 6400
  updates: {updates}
  device: cpu
  threads: 1
testing: {{batch_size: 500}}
"""
TESTS = ("test", "test.long", "test.typo")
BPE = 200  # symbols that the report compares cuts with: enough for the words that numbers are made of


@dataclass(frozen=True)
class Settings:
    """How much the demo does."""

    updates: int | None = None  # of every model; None: as many as its system has
    time_limit: float = 180  # seconds of training in all; a slow machine stops there and says how far it came
    size: int = 20_000  # training sentences
    held_out: HeldOut = field(default_factory=HeldOut)
    demanding: bool = True  # whether models have to reach their goals


@dataclass(frozen=True)
class Run:
    """One model of the demo: where it is trained, and how far it has come."""

    system: str
    seed: int
    out: Path

    @property
    def name(self) -> str:
        """As the reader is told it."""
        return f"{self.system}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        """The model folder; the config and what training printed are beside it, with a suffix."""
        return self.out / f"{self.system}-{self.seed}"

    def updates(self, settings: Settings) -> int:
        """How many it is trained for."""
        return settings.updates or SYSTEMS[self.system].updates

    def progress(self) -> Progress:
        """Where its training stands."""
        return newest_progress(self.folder / "checkpoints") or Progress()

    def validations(self) -> list[dict[str, Any]]:
        """Those that its metrics.jsonl has so far."""
        return [record for record in read_records(self.folder) if record["kind"] == "validation"]


@dataclass(frozen=True)
class Tested:
    """A trained model and how it does on the test sets."""

    run: Run
    model: Translator
    found: dict[str, Evaluation]  # by the names in TESTS
    seconds: float  # that translating the first of them took

    def missing(self) -> list[str]:
        """The goals on the test set that the model misses."""
        system, test = SYSTEMS[self.run.system], self.found["test"]
        f1 = test.boundaries["model"].f1 if test.boundaries else 0.0
        short = []
        if test.scores.exact < system.exact:
            short.append(f"{test.scores.exact:.1%} right, at least {system.exact:.0%} wanted")
        if test.segments.mean < system.length:
            short.append(
                f"{test.segments.mean:.2f} characters per segment, at least {system.length:g} wanted"
            )
        if f1 < system.f1:
            short.append(f"boundary F1 {f1:.2f}, at least {system.f1:g} wanted")
        return short


def run_demo(out: Path, seeds: Sequence[int], settings: Settings | None = None) -> bool:
    """Train all systems for every seed; True where each reaches its goals."""
    settings = settings or Settings()
    runs = [Run(system, seed, out) for seed in dict.fromkeys(seeds) for system in SYSTEMS]
    _write(out, runs, settings)
    with hold(out, terminal.say):  # a second demo would replace its logs and plots
        return _run(out, runs, settings)


def _run(out: Path, runs: Sequence[Run], settings: Settings) -> bool:
    terminal.say(
        "Learning to read German numbers: siebenhundertdreiundzwanzig → seven hundred and twenty-three.\n"
        "Four models differ in where they cut; two train side by side, one per core.\n"
        + "".join(f"{name:>7}  {system.about}\n" for name, system in SYSTEMS.items())
    )
    texts = {name: read_sentences(ParallelText(out / "corpus" / f"{name}.tsv"), "strict") for name in TESTS}
    tested, trained = [], False
    try:
        for first in range(0, len(runs), len(SYSTEMS)):
            group = runs[first : first + len(SYSTEMS)]
            unfinished = [run for run in group if not run.progress().finished]
            trained = trained or bool(unfinished)
            _train(unfinished, settings)
            tested += [_test(run, texts) for run in group if (run.folder / WEIGHTS).exists()]
    except (KeyboardInterrupt, Interrupted):
        terminal.say("stopped; the same command goes on from here")
        raise
    if tested:
        first_seed = [t for t in tested if t.run.seed == tested[0].run.seed]
        _show_examples(first_seed, texts["test"])
        _show_table(tested, settings)
        _show_slide(tested, out)
        _report(first_seed, texts["test"], out, trained)
    missing = {t.run: t.missing() if settings.demanding else [] for t in tested}
    for run in runs:
        if said := _shortfall(run, missing.get(run), settings):
            terminal.say(f"\n{said}")
    return all(run in missing and not missing[run] for run in runs)


def _write(out: Path, runs: Sequence[Run], settings: Settings) -> None:
    """Write corpus and configs where they are not there yet; others in their place are refused."""
    wanted: dict[Path, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in write_corpus(folder, size=settings.size, held_out=settings.held_out).values():
            wanted[out / "corpus" / path.name] = path.read_bytes()
    for run in runs:
        config = CONFIG.format(
            name=run.system, seed=run.seed, system=SYSTEMS[run.system], updates=run.updates(settings)
        )
        wanted[run.folder.with_suffix(".yaml")] = config.encode()
    for path, content in wanted.items():
        if path.exists() and path.read_bytes() != content:
            raise InputError(f"{path}: of another version of the demo; remove {out} or choose another --out")
    with refuse_unwritable(out):
        (out / "corpus").mkdir(parents=True, exist_ok=True)
    for path, content in wanted.items():
        if not path.exists():
            with write_beside(path) as file:
                file.write(content)


def _train(runs: Sequence[Run], settings: Settings) -> None:
    """Train each model in a process of its own, and print validations as they come."""
    for run in runs:
        run.folder.with_suffix(".log").unlink(missing_ok=True)
    with Children(terminal.say) as children:
        ended = _watch(runs, children, settings.time_limit)
    if children.signal is not None:
        for run in runs:
            child = children.running.get(run.name)
            if child is not None and child.returncode == -signal.SIGKILL:
                terminal.say(kill_notice(run.name, run.folder))
        raise Interrupted(children.signal)
    for run in runs:
        if status := ended.get(run.name):
            log = run.folder.with_suffix(".log")
            *_, last = ["", *read_tail(log).strip().splitlines()]
            how = f"status {status}" if status > 0 else signal.Signals(-status).name
            said = last.removeprefix("caesura: ")
            raise TrainingError(f"training {run.name} failed ({how}): {said} (all of it: {log})")


def _start(run: Run, children: Children, time_limit: float) -> None:
    config, log = (run.folder.with_suffix(suffix) for suffix in (".yaml", ".log"))
    command = [sys.executable, "-m", "caesura.cli", "train", "--time-limit", f"{time_limit:f}s"]
    children.start(run.name, [*command, str(config), "--out", str(run.folder)], log, {"OMP_NUM_THREADS": "1"})


def _watch(runs: Sequence[Run], children: Children, time_limit: float) -> dict[str, int]:
    """Train two at a time, one line per validation, until all have ended, one has failed, or a signal came.

    The last of `runs` start first: where the time is too short for all, their cuts are the ones to see.
    """
    seen, waiting, ended = {run: len(run.validations()) for run in runs}, list(runs), dict[str, int]()
    began, shown = time.monotonic(), 0
    # At a terminal a line goes above the bar only by the bar's own console.
    console = terminal.beside_bar()
    title, total = f"training, at most {terminal.duration(time_limit)}", round(time_limit)
    with terminal.counting(title, total, logged=False) as count:
        while True:
            ended |= children.ended()
            for run in runs:
                for record in run.validations()[seen[run] :]:
                    seen[run] += 1
                    console.print(f"{run.system:>7} {terminal.validation_line(record)}")
            if any(ended.values()) or children.signal is not None:
                return ended
            left = time_limit - (time.monotonic() - began)
            while waiting and len(children.running) < AT_ONCE and left > 0:
                _start(waiting.pop(), children, left)
            if not children.running:
                return ended
            time.sleep(0.2)
            elapsed = min(round(time.monotonic() - began), total)
            count(elapsed - shown)
            shown = elapsed


def _test(run: Run, texts: Mapping[str, Sentences]) -> Tested:
    model = Translator.from_pretrained(run.folder)
    found, seconds = {}, {}
    with terminal.counting(f"testing {run.system}", sum(len(t.sources) for t in texts.values())) as count:
        for name, text in texts.items():
            search = model.searcher(1)
            began = time.perf_counter()
            found[name] = evaluate(model, text.sources, text.references, text.gold, search, count)
            seconds[name] = time.perf_counter() - began
    return Tested(run, model, found, seconds["test"])


def _shortfall(run: Run, missing: Sequence[str] | None, settings: Settings) -> str:
    """What is missing of a model, in a sentence; nothing where nothing is."""
    progress = run.progress()
    said = ["no validation yet, so there is nothing to test"] if missing is None else [*missing]
    if not progress.finished:
        said.append("stopped by the time limit, and the same command goes on")
    how_far = f"{run.name}, after {progress.update} of {run.updates(settings)} updates"
    return f"{how_far}: {'; '.join(said)}." if said else ""


def _show_table(tested: Sequence[Tested], settings: Settings) -> None:
    rows = []
    for t in tested:
        test, seconds = t.found["test"], training_seconds(t.run.folder)
        best = [r["update"] for r in t.run.validations() if r["verdict"] == "best"]
        row = [t.run.name, *(f"{t.found[name].scores.exact:.1%}" for name in TESTS)]
        row += [f"{t.model.parameter_count():,}", f"{test.segments.mean:.2f} (max {test.segments.longest})"]
        row += [f"{test.boundaries['model'].f1:.2f}" if test.boundaries else ""]
        when = "?" if seconds is None else terminal.duration(seconds)
        rows.append([*row, f"{best[-1] if best else '?'} of {t.run.updates(settings)}, {when}"])
    test = tested[0].found["test"]
    trivial = (f"{name} {row.f1:.2f}" for name, row in (test.boundaries or {}).items() if name != "model")
    columns = ["model", "exact", "one digit more", "a typo", "parameters", "segment length", "boundary F1"]
    terminal.table(
        f"{test.scores.sentences} held-out German numbers, greedy",
        [*columns, "best update and time"],
        rows,
        f"boundary F1 against morphemes; trivial cuts reach: {', '.join(trivial)}\n"
        f"epsilon is {EPSILON} here and 0.01 in the paper: docs/log.md",
    )


def _show_examples(tested: Sequence[Tested], text: Sentences) -> None:
    """How the models that cut have cut some numbers; wrong translations are shown."""
    terminal.say("\nHow they cut numbers that they had not seen (=: translated right):")
    for i, (source, reference) in enumerate(list(zip(text.sources, text.references, strict=True))[:3]):
        terminal.say(f"\n{source} → {reference}")
        for t in tested:
            if t.run.system != "char":
                output = t.found["test"].outputs[i]
                result = "=" if output.best == reference else f"→ {output.best}"
                shown = join_pieces(output.segmentation.pieces)
                terminal.say(f"{t.run.system:>7}  {shown}  {result}")
    terminal.say("")


def _show_slide(tested: Sequence[Tested], out: Path) -> None:
    """How the segments moved during training, in a line and in a plot."""
    curves = {t.run: found for t in tested if (found := history(t.run.folder))}
    for run, found in curves.items():
        if run.system == "act":
            shown = " → ".join(f"{length:.2f}" for length in found.segment_length)
            terminal.say(f"\nACT-ENC's segment length as it trained, seed {run.seed}: {shown}")
    figure = history_figure({f"{run.system} {run.seed}": found for run, found in curves.items()}, "exact")
    png, svg = save_figure(figure, out / "trajectories")
    terminal.say(
        f"\nThe same as a plot: {png} and {svg}\nThe models: {out}/*/ "
        f"(try: echo neunundneunzig | {_program()} translate {tested[-1].run.folder} --segments)"
    )


def _report(tested: Sequence[Tested], text: Sentences, out: Path, trained: bool) -> None:
    """Everything about the models on one page; where nothing was trained, the one that is there is left."""
    page = out / "report" / PAGE
    if trained or not page.exists():
        models = [(str(t.run.folder), t.model) for t in tested]
        rows = compared(models, [(t.found["test"], t.seconds) for t in tested], text, beam=1)
        settings = Analysed(sample=200, beam=1, bpe=BPE)
        files = Text(str(out / "corpus" / "test.tsv"))
        gold = begin_report(files, page.parent)
        page, _ = write_report(models, files, gold, page.parent, settings, rows)
    terminal.say(f"\nEverything about them on one page: {page}")


def _program() -> str:
    """How the user calls this program: by its name, or where it is off the path, by its place."""
    if shutil.which("caesura"):
        return "caesura"
    here = os.path.relpath(sys.argv[0])
    return "python -m caesura.cli" if here.endswith(".py") else here
