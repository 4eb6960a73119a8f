"""Training: one page of loop, with every decision in a small object beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from caesura.config import Config, differences, load_config
from caesura.data.batching import Batch, BatchPlan, collate
from caesura.data.files import write_beside
from caesura.errors import InputError
from caesura.evaluation.boundaries import segment_length
from caesura.evaluation.evaluate import Evaluation, evaluate, gradient_share
from caesura.kernels import pick
from caesura.model import CONFIG, WEIGHTS, Loss, Output, Translator, resolve
from caesura.training.card import CARD, write_card
from caesura.training.checkpoint import (
    Progress,
    list_checkpoints,
    load_checkpoint,
    read_progress,
    save_checkpoint,
)
from caesura.training.interrupt import Interrupt, Interrupted
from caesura.training.journal import Journal
from caesura.training.prepare import Prepared, Sentences, prepare
from caesura.training.schedule import HalveAndStop, Verdict

LOG_EVERY = 50  # updates between two lines of metrics.jsonl


class TrainingError(Exception):
    """Training cannot go on; the message is one sentence, and the last good state is on disk."""


@dataclass(frozen=True)
class Validation:
    """What a validation found, as it is logged."""

    update: int
    sentences: int
    epoch: int
    seconds: float
    learning_rate: float
    bleu: float
    chrf: float
    exact: float
    segment_length: float
    longest_segment: int
    gradient_share: float | None
    boundary_f1: float | None
    verdict: Verdict


class Reporter(Protocol):
    """Who is told how training goes; the command line draws it."""

    def say(self, text: str) -> None:
        """Something happened once."""

    def working(self, what: str, done: int) -> None:
        """Something long is under way before training."""

    def update(self, progress: Progress, loss: float | None) -> None:
        """An update was made; the loss is there now and then."""

    def validation(self, validation: Validation, examples: Sequence[tuple[str, Output, str]]) -> None:
        """A validation is done: its figures, and (source, output, reference) examples."""


@dataclass
class Run:
    """All that changes while training."""

    config: Config
    folder: Path
    model: Translator
    optimizer: torch.optim.Optimizer
    progress: Progress
    schedule: HalveAndStop
    journal: Journal
    dev: Sentences

    def save(self) -> None:
        """Write a checkpoint that belongs to exactly what is in the log now."""
        self.check()
        self.progress.window = {name: float(value) for name, value in self.progress.window.items()}
        self.progress.schedule = asdict(self.schedule)
        self.progress.journal = self.journal.sizes()
        keep = self.config.training.keep_last
        save_checkpoint(self.folder / "checkpoints", self.model, self.optimizer, self.progress, keep)

    def check(self) -> None:
        """Refuse to go on from a state in which a number is not finite, and so to save or validate it."""
        loss = float(self.progress.window.get("loss", 0.0))
        if not math.isfinite(loss) or not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            raise TrainingError(
                f"the loss is not finite around update {self.progress.update}; the state before is in "
                f"{self.folder}/checkpoints; try a smaller training.learning_rate or training.clip_grad_norm"
            )


def train(
    config: Config, folder: Path, reporter: Reporter, time_limit: float | None = None
) -> Literal["finished", "time limit"]:
    """Train until the schedule, a bound or the time limit ends it; called again, it goes on where it was.

    `Interrupted` is raised, with the state saved, after SIGINT or SIGTERM.
    """
    config = resolve(config)
    with Interrupt(time_limit) as interrupt:
        run, data = _open(config, folder, reporter)
        with closing(run.journal):
            return _loop(run, data, reporter, interrupt)


def _loop(
    run: Run, data: Prepared, reporter: Reporter, interrupt: Interrupt
) -> Literal["finished", "time limit"]:
    settings, progress = run.config.training, run.progress
    plan = BatchPlan(data.corpus.lengths, settings.batch_size, settings.batch_type, settings.seed)
    batches = plan.epoch(progress.epoch)
    started = time.monotonic() - progress.seconds
    while not progress.finished:
        if interrupt.reason():
            break
        if progress.since_validation >= settings.validation_freq:
            if _validate(run, reporter, interrupt, started):
                run.save()
            continue
        if progress.batch == len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
            batches = plan.epoch(progress.epoch)
        if _bound_reached(run):
            continue
        rows = batches[progress.batch]
        batch = collate([data.corpus[i] for i in rows], rows).to(run.model.device)
        loss = _update(run, batch)
        progress.update += 1
        progress.batch += 1
        progress.sentences += loss.sentences
        progress.since_validation += loss.sentences
        progress.seconds = time.monotonic() - started
        reporter.update(progress, _log(run) if progress.update % LOG_EVERY == 0 else None)
    reason = interrupt.reason()
    progress.seconds = time.monotonic() - started
    run.save()
    if progress.finished:
        reporter.say(f"training finished: {progress.finished}")
        return "finished"
    reporter.say(
        f"stopped by the {reason} after {progress.update} updates; the same command goes on from here"
    )
    if interrupt.signal is not None:
        raise Interrupted(interrupt.signal)
    return "time limit"


def _open(config: Config, folder: Path, reporter: Reporter) -> tuple[Run, Prepared]:
    """Start a run in `folder`, or take up the one that is there."""
    settings = config.training
    checkpoints = list_checkpoints(folder / "checkpoints")
    if checkpoints:
        _refuse_changes(load_config(folder / CONFIG), config, folder)
    else:
        _refuse_overwriting(config, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(
            f"{folder}: cannot be written to ({problem.strerror}); choose another --out"
        ) from problem
    if settings.threads:
        torch.set_num_threads(settings.threads)
    data = prepare(config, folder, bool(checkpoints), reporter.working)
    torch.manual_seed(settings.seed)
    device = _device(config)
    model = Translator.build(config, data.src_vocabulary, data.trg_vocabulary).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    progress = Progress(learning_rate=settings.learning_rate, text=data.digests)
    schedule = HalveAndStop(settings.patience, settings.max_halvings)
    if checkpoints:
        progress = read_progress(checkpoints[-1])
        if progress.text != data.digests:
            raise InputError(
                f"{folder}: the training text has changed since this run began; choose another --out"
            )
        load_checkpoint(checkpoints[-1], model, optimizer)
        schedule = HalveAndStop(**progress.schedule)
        reporter.say(f"going on from update {progress.update} ({checkpoints[-1]})")
    else:
        with write_beside(folder / CONFIG) as file:
            file.write(config.dump().encode())
    journal = Journal(folder, progress.journal, settings.tensorboard)
    run = Run(config, folder, model, optimizer, progress, schedule, journal, data.dev)
    if not checkpoints:
        cuts = model.process(data.dev.sources, None)  # where it starts from, before it has learnt anything
        segments = segment_length(cut.segmentation.covered for cut in cuts)
        facts = {
            "segment_length": segments.mean,
            "longest_segment": segments.longest,
            "gradient_share": gradient_share(cuts),
            "parameters": model.parameter_count(),
            "src_vocabulary": len(data.src_vocabulary),
            "trg_vocabulary": len(data.trg_vocabulary),
            "training": str(data.corpus.report),
            "device": str(device),
            "threads": torch.get_num_threads(),
            "kernels": list(pick(device)),
        }
        journal.record("start", 0, facts)
        run.save()
        reporter.say(str(data.corpus.report))
        reporter.say(f"segments start at {segments.mean:.2f} characters (longest {segments.longest})")
    implementation, reason = pick(device)
    reporter.say(f"{config.name}: {model.parameter_count():,} parameters on {device}")
    reporter.say(f"recurrences: {implementation} ({reason})")
    if data.dev.too_long:
        limit = config.testing.max_input
        reporter.say(
            f"dev lines over {limit} characters (testing.max_input) count as empty: {data.dev.too_long}"
        )
    return run, data


def _device(config: Config) -> torch.device:
    wanted = config.training.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise config.error("training.device", "no CUDA device here; auto or cpu would work")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def _refuse_changes(old: Config, new: Config, folder: Path) -> None:
    changes = differences(old, new)
    if changes:
        listed = "; ".join(changes)
        raise InputError(
            f"{folder}: was trained with another config ({listed}); undo that or choose another --out"
        )


def _refuse_overwriting(config: Config, folder: Path) -> None:
    """A folder without checkpoints may hold what a killed start left, but no model, no stranger's file."""
    found = [name for name in (WEIGHTS, CARD) if (folder / name).exists()]
    written = folder / CONFIG
    if written.is_file() and written.read_bytes() != config.dump().encode():
        found.append(CONFIG)
    if found:
        raise InputError(
            f"{folder}: has no checkpoints, but a {found[0]} that would be overwritten; choose another --out"
        )


