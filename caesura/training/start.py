"""How a training run is started or resumed."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from caesura.config import Config, Training
from caesura.data.files import parts, refuse_links, refuse_odd, stored, write_whole
from caesura.data.tensors import DamagedError
from caesura.data.words import WORDS
from caesura.errors import InputError
from caesura.evaluation.boundaries import segment_length
from caesura.evaluation.evaluate import figure_values, output_live
from caesura.evaluation.rates import aim
from caesura.inference import Translator
from caesura.kernels import pick
from caesura.kernels.cores import own_cores, use_threads
from caesura.model_folder import CONFIG, LEARNT_CUTS, SRC_VOCABULARY, TRG_VOCABULARY, WEIGHTS
from caesura.schedules import extremes, shown
from caesura.segmenters.figures import LIVE
from caesura.training.card import CARD
from caesura.training.changes import (
    refuse_changes,
    refuse_lower_bounds,
    refuse_overwriting,
    refuse_strange_checkpoint,
    with_measured,
    with_ratio,
)
from caesura.training.checkpoint import BEST, CHECKPOINTS, Progress, list_checkpoints, load_checkpoint
from caesura.training.guard import SKIPPED, Guard
from caesura.training.interrupt import Interrupt, Stop
from caesura.training.journal import METRICS, VALIDATIONS, Journal, NoJournal, read_records
from caesura.training.lock import refuse_unseen
from caesura.training.optimizer import build_adam
from caesura.training.prepare import CACHE, Prepared, packed_files, prepare, text_files
from caesura.training.run import Reporter, Run, settle_all
from caesura.training.schedule import HalveAndStop, bound_reached
from caesura.training.world import World

VOCABULARIES = (SRC_VOCABULARY, TRG_VOCABULARY, *LEARNT_CUTS)
FILES = (CONFIG, WEIGHTS, *VOCABULARIES, WORDS, CARD, METRICS, VALIDATIONS)
FOLDERS = (CHECKPOINTS, BEST, CACHE, "tensorboard", SKIPPED)  # a run's own


def open_run(
    config: Config,
    folder: Path,
    reporter: Reporter,
    interrupt: Interrupt,
    opened: ExitStack,
    world: World,
    check_cache: bool = False,
) -> tuple[Run, Prepared]:
    """Start a run in `folder`, or resume the one that is there; it is closed with `opened`.

    Process 0 reads the text and writes its numbers before the other processes of the `world` read them.
    """
    if not world.alone:
        refuse_unseen(folder, world)
    if world.leads:
        _tidy(folder)
    checkpoints = world.shared(list_checkpoints(folder / CHECKPOINTS))
    config = with_measured(config, folder)
    begun = refuse_changes(config, folder, going_on=True) if checkpoints else None
    if begun is None and world.leads:
        refuse_overwriting(config, folder)
    crowded = use_threads(config.training.threads or (_threads_so_far(folder) if checkpoints else None))
    torch.set_num_threads(world.shared(torch.get_num_threads()))  # so that all add in the same order

    def working(what: str, done: int, total: int = 0) -> None:
        if interrupt.signal is not None:  # not at the time limit: the next call would have to do it all again
            raise Stop
        reporter.working(what, done, total)

    device = _device(config, world)
    reading = partial(prepare, config, folder, bool(checkpoints) or not world.leads, working, reporter.say)
    data = world.in_turn(partial(reading, device.type, check_cache and world.leads), Stop)
    if config.testing.max_output_ratio is None:
        config = with_ratio(config, output_ratio(data.corpus.lengths, config.testing.max_output_extra))
    torch.manual_seed(config.training.seed)
    # With the run's first config, so that the same file lies beside all weights.
    vocabularies = data.src_vocabulary, data.trg_vocabulary, data.learnt_cuts
    model = Translator.build(begun or config, *vocabularies).to(device)
    if world.leads:
        _refuse_full_disk(folder, model, config.training)
    run, path = _assemble(config, folder, model, data, checkpoints, reporter, interrupt, world)
    opened.callback(run.close)  # from here on, whenever Ctrl-C may come
    if path is not None:
        reporter.say(f"going on from update {run.progress.update} ({path})")
        if world.leads:
            _mend_best(run, reporter)
    else:
        settle_all(run)
        world.in_turn(lambda: _begin(run, data, reporter, working) if world.leads else None, Stop)
    world.align([*model.parameters(), *model.buffers()])
    _announce(run, reporter)
    if crowded and device.type == "cpu":
        reporter.say(crowded)
    return run, data


def _assemble(
    config: Config,
    folder: Path,
    model: Translator,
    data: Prepared,
    checkpoints: list[Path],
    reporter: Reporter,
    interrupt: Interrupt,
    world: World,
) -> tuple[Run, Path | None]:
    """The run, and the checkpoint from which it resumes."""
    settings, path = config.training, None
    optimizer = build_adam(model, settings)
    progress = Progress(learning_rate=settings.learning_rate, text=data.digests)
    schedule = HalveAndStop(settings.patience, settings.max_halvings)
    if checkpoints:
        check = partial(refuse_strange_checkpoint, config)
        restore = partial(_restore, digests=data.digests, model=model, optimizer=optimizer, check=check)
        restored = restore(checkpoints, reporter=reporter) if world.leads else None
        path = world.shared(restored and restored[0])
        assert path is not None
        _, progress = restored or restore([path], reporter=reporter)
        schedule = HalveAndStop(**progress.schedule)
        refuse_lower_bounds(config, progress, folder)
        if not schedule.stopped and not bound_reached(settings, progress.update, progress.epoch):
            progress.finished = ""  # the bound that ended it was raised
    elif world.leads:
        write_whole(folder / CONFIG, config.dump())
    journal: Journal = NoJournal()
    if world.leads:
        journal = Journal(folder, progress.journal, settings.tensorboard, progress.update)
    say, most = reporter.say, settings.max_skipped
    run = Run(
        config=config,
        folder=folder,
        model=model,
        optimizer=optimizer,
        progress=progress,
        schedule=schedule,
        journal=journal,
        dev=data.dev,
        corpus=data.corpus,
        guard=Guard(folder, most, model, data.corpus, progress, journal, say, world.leads),
        window=torch.zeros((), dtype=torch.float64, device=model.device),
        interrupt=interrupt,
        world=world,
    )
    run.window = run.window.new_tensor(_going_on(progress.window, run.summed))
    return run, path


def _threads_so_far(folder: Path) -> int | None:
    """The number of threads with which a run began; it keeps that number, so that sums keep their order."""
    start = next((record for record in read_records(folder) if record["kind"] == "start"), {})
    threads = start.get("threads")
    return min(threads, own_cores()) if isinstance(threads, int) and threads > 0 else None


def _going_on(window: dict[str, float], names: Sequence[str]) -> list[float]:
    """The sums of a checkpoint; if an older version summed a figure differently, it starts at 0."""
    return [
        window.get(name, 0.0) if f"{name} of" not in names or f"{name} of" in window else 0.0
        for name in names
    ]


def _restore(
    checkpoints: list[Path],
    digests: list[str],
    model: Translator,
    optimizer: torch.optim.Optimizer,
    check: Callable[[Path, Any], None],
    reporter: Reporter,
) -> tuple[Path, Progress]:
    """Load the newest undamaged checkpoint into the model and the optimizer."""
    for path in reversed(checkpoints):
        try:
            progress = load_checkpoint(path, model, optimizer, check)
        except DamagedError as problem:
            reporter.say(f"warning: {problem}; the checkpoint before it is tried")
            continue
        if progress.text != digests:
            reason = "the text or a vocabulary has changed since this run began; choose another --out"
            raise InputError(f"{path.parents[1]}: {reason}")
        return path, progress
    folder = checkpoints[0].parent
    raise InputError(f"{folder}: no checkpoint is whole; choose another --out to begin anew")


def _mend_best(run: Run, reporter: Reporter) -> None:
    """Write a damaged best model again from a checkpoint of its update, or warn until the next best."""
    try:
        run.check_best()
    except DamagedError as problem:
        if run.schedule.improved and run.progress.since_validation == 0:
            run.model.save_pretrained(run.folder)
            reporter.say(f"warning: {problem}; written anew from the checkpoint")
        elif not run.progress.finished:
            reporter.say(f"warning: {problem}; there is no best model until the next one")


def _tidy(folder: Path) -> None:
    """Refuse paths that cannot be written to or lead elsewhere; remove leftovers of killed runs."""
    within = [path for name in FOLDERS for path in (folder / name).glob("*")]
    refuse_links([*(folder / name for name in (*FILES, *FOLDERS)), *within], folder)
    refuse_odd([folder / name for name in FILES], [folder / name for name in FOLDERS])
    refuse_odd([path for path in within if path.parent.name != "tensorboard"])
    for path in (folder / name for name in (*FOLDERS, METRICS, VALIDATIONS)):
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError(f"{path}: cannot be written to (Permission denied); choose another --out")
    written = [(folder, name) for name in FILES] + [(folder / name, "*") for name in FOLDERS]
    for place, name in written:
        for leftover in [*parts(place, name)]:
            leftover.unlink()


def _refuse_full_disk(folder: Path, model: Translator, settings: Training) -> None:
    """Refuse a disk too full for models, best weights and checkpoints (weights and two moments each)."""
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    files = [path for name in (CHECKPOINTS, BEST) for path in list_checkpoints(folder / name)]
    most = 3 * (settings.keep_last + 1) + 2 + (settings.keep_best and settings.keep_best + 1)
    needed = weights * most - sum(path.stat().st_size for path in files)
    if (free := shutil.disk_usage(folder).free) < needed:
        keys = "training.keep_last" + (" and training.keep_best" if settings.keep_best else "")
        raise InputError(
            f"{folder}: {free / 1e6:.1f} MB are free there, and checkpoints and models want "
            f"{needed / 1e6:.1f}; make room, lower {keys} or choose another --out"
        )


def _begin(run: Run, data: Prepared, reporter: Reporter, working: Callable[[str, int], None]) -> None:
    """Log the facts before the first update: sizes, and the segments that training starts from."""

    def measuring(what: str) -> Callable[[int], None]:
        done = 0

        def measured(lines: int) -> None:
            nonlocal done
            done += lines
            working(f"measuring the first {what}", done)

        return measured

    cuts = [output.segmentation for output in run.model.process(run.dev.sources, None, measuring("segments"))]
    segments, figures = segment_length(cut.covered for cut in cuts), figure_values(cuts)
    target = run.model.target_length
    facts = {
        "segment_length": segments.mean,
        **({} if target is None else {"target_length": target}),
        "longest_segment": segments.longest,
        **figures,
        "parameters": run.model.parameter_count(),
        "src_vocabulary": len(data.src_vocabulary),
        "trg_vocabulary": len(data.trg_vocabulary),
        "training": str(data.corpus.report),
        "symbols": data.corpus.lengths.mean(0).tolist(),  # of a source, of a target
        "characters": data.corpus.characters.mean(0).tolist(),
        "device": str(run.model.device),
        "threads": torch.get_num_threads(),
        "kernels": list(pick(run.model.device)),
    }
    longest = f"(longest {segments.longest})"
    messages = [f"segments start at {segments.mean:.2f} characters{aim(target)} {longest}"]
    if remark := run.model.segmenter.remark(figures.get(LIVE.name), segments.mean, first=True):
        messages.append(remark)
    if run.model.decoder.segmenting:
        # There are no translations yet; how a fresh decoder cuts depends little on the text.
        forced = run.model.segment_targets(run.dev.sources, run.dev.references, measuring("output segments"))
        written = segment_length(cut.covered for cut in forced)
        facts |= {"output_segment_length": written.mean, "longest_output_segment": written.longest}
        facts |= {"output_live": output_live(forced)}
        messages.append(
            f"output segments start at {written.mean:.2f} (longest {written.longest}), on the references"
        )
    run.journal.record("start", 0, facts)
    run.save()
    run.finish_writing()
    for line in (str(data.corpus.report), *data.notices, *messages):
        reporter.say(line)


def _announce(run: Run, reporter: Reporter) -> None:
    device, testing = run.model.device, run.config.testing
    processes = "" if run.world.alone else f", {run.world.size} processes"
    reporter.say(f"{run.config.name}: {run.model.parameter_count():,} parameters on {device}{processes}")
    reporter.say("kernels: {} ({})".format(*pick(device)))
    if device.type == "cpu" and run.config.training.precision == "bfloat16":
        reporter.say("training.precision is bfloat16, which is slow on a CPU: float32 is faster here")
    for part in ("segmenter", "decoder"):
        if extremes(tau := getattr(run.config.model, part).penalty_weight)[0] < 0:
            reporter.say(f"model.{part}.tau is {shown(tau)}: below 0 the penalty rewards longer segments")
    if (tokenizer := testing.bleu_tokenize) not in ("13a", "none"):
        language = run.config.data.trg.lang
        reporter.say(f"BLEU of {language} uses sacrebleu's tokenizer {tokenizer} (testing.bleu_tokenize)")
    if run.dev.too_long:
        limit = f"over {testing.max_input} characters (testing.max_input)"
        reporter.say(f"dev lines {limit} count as empty: {run.dev.too_long}")
    for instead in packed_files(run.config):
        reporter.say(instead)
    files = [stored(path) for path in text_files(run.config, "test").values()]
    if lost := [str(path) for path in files if not path.is_file()]:
        options = " and ".join(("--src", "--trg")[: len(files)])
        reporter.say(f"data.test: no file {' nor '.join(lost)}; evaluate will need {options}")


def output_ratio(lengths: NDArray[np.integer], extra: int) -> float:
    """The least ratio, 1 or more, for which ratio * source + extra symbols are enough for 99.9% of targets.

    It is rounded up to hundredths.
    """
    source, target = lengths[:, 0] + 1, lengths[:, 1] + 1  # </s> counts
    exact = float(np.quantile((target - extra) / source, 0.999))
    return max(1.0, math.ceil(100 * exact) / 100)


def _device(config: Config, world: World) -> torch.device:
    requested = config.training.device
    has_gpu = requested != "cpu" and torch.cuda.is_available()
    if world.any(has_gpu) and world.any(not has_gpu):
        many = "some processes have no GPU; start as many on each machine as it has GPUs"
        raise config.error("training.device", f"{many}, or train on cpu")
    if requested == "cuda" and not has_gpu:
        raise config.error("training.device", "no CUDA device here; auto or cpu would work")
    return torch.device("cuda" if has_gpu else "cpu")
