"""`caesura demo`: four ways to cut German numbers, each with its translator, in minutes on two cores."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caesura import terminal
from caesura.analysis.figures import history_figure
from caesura.analysis.halting import history
from caesura.analysis.plots import save as save_figure
from caesura.analysis.report import PAGE
from caesura.analysis.study import AnalysisSettings
from caesura.data.corpus import ParallelText
from caesura.data.files import refuse_unwritable, write_whole
from caesura.data.numerals import HeldOut, write_corpus
from caesura.data.sentences import Sentences, read_sentences
from caesura.errors import InputError, Interrupted, TrainingError
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.evaluation.pieces import join_pieces
from caesura.experiments.comparison import Text, begin_report, compared, write_report
from caesura.experiments.engine import Experiment
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import Member, read_outcome
from caesura.inference import Translator
from caesura.model_folder import WEIGHTS
from caesura.training.journal import training_seconds
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
class Scale:
    """The size of the demo."""

    updates: int | None = None  # of every model; None: as many as its system has
    time_limit: float = (
        180  # seconds of training per seed; a slow machine stops there and says how far it came
    )
    size: int = 20_000  # training sentences
    held_out: HeldOut = field(default_factory=HeldOut)
    demanding: bool = True  # whether models have to reach their goals


@dataclass(frozen=True)
class DemoModel(Member):
    """One model of the demo; its config is beside its folder."""

    system: str
    seed: int

    def updates(self, scale: Scale) -> int:
        """How many updates it is trained for."""
        return scale.updates or SYSTEMS[self.system].updates


def model_of(system: str, seed: int, out: Path) -> DemoModel:
    """A model of the demo in the folder `out`."""
    folder = out / f"{system}-{seed}"
    return DemoModel(f"{system}, seed {seed}", folder.with_suffix(".yaml"), (), folder, system, seed)


@dataclass(frozen=True)
class Tested:
    """A trained model and how it does on the test sets."""

    model: DemoModel
    translator: Translator
    results: dict[str, Evaluation]  # by the names in TESTS
    seconds: float  # that translating the first of them took

    def missing(self) -> list[str]:
        """The goals on the test set that the model misses."""
        system, test = SYSTEMS[self.model.system], self.results["test"]
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


class _Display(terminal.FleetDisplay):
    """The display of every experiment, with one line per validation at a terminal too."""

    def validation(self, name: str, record: dict[str, Any]) -> None:
        system, _, _ = name.partition(",")
        self.say(f"{system:>7} {terminal.validation_line(record)}")


def run_demo(out: Path, seeds: Sequence[int], scale: Scale | None = None) -> bool:
    """Train all systems for every seed; True where each reaches its goals."""
    scale = scale or Scale()
    models = [model_of(system, seed, out) for seed in dict.fromkeys(seeds) for system in SYSTEMS]
    _write(out, models, scale)
    with hold(out, terminal.say):  # a second demo would replace its plots
        return _run(out, models, scale)


def _run(out: Path, models: Sequence[DemoModel], scale: Scale) -> bool:
    terminal.say(
        "Learning to read German numbers: siebenhundertdreiundzwanzig → seven hundred and twenty-three.\n"
        "Four models differ in where they cut; two train side by side, one per core.\n"
        + "".join(f"{name:>7}  {system.about}\n" for name, system in SYSTEMS.items())
    )
    texts = {name: read_sentences(ParallelText(out / "corpus" / f"{name}.tsv"), "strict") for name in TESTS}
    tested, trained = [], False
    try:
        for first in range(0, len(models), len(SYSTEMS)):
            group = models[first : first + len(SYSTEMS)]
            unfinished = [model for model in group if not read_outcome(model).trained]
            trained = trained or bool(unfinished)
            Demo(out, unfinished).train(scale.time_limit)
            tested += [_test(model, texts) for model in group if (model.folder / WEIGHTS).exists()]
    except (KeyboardInterrupt, Interrupted):
        terminal.say("stopped; the same command goes on from here")
        raise
    if tested:
        seed = tested[0].model.seed
        first_seed = [t for t in tested if t.model.seed == seed]
        _show_examples(first_seed, texts["test"])
        _show_table(tested, scale, _missing(tested, models))
        _show_slide(tested, out)
        missing_here = _missing(first_seed, [model for model in models if model.seed == seed])
        _report(first_seed, texts["test"], out, trained, missing_here)
        folders = " ".join(str(t.model.folder) for t in tested)
        terminal.say(f"\nMove their cuts by hand, in a browser: {_program()} explore {folders} --open")
    missing = {t.model: t.missing() if scale.demanding else [] for t in tested}
    for model in models:
        if message := _shortfall(model, missing.get(model), scale):
            terminal.say(f"\n{message}")
    return all(model in missing and not missing[model] for model in models)


def _write(out: Path, models: Sequence[DemoModel], scale: Scale) -> None:
    """Write corpus and configs where they are not there yet; others in their place are refused."""
    files: dict[Path, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in write_corpus(folder, size=scale.size, held_out=scale.held_out).values():
            files[out / "corpus" / path.name] = path.read_bytes()
    for model in models:
        system, updates = SYSTEMS[model.system], model.updates(scale)
        config = CONFIG.format(name=model.system, seed=model.seed, system=system, updates=updates)
        files[model.config] = config.encode()
    for path, content in files.items():
        if path.exists() and path.read_bytes() != content:
            problem = "from another version of the demo"
            raise InputError(f"{path}: {problem}; remove {out} or choose another --out")
    with refuse_unwritable(out):
        (out / "corpus").mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        if not path.exists():
            write_whole(path, content)


class Demo(Experiment):
    """Models of one seed, of which none may fail."""

    def __init__(self, out: Path, models: Sequence[DemoModel]) -> None:
        super().__init__(out)
        self.models = models

    def settled(self) -> None:
        """End all where one has failed."""
        for model in self.models:
            if (outcome := self.outcome(model)).status == "failed":
                reason = f"{outcome.reason} (all of it: {model.log})"
                raise TrainingError(f"training {model.name} failed: {reason}")

    def train(self, time_limit: float) -> None:
        """Train two models at a time.

        The last of them start first: where the time is too short for all, their cuts are the ones to see.
        """
        for model in self.models:
            model.failure.unlink(missing_ok=True)  # of an earlier call, which would end this one
        with _Display() as display:
            self.run(self.models[::-1], Limits(parallel=AT_ONCE, time_limit=time_limit), display)


def _test(model: DemoModel, texts: Mapping[str, Sentences]) -> Tested:
    translator = Translator.from_pretrained(model.folder)
    results, seconds = {}, {}
    with terminal.counting(f"testing {model.system}", sum(len(t.sources) for t in texts.values())) as count:
        for name, text in texts.items():
            search = translator.searcher(1)
            began = time.perf_counter()
            results[name] = evaluate(translator, text.sources, text.references, text.gold, search, count)
            seconds[name] = time.perf_counter() - began
    return Tested(model, translator, results, seconds["test"])


def _shortfall(model: DemoModel, missing: Sequence[str] | None, scale: Scale) -> str:
    """A sentence about what a model still lacks; empty if nothing is missing."""
    outcome = read_outcome(model)
    lacking = ["no validation yet, so there is nothing to test"] if missing is None else [*missing]
    if not outcome.trained:
        lacking.append("stopped by the time limit, and the same command goes on")
    how_far = f"{model.name}, after {outcome.progress.update} of {model.updates(scale)} updates"
    return f"{how_far}: {'; '.join(lacking)}." if lacking else ""


def _missing(tested: Sequence[Tested], models: Sequence[DemoModel]) -> str:
    """How many models can be shown, and which are missing; empty if all can."""
    absent = [model.name for model in models if model not in {t.model for t in tested}]
    counts = f"{len(tested)} of {len(models)} models"
    return f"{counts}: no validation yet of {'; '.join(absent)}" if absent else ""


def _show_table(tested: Sequence[Tested], scale: Scale, missing: str) -> None:
    rows = []
    for t in tested:
        test, seconds = t.results["test"], training_seconds(t.model.folder)
        best = read_outcome(t.model).best
        row = [t.model.name, *(f"{t.results[name].scores.exact:.1%}" for name in TESTS)]
        lengths = f"{test.segments.mean:.2f} (max {test.segments.longest})"
        f1 = f"{test.boundaries['model'].f1:.2f}" if test.boundaries else ""
        row += [f"{t.translator.parameter_count():,}", lengths, f1]
        when = "?" if seconds is None else terminal.duration(seconds)
        rows.append([*row, f"{best['update'] if best else '?'} of {t.model.updates(scale)}, {when}"])
    test = tested[0].results["test"]
    trivial = (f"{name} {row.f1:.2f}" for name, row in (test.boundaries or {}).items() if name != "model")
    columns = ["model", "exact", "one digit more", "a typo", "parameters", "segment length", "boundary F1"]
    terminal.table(
        f"{test.scores.sentences} held-out German numbers, greedy" + (f"; {missing}" if missing else ""),
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
            if t.model.system != "char":
                output = t.results["test"].outputs[i]
                result = "=" if output.best == reference else f"→ {output.best}"
                shown = join_pieces(output.segmentation.shown)
                terminal.say(f"{t.model.system:>7}  {shown}  {result}")
    terminal.say("")


def _show_slide(tested: Sequence[Tested], out: Path) -> None:
    """How the segments moved during training, in a line and in a plot."""
    curves = {t.model: run for t in tested if (run := history(t.model.folder))}
    for model, run in curves.items():
        if model.system == "act":
            shown = " → ".join(f"{length:.2f}" for length in run.segment_length)
            terminal.say(f"\nACT-ENC's segment length as it trained, seed {model.seed}: {shown}")
    figure = history_figure({f"{m.system} {m.seed}": run for m, run in curves.items()}, "exact")
    png, svg = save_figure(figure, out / "trajectories")
    terminal.say(
        f"\nThe same as a plot: {png} and {svg}\nThe models: {out}/*/ "
        f"(try: echo neunundneunzig | {_program()} translate {tested[-1].model.folder} --segments)"
    )


def _report(tested: Sequence[Tested], text: Sentences, out: Path, trained: bool, missing: str) -> None:
    """Everything about the models on one page; an existing page stays if nothing was trained."""
    page = out / "report" / PAGE
    if trained or not page.exists():
        models = [(str(t.model.folder), t.translator) for t in tested]
        rows = compared(models, [(t.results["test"], t.seconds) for t in tested], text, beam=1)
        settings = AnalysisSettings(sample=200, beam=1, bpe=BPE)
        files = Text(str(out / "corpus" / "test.tsv"))
        gold = begin_report(files, page.parent)
        page, _ = write_report(models, files, gold, page.parent, settings, rows, missing)
    terminal.say(f"\nEverything about them on one page: {page}")


def _program() -> str:
    """How the user calls this program: by its name or, if it is off the path, by its place."""
    if shutil.which("caesura"):
        return "caesura"
    here = os.path.relpath(sys.argv[0])
    return "python -m caesura.cli" if here.endswith(".py") else here