def _bound_reached(run: Run) -> bool:
    """End at the configured number of updates or epochs, with a last validation where one is due."""
    settings, progress = run.config.training, run.progress
    over = ""
    if settings.updates is not None and progress.update >= settings.updates:
        over = f"{settings.updates} updates"
    elif settings.epochs is not None and progress.epoch >= settings.epochs:
        over = f"{settings.epochs} epochs"
    if over and progress.since_validation > 0:
        progress.since_validation = settings.validation_freq
    elif over:
        progress.finished = over
    return bool(over)


def _update(run: Run, batch: Batch) -> Loss:
    """One step of Adam; what the log wants is summed up without waiting for the device."""
    settings = run.config.training
    run.model.train()
    loss = run.model(batch)
    run.optimizer.zero_grad()
    loss.total.backward()
    sums: dict[str, Any] = {
        "loss": loss.total.detach() * loss.sentences,
        "cross_entropy": loss.cross_entropy.detach(),
        "symbols": loss.symbols,
        "sentences": loss.sentences,
        "penalty": loss.penalty.detach() * loss.sentences,
        "remainder": loss.remainder.detach() * loss.sentences,
        "decoder_penalty": loss.decoder_penalty.detach() * loss.sentences,
    }
    if settings.clip_grad_norm is not None:
        norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), settings.clip_grad_norm)
        sums |= {"clipped": norm > settings.clip_grad_norm, "updates": 1}
    for group in run.optimizer.param_groups:
        group["lr"] = run.progress.learning_rate
    run.optimizer.step()
    window = run.progress.window
    for name, value in sums.items():
        window[name] = window.get(name, 0.0) + (value.double() if isinstance(value, Tensor) else value)
    return loss


