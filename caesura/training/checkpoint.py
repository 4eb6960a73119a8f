"""The state of a training run as one safetensors file: weights, Adam's moments, random state, counters.

The weights of the best validations are files of their own, for `caesura average`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from caesura.data.held import check_held, make_folder
from caesura.data.tensors import DamagedError, Kind, Kinds, load_tensors, read_facts, save_tensors
from caesura.errors import InputError
from caesura.model_folder import expect_weights
from caesura.visible import quoted

FORMAT = 2
READABLE = (1, 2)  # format 1 has no checksum
RANDOM_STATE = 1 << 16  # numbers; PyTorch's have 5,056 bytes on a CPU and 16 on a GPU
CHECKPOINTS, BEST = "checkpoints", "best"  # folders in a run's folder
MODEL = "model."  # names of weights begin with it in a checkpoint


@dataclass
class Progress:
    """Where a run stands: everything but the tensors. A resumed run equals an uninterrupted one."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # next batch of the epoch
    sentences: int = 0  # seen so far
    since_validation: int = 0
    skipped: int = 0  # updates in a row that were not finite
    seconds: float = 0.0  # of training, validations included
    learning_rate: float = 0.0
    schedule: dict[str, Any] = field(default_factory=dict)
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of the log
    journal: dict[str, int] = field(default_factory=dict)  # bytes of each log file that belong to this state
    text: list[str] = field(default_factory=list)  # digests of all text and both vocabularies
    collapsed: dict[str, str] = field(default_factory=dict)  # how segments have, at the last validation
    finished: str = ""  # why training ended, once it has
    best: list[dict[str, float]] = field(default_factory=list)  # validations whose weights are kept


@dataclass(frozen=True)
class Snapshot:
    """The content of a checkpoint, copied at one moment: training does not change it later."""

    progress: dict[str, Any]
    tensors: dict[str, Tensor]  # in the host's memory
    config: dict[str, Any] | None = None  # the config that the run was begun with, as JSON


def snapshot(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    config: dict[str, Any] | None = None,
) -> Snapshot:
    """Copy the state of a run."""
    tensors = {f"{MODEL}{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
    copies = {name: value.detach().to("cpu", copy=True) for name, value in tensors.items()}
    copies["random.cpu"] = torch.get_rng_state()
    if any(value.is_cuda for value in tensors.values()):
        copies["random.cuda"] = torch.cuda.get_rng_state()
    return Snapshot(asdict(progress), copies, config)


def save_checkpoint(folder: Path, state: Snapshot, keep: int) -> Path:
    """Write a checkpoint beside, rename it into place, and remove all but the newest `keep`."""
    make_folder(folder)
    path = _of_update(folder, state.progress["update"])
    save_tensors(path, state.tensors, {"format": FORMAT, "progress": state.progress, "config": state.config})
    # A later one is there only if it was damaged, and this run went on from one before.
    kept = [earlier for earlier in list_checkpoints(folder) if earlier <= path][-keep:]
    for other in list_checkpoints(folder):
        if other not in kept:
            check_held(other)
            other.unlink()
    return path


def ranked(
    best: list[dict[str, float]], update: int, bleu: float, chrf: float, keep: int
) -> list[dict[str, float]]:
    """The best `keep` validations, a new one included, best first; of equal ones, the later is better."""
    rows = [*best, {"update": update, "bleu": bleu, "chrf": chrf}]
    return sorted(rows, key=lambda row: (row["bleu"], row["chrf"], row["update"]), reverse=True)[:keep]


def save_best(folder: Path, state: Snapshot) -> None:
    """If a state's validation is among the best, write its weights, for averaging."""
    update = state.progress["update"]
    for row in state.progress["best"]:
        if row["update"] == update:
            weights = {n.removeprefix(MODEL): v for n, v in state.tensors.items() if n.startswith(MODEL)}
            make_folder(folder)
            save_tensors(
                _of_update(folder, update), weights, {"format": FORMAT, **row, "config": state.config}
            )


def drop_worse(folder: Path, state: Snapshot) -> None:
    """Remove the weights of validations that are no longer among the best."""
    kept = [_of_update(folder, row["update"]) for row in state.progress["best"]]
    for path in list_checkpoints(folder):
        if path not in kept:
            check_held(path)
            path.unlink()


def _of_update(folder: Path, update: float) -> Path:
    return folder / f"{int(update):09d}.safetensors"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, or the weights of its best validations, oldest first."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def read_progress(path: Path) -> Progress:
    """The counters of a checkpoint, without its tensors."""
    return _progress(path, read_facts(path))


def newest_progress(folder: Path) -> Progress | None:
    """The counters of the newest checkpoint that can be read."""
    for path in reversed(list_checkpoints(folder)):
        with suppress(InputError):
            return read_progress(path)
    return None


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    check: Callable[[Path, Any], None] = lambda path, config: None,
) -> Progress:
    """Put the tensors of a checkpoint back in place; returns its counters.

    `check` may refuse it for its config, which is None in checkpoints of earlier versions.
    """
    parts, progress = _read(path, model, optimizer, check)
    try:
        _restore(parts, model, optimizer)
    except (KeyError, ValueError, RuntimeError, TypeError) as problem:
        raise _damaged(path, problem) from problem
    return progress


