"""Training: one page of loop, with every decision in a small object beside it."""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm

from caesura.components import resolve
from caesura.config import Config
from caesura.data.batching import BatchPlan, Split
from caesura.data.tensors import DamagedError
from caesura.errors import InputError, Interrupted, TrainingError
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.kernels import PLAIN, pick, used
from caesura.segmenters.figures import value as ratio
from caesura.training.card import write_card
from caesura.training.checkpoint import ranked
from caesura.training.collapse import watch
from caesura.training.feed import Epochs, Planned, feed
from caesura.training.interrupt import BUDGET, ON_TOP, SHORT, Interrupt, Stop, overrun
from caesura.training.lock import hold
from caesura.training.prepare import Prepared, check_files
from caesura.training.run import Reporter, Run, settle_all
from caesura.training.schedule import Verdict, bound_reached, rate_at
from caesura.training.start import open_run
from caesura.training.step import SUMS, Step
from caesura.training.validation import ValidationExample, log_record, summarise, translated
from caesura.training.world import World

LOG_EVERY = 50  # updates between two lines of metrics.jsonl
LOG_EARLY = (1, 2, 5, 10, 20)  # and after these: segments may go all their way within a hundred


Ending = Literal["finished", "time limit", "budget"]


def train(
    config: Config,
    folder: Path,
    reporter: Reporter,
    time_limit: float | None = None,
    budget: float | None = None,
    world: World | None = None,
    check_cache: bool = False,
) -> Ending:
    """Train until the schedule, a bound or a limit ends it; called again, it goes on where it was.

    `time_limit` bounds this call; `budget` bounds training over all calls, as `Progress.seconds` counts it.
    When that is spent, updates since the last validation are validated, off the clock.
    With `check_cache`, numbered text of earlier calls is compared with its checksums.
    `Interrupted` is raised, with the state saved, after SIGINT, SIGTERM or SIGHUP. The processes of a `world`
    all call this; only the `reporter` of process 0 should show anything.
    """
    config, world = resolve(config), world or World()
    check_files(config)
    held = hold(folder, reporter.say) if world.leads else nullcontext()
    with Interrupt(time_limit, lasting=not world.alone) as interrupt, held, ExitStack() as opened:
        try:
            run, data = open_run(config, folder, reporter, interrupt, opened, world, check_cache)
        except Stop:
            return _stopped(reporter, interrupt, world, "before its first update here")
        return _loop(run, data, reporter, interrupt, budget)


def _loop(run: Run, data: Prepared, reporter: Reporter, interrupt: Interrupt, budget: float | None) -> Ending:
    settings, progress, world = run.config.training, run.progress, run.world
    by_characters = settings.batch_type == "characters"
    lengths = data.corpus.characters if by_characters else data.corpus.lengths
    epochs = Epochs(BatchPlan(lengths, settings.batch_size, settings.batch_type, settings.seed))
    split = Split(world.rank, world.size, settings.accumulate)
    batches, step = epochs(progress.epoch), Step(run.model, settings, reporter.say, not world.alone)
    ready = feed(data.corpus, batches[progress.batch :], run.model.device, split)
    first, started = progress.update, time.monotonic() - progress.seconds
    used.clear()  # by other models of this process
    if budget is not None:
        interrupt.spent_at(started + budget)
        if budget < SHORT:
            reporter.say(f"{budget:g}s of training: {ON_TOP}")
    reason = None
    while not progress.finished and not (reason := interrupt.agreed(world)):
        run.finish_writing(wait=False)
        if progress.since_validation >= settings.validation_freq:
            _validate(run, reporter, interrupt, started)
            continue
        if progress.batch == len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0
            batches = epochs(progress.epoch)
            ready = feed(data.corpus, batches, run.model.device, split)
        if _ended_by_bound(run):
            continue
        planned = next(ready)
        _update(run, step, planned)
        if progress.update == first:
            _say_what_ran(run, reporter)
        progress.update += 1
        progress.batch += 1
        progress.sentences += len(planned.rows)
        progress.since_validation += len(planned.rows)
        progress.seconds = time.monotonic() - started
        reporter.update(progress, _log(run) if _logged(progress.update) else None)
        if run.due():
            run.save()
    progress.seconds = time.monotonic() - started
    validated = reason == BUDGET and progress.since_validation > 0
    if not (validated and _validate(run, reporter, interrupt, None)):
        run.save()
    run.finish_writing()
    if progress.finished:
        if world.leads:
            _refuse_damaged(run)
        reporter.say(f"training finished: {progress.finished}")
        return "finished"
    where, took = f"after {progress.update} updates", f" in {progress.seconds:.0f}s"
    over = overrun(progress.seconds, budget) if reason == BUDGET else ""
    return _stopped(reporter, interrupt, world, where + (took + over if over else ""))


