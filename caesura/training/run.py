"""A training run: its state, what is saved, and what it reports."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from caesura.config import Config
from caesura.data.corpus import Corpus
from caesura.data.sentences import Sentences
from caesura.data.tensors import load_tensors
from caesura.inference import Translator
from caesura.model_folder import WEIGHTS, expect_weights
from caesura.training.checkpoint import (
    BEST,
    CHECKPOINTS,
    Progress,
    Snapshot,
    drop_worse,
    save_best,
    save_checkpoint,
    snapshot,
)
from caesura.training.guard import Guard, not_finite
from caesura.training.interrupt import Interrupt
from caesura.training.journal import Journal
from caesura.training.schedule import HalveAndStop
from caesura.training.step import SUMS
from caesura.training.threshold import settle
from caesura.training.validation import Validation, ValidationExample
from caesura.training.world import World


class Reporter(Protocol):
    """Shows how training goes; the command line implements it."""

    def say(self, text: str) -> None:
        """Something happened once."""

    def working(self, what: str, done: int, total: int = 0) -> None:
        """A long task before training has come so far; `total` is 0, or about how much there is to do."""

    def update(self, progress: Progress, loss: float | None) -> None:
        """An update was made; the loss is there now and then."""

    def validation(self, validation: Validation, examples: Sequence[ValidationExample]) -> None:
        """A validation is done: its figures, and some sentences."""


class Silent:
    """A reporter that shows nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def working(self, what: str, done: int, total: int = 0) -> None:
        """Nothing."""

    def update(self, progress: Progress, loss: float | None) -> None:
        """Nothing."""

    def validation(self, validation: Validation, examples: Sequence[ValidationExample]) -> None:
        """Nothing."""


@dataclass
class Run:
    """The state of a training run."""

    config: Config
    folder: Path
    model: Translator
    optimizer: torch.optim.Optimizer
    progress: Progress
    schedule: HalveAndStop
    journal: Journal
    dev: Sentences
    corpus: Corpus
    guard: Guard
    window: Tensor  # the sums of `summed` since the last line of the log; on the device until read or saved
    interrupt: Interrupt
    world: World
    saved: float = field(default_factory=time.monotonic)  # when
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoint"))
    _writing: Future[None] | None = None

    @property
    def summed(self) -> tuple[str, ...]:
        """The names of the sums between two lines of the log."""
        return *SUMS, *self.model.counted, "clipped", "updates"

    def save(self) -> None:
        """Write a checkpoint that matches the present log exactly, while training goes on."""
        if not self.world.leads:
            return
        self.finish_writing()
        self.check()
        self.progress.window = dict(zip(self.summed, self.window.tolist(), strict=True))
        self.progress.schedule = asdict(self.schedule)
        self.progress.journal = self.journal.sizes()
        state = snapshot(self.model, self.optimizer, self.progress, self.model.config.model_dump(mode="json"))
        with self.interrupt.shielded():  # else nobody would wait for this writing
            self._writing = self._writer.submit(self._write, state)
        self.saved = time.monotonic()

    def _write(self, state: Snapshot) -> None:
        """Write weights before the checkpoint that lists them; remove them after one that does not."""
        save_best(self.folder / BEST, state)
        save_checkpoint(self.folder / CHECKPOINTS, state, self.config.training.keep_last)
        drop_worse(self.folder / BEST, state)

    def finish_writing(self, wait: bool = True) -> None:
        """Raise the error of the last checkpoint's writing, if any; `wait` until it is on disk."""
        if self._writing is not None and (wait or self._writing.done()):
            with self.interrupt.shielded():
                self._writing.result()
                self._writing = None

    def close(self) -> None:
        """Let the last checkpoint get to the disk, and close the log.

        Not even Ctrl-C ends it earlier: a thread that writes must not outlive the lock of its folder.
        """
        with self.interrupt.shielded():
            self._writer.shutdown()
            self.journal.close()
            self.finish_writing()

    def due(self) -> bool:
        """Whether it is time for a checkpoint again."""
        minutes = self.config.training.checkpoint_minutes
        return minutes is not None and time.monotonic() - self.saved >= 60 * minutes

    def check(self) -> None:
        """Refuse to go on from a state in which a number is not finite, and so to save or validate it."""
        self.guard.look()
        # The squares: where they overflow, no loss can be computed either.
        finite = [p.square().sum().isfinite() for p in (self.window, *self.model.parameters())]
        if not torch.stack(finite).all():
            raise not_finite(self.progress.update, self.folder)

    def check_best(self) -> None:
        """Refuse a best model that is gone or damaged."""
        if self.schedule.best is not None:
            path = self.folder / WEIGHTS
            load_tensors(path, lambda kinds: expect_weights(self.model, kinds, path))


def settle_all(run: Run) -> None:
    """Set the threshold of the model's cuts outside training, in all processes."""
    if run.world.leads:
        settle(run.model, run.corpus)
    run.world.align(run.model.buffers())
