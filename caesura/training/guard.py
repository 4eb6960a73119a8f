"""Updates whose loss or gradient is not finite: skipped, and their batches kept; too many end training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caesura.data.corpus import Corpus
from caesura.data.files import write_whole
from caesura.data.held import make_folder
from caesura.errors import TrainingError
from caesura.inference import Translator
from caesura.training.checkpoint import Progress
from caesura.training.journal import Journal

SKIPPED = "skipped"


class Seen(NamedTuple):
    """An update that was made or skipped."""

    update: int
    epoch: int
    batch: int
    rows: NDArray[np.int64]  # sentences of the corpus
    wrong: Tensor  # bool [], on the device


@dataclass
class Guard:
    """Remembers the updates since it last looked, so that the host need not wait for the device at each."""

    folder: Path
    most: int  # in a row
    model: Translator
    corpus: Corpus
    progress: Progress
    journal: Journal
    say: Callable[[str], None]
    keeps: bool = True  # whether this process keeps batches: one of several does
    seen: list[Seen] = field(default_factory=list)

    def note(self, rows: NDArray[np.int64], wrong: Tensor) -> None:
        """An update was made, or skipped where it went `wrong`; on a CPU it is looked at at once."""
        progress = self.progress
        self.seen.append(Seen(progress.update, progress.epoch, progress.batch, rows, wrong))
        if wrong.device.type == "cpu":
            self.look()

    def look(self) -> None:
        """Name and keep the batches of skipped updates; end training after too many in a row."""
        if not self.seen:
            return
        wrong = torch.stack([seen.wrong for seen in self.seen]).tolist()
        seen, self.seen = self.seen, []
        for one, skipped in zip(seen, wrong, strict=True):
            self.progress.skipped = self.progress.skipped + 1 if skipped else 0
            if skipped and self.keeps:
                self._keep(one)
            if self.progress.skipped >= self.most:
                raise not_finite(one.update, self.folder, f"{self.most} times in a row")

    def _keep(self, one: Seen) -> None:
        path = self.folder / SKIPPED / f"{one.update:09d}.json"
        pairs = [self.corpus[int(row)] for row in one.rows]
        batch = {
            "update": one.update,
            "epoch": one.epoch,
            "batch": one.batch,
            "sentences": one.rows.tolist(),
            "source": [self.model.src_vocabulary.decode(source) for source, _ in pairs],
            "target": [self.model.trg_vocabulary.decode(target) for _, target in pairs],
        }
        make_folder(path.parent)
        write_whole(path, json.dumps(batch, ensure_ascii=False, indent=1))
        self.journal.record(SKIPPED, one.update, {"epoch": one.epoch, "batch": one.batch})
        self.say(f"update {one.update} skipped: its loss or a gradient is not finite; its batch is in {path}")


def not_finite(update: int, folder: Path, how: str = "") -> TrainingError:
    """Why training cannot go on."""
    return TrainingError(
        f"the loss is not finite around update {update}{', ' if how else ''}{how}; the state before is in "
        f"{folder}/checkpoints; try a smaller training.learning_rate or training.clip_grad_norm"
    )