def _log(run: Run) -> float:
    """Write the means since the last line of the log, and start anew."""
    run.check()
    progress = run.progress
    window = {name: float(value) for name, value in progress.window.items()}
    per_sentence = {
        name: window[name] / window["sentences"]
        for name in ("loss", "penalty", "remainder", "decoder_penalty")
    }
    cross_entropy = window["cross_entropy"] / window["symbols"]
    values = per_sentence | {
        "cross_entropy": cross_entropy,
        "tau": run.config.model.segmenter.tau,
        "learning_rate": progress.learning_rate,
        "sentences": progress.sentences,
        "epoch": progress.epoch,
        "seconds": round(progress.seconds, 2),
    }
    if "updates" in window:
        values["clipped"] = window["clipped"] / window["updates"]  # share of updates
    run.journal.record("train", progress.update, values)
    progress.window = {}
    return cross_entropy


def _validate(run: Run, reporter: Reporter, interrupt: Interrupt, started: float) -> bool:
    """Translate the dev set greedily and act on the score; False where it was interrupted."""
    progress, settings, dev = run.progress, run.config.training, run.dev
    run.check()

    def check(_: int) -> None:
        if interrupt.reason():
            raise InterruptedError

    try:
        found = evaluate(
            run.model,
            dev.sources,
            dev.references,
            dev.gold,
            search=run.model.searcher(beam=1),
            progress=check,
        )
    except InterruptedError:
        return False
    verdict = run.schedule.update(found.scores.bleu)
    progress.since_validation = 0
    progress.seconds = time.monotonic() - started
    result = _summary(run, found, verdict)
    if verdict == "best":
        run.model.save_pretrained(run.folder)
        write_card(run.folder, run.model, found, asdict(result))
    elif verdict == "halve":
        progress.learning_rate *= settings.decrease_factor
    elif verdict == "stop":
        progress.finished = f"no new best through {settings.max_halvings} halvings of the learning rate"
    values = asdict(result)
    if found.boundaries is not None:
        values["boundaries"] = {name: asdict(row) for name, row in found.boundaries.items()}
    examples = [
        (dev.sources[i], found.outputs[i], dev.references[i])
        for i in range(min(settings.examples, len(dev.sources)))
    ]
    values["examples"] = [
        {
            "source": source,
            "pieces": out.segmentation.pieces,
            "translation": next(iter(out.texts), ""),
            "reference": ref,
        }
        for source, out, ref in examples
    ]
    values["signatures"] = found.scores.signatures
    run.journal.record("validation", progress.update, {k: v for k, v in values.items() if k != "update"})
    run.journal.validation(asdict(replace(result, seconds=round(result.seconds, 1))))
    reporter.validation(result, examples)
    return True


def _summary(run: Run, found: Evaluation, verdict: Verdict) -> Validation:
    progress = run.progress
    own = next(iter(found.boundaries.values())) if found.boundaries else None
    return Validation(
        update=progress.update,
        sentences=progress.sentences,
        epoch=progress.epoch,
        seconds=round(progress.seconds, 2),
        learning_rate=progress.learning_rate,
        bleu=found.scores.bleu,
        chrf=found.scores.chrf,
        exact=found.scores.exact,
        segment_length=found.segments.mean,
        longest_segment=found.segments.longest,
        gradient_share=found.gradient_share,
        boundary_f1=own.f1 if own else None,
        verdict=verdict,
    )
