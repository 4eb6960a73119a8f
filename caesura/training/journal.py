"""The log of a run: metrics.jsonl, validations.tsv, and TensorBoard if it is on."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from caesura.data.files import JSON_VALUES, check_values, read_bounded
from caesura.data.held import check_held
from caesura.errors import InputError, TrainingError, missing_extra

METRICS, VALIDATIONS = "metrics.jsonl", "validations.tsv"
MAX_BYTES = 1 << 28  # of a log that is read: over half a million lines
MAX_LINES = 1_000_000
# Names of figures in logs and results of earlier versions, and their names today.
EARLIER = {
    "gradient_share": "live",
    "inside": "live",
    "output_gradient_share": "output_live",
    "output_inside": "output_live",
}


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names that they have today."""
    return {EARLIER.get(name, name): value for name, value in values.items()}


class Journal:
    """Appends records to the log files of a run folder."""

    def __init__(
        self, folder: Path, sizes: dict[str, int], tensorboard: bool = False, update: int = 0
    ) -> None:
        """Open the files, `sizes` bytes long, as after `update`: a killed run may have written more."""
        if tensorboard:  # before there are files to close
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as problem:
                raise missing_extra("training.tensorboard", "tensorboard") from problem
        self._folder, self._files = folder, {}
        for name in (METRICS, VALIDATIONS):
            path = folder / name
            with path.open("ab") as file:
                os.ftruncate(file.fileno(), min(sizes.get(name, 0), file.tell()))
            self._files[name] = path.open("a", encoding="utf-8")
        with (folder / VALIDATIONS).open(encoding="utf-8") as file:
            line = file.readline(1 << 20)
        self._header = line.rstrip("\n").split("\t") if line else None
        self._board: Any = None
        if tensorboard:
            self._board = SummaryWriter(folder / "tensorboard", purge_step=update + 1)

    def record(self, kind: str, update: int, values: dict[str, Any]) -> None:
        """One JSON line; numbers go to TensorBoard as well."""
        self._write(METRICS, json.dumps({"kind": kind, "update": update, **values}, ensure_ascii=False))
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._board.add_scalar(f"{kind}/{name}", value, update)

    def validation(self, columns: dict[str, Any]) -> None:
        """One line of validations.tsv, under a header; columns that an existing header lacks are left out."""
        if self._header is None:
            self._header = [*columns]
            self._write(VALIDATIONS, "\t".join(columns))
        names = [EARLIER.get(name, name) for name in self._header]
        self._write(VALIDATIONS, "\t".join(_cell(columns.get(name)) for name in names))

    def sizes(self) -> dict[str, int]:
        """Bytes written so far, on disk."""
        for name, file in self._files.items():
            self._check(name)
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def close(self) -> None:
        """Close the files; lines that a full disk does not take are lost, and are not part of any checkpoint.

        TensorBoard opens its file again to write the rest, even if the folder is gone.
        """
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        if self._board is not None:
            with suppress(TrainingError):
                check_held(self._folder)
                self._board.close()

    def _write(self, name: str, line: str) -> None:
        self._check(name)
        self._files[name].write(line + "\n")
        self._files[name].flush()

    def _check(self, name: str) -> None:
        """End training where the log would not be written to the folder."""
        path = self._folder / name
        check_held(path)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._files[name].fileno()), os.stat(path)):
                return
        raise TrainingError(f"{path}: was removed or replaced; the same command goes on from the checkpoint")


class NoJournal(Journal):
    """The log of a process that writes none."""

    def __init__(self) -> None:
        pass

    def record(self, kind: str, update: int, values: dict[str, Any]) -> None:
        """Nothing."""

    def validation(self, columns: dict[str, Any]) -> None:
        """Nothing."""

    def sizes(self) -> dict[str, int]:
        """Empty: there are no files."""
        return {}

    def close(self) -> None:
        """Nothing to close."""


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The lines of a model folder's metrics.jsonl that are whole, by today's names; none without the file."""
    path = folder / METRICS
    if not path.is_file():
        return []
    records, content = [], read_bounded(path, MAX_BYTES)
    try:
        check_values(content, JSON_VALUES)
        if content.count(b"\n") > MAX_LINES:
            raise ValueError(f"more than {MAX_LINES:,} lines")
    except ValueError as problem:
        raise InputError(f"{path}: not the log of a training: {problem}") from problem
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:  # the last line of a run in progress, or one overwritten by a resumed run
            continue
        except RecursionError as problem:
            raise InputError(f"{path}: not the log of a training: {problem}") from problem
        if isinstance(record, dict) and "kind" in record:
            records.append(renamed(record))
    return records


def training_seconds(folder: Path) -> float | None:
    """Seconds of training to the best validation, from the model folder's own log."""
    try:
        text = read_bounded(folder / VALIDATIONS, MAX_BYTES).decode("utf-8")
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter="\t")
        best = [row["seconds"] for row in rows if row["verdict"] == "best"]
        return float(best[-1])
    except (InputError, KeyError, IndexError, TypeError, ValueError, csv.Error):
        return None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