def _refuse_damaged(run: Run) -> None:
    """Training is over, and no validation will write the best model again."""
    try:
        run.check_best()
    except DamagedError as problem:
        remedy = "no checkpoint is of its update; delete the folder and train again"
        raise InputError(f"{problem}, and {remedy}") from problem


def _stopped(reporter: Reporter, interrupt: Interrupt, world: World, where: str) -> Ending:
    reason = interrupt.agreed(world)
    command = "one with a larger budget" if reason == BUDGET else "the same command"
    reporter.say(f"stopped by the {reason} {where}; {command} goes on from here")
    if interrupt.signal is not None:
        raise Interrupted(interrupt.signal)
    return "budget" if reason == BUDGET else "time limit"


def _ended_by_bound(run: Run) -> bool:
    """End at the configured number of updates or epochs, with a last validation where one is due."""
    settings, progress = run.config.training, run.progress
    over = bound_reached(settings, progress.update, progress.epoch)
    if over and progress.since_validation > 0:
        progress.since_validation = settings.validation_freq
    elif over:
        progress.finished = over
    return bool(over)


def _update(run: Run, step: Step, planned: Planned) -> None:
    """One step of Adam. The sums for the log do not wait for the device.

    If the loss or a gradient is not finite, nothing changes. All decisions here follow from sums over all
    processes, so every process decides alike.
    """
    settings, parameters = run.config.training, [*run.model.parameters()]
    most = settings.clip_grad_norm
    run.world.seed(settings.seed, run.progress.update)
    sums = step(planned.parts, run.progress.update)
    run.world.sum(step.flat, sums)
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = get_total_norm(gradients) if most is None else clip_grad_norm_(parameters, most)
    clipped = sums.new_zeros(()) if most is None else norm > most
    wrong = ~(norm.isfinite() & sums[0].isfinite())
    for group in run.optimizer.param_groups:
        group["lr"] = rate_at(settings, run.progress.learning_rate, run.progress.update)
    run.optimizer.found_inf = wrong.float()  # type: ignore[attr-defined]  # fused Adam's own way to skip
    run.optimizer.step()
    run.model.observe(sums[len(SUMS)], sums[len(SUMS) + 1], ~wrong)
    row = torch.cat((sums, torch.stack((clipped.double(), sums.new_ones(())))))
    run.window += torch.where(wrong, 0.0, row)
    run.guard.note(planned.rows, wrong)


def _last_rate(run: Run) -> float:
    """Adam's rate at the last update, if it was not lowered since."""
    return rate_at(run.config.training, run.progress.learning_rate, run.progress.update - 1)


def _say_what_ran(run: Run, reporter: Reporter) -> None:
    """Report kernels that their arguments ruled out, which only the first update shows."""
    if run.progress.update == 0:
        run.journal.record("kernels", 0, {kernel: list(choice) for kernel, choice in used.items()})
    usual, _ = pick(run.model.device)
    for kernel, (choice, why) in used.items():
        if choice != usual and (usual == "triton" or kernel not in PLAIN):
            reporter.say(f"{kernel}: {choice} ({why})")


def _logged(update: int) -> bool:
    return update % LOG_EVERY == 0 or update in LOG_EARLY


def _log(run: Run) -> float | None:
    """Write the means since the last line of the log, and reset them; None if all updates were skipped."""
    run.check()
    progress = run.progress
    window = dict(zip(run.summed, run.window.tolist(), strict=True))
    if not window["updates"]:
        return None
    cross_entropy = window["cross_entropy"] / window["symbols"]
    values = {
        "loss": window["loss"] / window["sentences"],
        **_of_cuts(run, window),
        "cross_entropy": cross_entropy,
        **_knobs(run),
        "learning_rate": _last_rate(run),
        "sentences": progress.sentences,
        "epoch": progress.epoch,
        "seconds": round(progress.seconds, 2),
    }
    if run.config.training.clip_grad_norm is not None:
        values["clipped"] = window["clipped"] / window["updates"]  # share of updates
    run.journal.record("train", progress.update, values)
    run.window.zero_()
    return cross_entropy


