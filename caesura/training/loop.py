"""Training: one page of loop, with every decision in a small object beside it."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from caesura.config import Config
from caesura.data.batching import Batch, BatchPlan, collate
from caesura.errors import Interrupted
from caesura.evaluation.evaluate import evaluate
from caesura.model import Loss, resolve
from caesura.training.card import write_card
from caesura.training.interrupt import Interrupt, Stop
from caesura.training.prepare import Prepared
from caesura.training.run import Reporter, Run, open_run
from caesura.training.validation import Example, log_record, summarise

LOG_EVERY = 50  # updates between two lines of metrics.jsonl


def train(
    config: Config, folder: Path, reporter: Reporter, time_limit: float | None = None
) -> Literal["finished", "time limit"]:
    """Train until the schedule, a bound or the time limit ends it; called again, it goes on where it was.

    `Interrupted` is raised, with the state saved, after SIGINT or SIGTERM.
    """
    config = resolve(config)
    with Interrupt(time_limit) as interrupt:
        try:
            run, data = open_run(config, folder, reporter, interrupt)
        except Stop:
            return _stopped(reporter, interrupt, "while it read the text")
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
    progress.seconds = time.monotonic() - started
    run.save()
    if progress.finished:
        reporter.say(f"training finished: {progress.finished}")
        return "finished"
    return _stopped(reporter, interrupt, f"after {progress.update} updates")


def _stopped(reporter: Reporter, interrupt: Interrupt, where: str) -> Literal["time limit"]:
    reporter.say(f"stopped by the {interrupt.reason()} {where}; the same command goes on from here")
    if interrupt.signal is not None:
        raise Interrupted(interrupt.signal)
    return "time limit"


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
    with torch.autocast(run.model.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
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
        "decoder_tau": run.config.model.decoder.tau,
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

    try:
        found = evaluate(
            run.model,
            dev.sources,
            dev.references,
            dev.gold,
            search=run.model.searcher(beam=1),
            progress=lambda _: interrupt.check(),
        )
    except Stop:
        return False
    verdict = run.schedule.update(found.scores.bleu)
    progress.since_validation = 0
    progress.seconds = time.monotonic() - started
    result = summarise(progress, found, verdict)
    if verdict == "best":
        run.model.save_pretrained(run.folder)
        write_card(run.folder, run.model, found, asdict(result))
    elif verdict == "halve":
        progress.learning_rate *= settings.decrease_factor
    elif verdict == "stop":
        progress.finished = f"no new best through {settings.max_halvings} halvings of the learning rate"
    rows = zip(dev.sources, found.outputs, dev.references, strict=True)
    examples = [Example(*row) for row in islice(rows, settings.examples)]
    run.journal.record("validation", progress.update, log_record(result, found, examples))
    run.journal.validation(asdict(replace(result, seconds=round(result.seconds, 1))))
    reporter.validation(result, examples)
    return True