def load_weights(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    check: Callable[[Path, Any], None] = lambda path, config: None,
) -> tuple[dict[str, Tensor], Progress]:
    """The weights and counters of a checkpoint; the weights have to fit the model."""
    parts, progress = _read(path, model, optimizer, check)
    weights = parts["model"]
    expect_weights(
        model, {name: Kind(value.dtype, tuple(value.shape)) for name, value in weights.items()}, path
    )
    return weights, progress


def _read(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, check: Callable[[Path, Any], None]
) -> tuple[dict[str, dict[str, Tensor]], Progress]:
    """The tensors of a checkpoint by part (model, optimizer, random), and its counters."""

    def expect(kinds: Kinds) -> None:
        try:
            _expect(path, kinds, model, optimizer)
        except InputError:
            check(path, read_facts(path).get("config"))  # another config may be the reason
            raise

    tensors, facts = load_tensors(path, expect)
    progress = _progress(path, facts)
    check(path, facts.get("config"))
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "random": {}}
    try:
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
    except KeyError as problem:
        raise _damaged(path, problem) from problem
    return parts, progress


def _damaged(path: Path, problem: Exception) -> DamagedError:
    return DamagedError(f"{path}: damaged ({str(problem).partition(chr(10))[0]})")


def _progress(path: Path, facts: dict[str, Any]) -> Progress:
    if str(facts.get("format")) not in map(str, READABLE):
        reads = " and ".join(map(str, READABLE))
        raise InputError(f"{path}: checkpoint format {facts.get('format')}; this version reads {reads}")
    try:
        counters = facts["progress"]
        return Progress(**(json.loads(counters) if isinstance(counters, str) else counters))
    except (KeyError, ValueError, TypeError) as problem:
        raise DamagedError(f"{path}: damaged (no counters: {problem})") from problem


def _expect(path: Path, kinds: Kinds, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Refuse tensors that no checkpoint of this run holds, and large random states."""
    shapes = {f"{MODEL}{name}": tuple(value.shape) for name, value in model.state_dict().items()}
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    moments = {f"optimizer.{index}": tuple(weight.shape) for index, weight in enumerate(weights)}
    for name, kind in kinds.items():
        if name in shapes:
            fits = kind.shape == shapes[name]
        elif name.startswith("random."):
            fits = math.prod(kind.shape) <= RANDOM_STATE
        else:
            fits = kind.shape in ((), moments.get(name.rpartition(".")[0]))
        if not fits:
            raise DamagedError(
                f"{path}: damaged ({quoted(name)} does not belong to this run: {[*kind.shape]})"
            )


def _restore(parts: dict[str, dict[str, Tensor]], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.load_state_dict(parts["model"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["optimizer"].items():
        index, _, rest = name.partition(".")
        moments.setdefault(int(index), {})[rest] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(parts["random"]["cpu"])
    if "cuda" in parts["random"] and any(value.is_cuda for value in model.state_dict().values()):
        torch.cuda.set_rng_state(parts["random"]["cuda"])