def _knobs(run: Run) -> dict[str, float]:
    """The present value of each knob."""
    knobs = run.model.knobs
    return dict(zip(knobs, torch.stack([knob.value for knob in knobs.values()]).tolist(), strict=True))


def _of_cuts(run: Run, window: dict[str, float]) -> dict[str, float]:
    """Symbols per segment and the segmenter's figures, on training text; the same for a decoder that cuts."""
    figures = run.model.segmenter.figures
    sums = {"segment_length": (window["source_symbols"], window["segments"])} if figures else {}
    sums |= {figure.name: (window[figure.name], window[f"{figure.name} of"]) for figure in figures}
    if run.model.decoder.segmenting:
        sums["decoder_penalty"] = window["decoder_penalty"], window["sentences"]
        sums["output_segment_length"] = window["output_symbols"], window["output_segments"]
        sums["output_live"] = window["output_live"], window["output_symbols"]
    return {name: value for name, pair in sums.items() if (value := ratio(pair)) is not None}


def _validate(run: Run, reporter: Reporter, interrupt: Interrupt, started: float | None) -> bool:
    """Translate the dev set greedily, act on the score and save; False where it was interrupted.

    It counts as training that `started` then, or not at all.
    """
    progress, settings, dev, world = run.progress, run.config.training, run.dev, run.world
    run.finish_writing()  # so that a kill leaves the model at most one validation ahead of the checkpoint
    run.check()
    _refuse_drift(run)
    settle_all(run)
    evaluation, scores = None, (0.0, 0.0)
    try:
        outputs = translated(run.model, dev.sources, lambda _: interrupt.check(), world)
        if outputs is None:
            return False
        if world.leads:
            evaluation = evaluate(run.model, dev.sources, dev.references, dev.gold, outputs=outputs)
            scores = evaluation.scores.bleu, evaluation.scores.chrf
    except Exception:
        run.save()  # all updates since the last checkpoint
        raise
    verdict = run.schedule.update(*world.shared(scores))
    rate = _last_rate(run)
    progress.since_validation = 0
    if started is not None:
        progress.seconds = time.monotonic() - started
    if verdict == "halve":
        progress.learning_rate *= settings.decrease_factor
    elif verdict == "stop":
        progress.finished = f"no new best through {settings.max_halvings} halvings of the learning rate"
    if evaluation is not None:
        _record(run, reporter, evaluation, verdict, rate)
    return True


def _refuse_drift(run: Run) -> None:
    """End training where the weights of the processes are no longer the same."""
    if run.world.alone:
        return
    weights = torch.stack([p.detach().double().sum() for p in run.model.parameters()])
    if run.world.any(run.world.shared(weights.tolist()) != weights.tolist()):
        problem = "the weights of the processes have come to differ, which is an error of the program or of a"
        raise TrainingError(f"{problem} machine; the same command goes on from the last checkpoint")


def _record(run: Run, reporter: Reporter, evaluation: Evaluation, verdict: Verdict, rate: float) -> None:
    """Keep the model if it is the best, log the validation, and save the state; `rate` was the last one."""
    progress, dev, settings = run.progress, run.dev, run.config.training
    progress.collapsed, notices = watch(run.model, evaluation, progress.collapsed)
    result = summarise(progress, rate, evaluation, verdict, run.model.segmenter, notices)
    progress.best = ranked(progress.best, progress.update, result.bleu, result.chrf, settings.keep_best)
    if verdict == "best":
        run.model.save_pretrained(run.folder)
        write_card(run.folder, run.model, evaluation, asdict(result))
    rows = zip(dev.sources, evaluation.outputs, dev.references, strict=True)
    examples = [ValidationExample(*row) for row in islice(rows, settings.examples)]
    run.journal.record("validation", progress.update, log_record(result, evaluation, examples))
    run.journal.validation(replace(result, seconds=round(result.seconds, 1)).columns())
    run.save()
    reporter.validation(result, examples)
