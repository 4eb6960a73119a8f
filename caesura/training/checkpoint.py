"""The state of a training run as one safetensors file: weights, Adam's moments, random state, counters."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from caesura.data.files import write_beside
from caesura.errors import InputError

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands: everything but the tensors. A resumed run equals an uninterrupted one."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # next batch of the epoch
    sentences: int = 0  # seen so far
    since_validation: int = 0
    seconds: float = 0.0  # of training, validations included
    learning_rate: float = 0.0
    schedule: dict[str, Any] = field(default_factory=dict)
    window: dict[str, float] = field(default_factory=dict)  # sums since the last line of the log
    journal: dict[str, int] = field(default_factory=dict)  # bytes of each log file that belong to this state
    text: list[str] = field(default_factory=list)  # digests of all text and both vocabularies
    finished: str = ""  # why training ended, once it has


def save_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, keep: int
) -> Path:
    """Write a checkpoint beside, rename it into place, and remove all but the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    metadata = {"format": str(FORMAT), "progress": json.dumps(asdict(progress))}
    path = folder / f"{progress.update:09d}.safetensors"
    with write_beside(path) as file:
        file.write(save({name: value.detach().contiguous() for name, value in tensors.items()}, metadata))
    for old in list_checkpoints(folder)[:-keep]:
        old.unlink()
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(folder.glob("[0-9]*.safetensors"))


def read_progress(path: Path) -> Progress:
    """The counters of a checkpoint, without its tensors."""
    with _opened(path) as file:
        metadata = file.metadata() or {}
    if metadata.get("format") != str(FORMAT):
        raise InputError(f"{path}: checkpoint format {metadata.get('format')}; this version reads {FORMAT}")
    try:
        return Progress(**json.loads(metadata["progress"]))
    except (KeyError, ValueError, TypeError) as problem:
        raise _damaged(path, f"no counters: {problem}") from problem


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put the tensors of a checkpoint where they were."""
    with _opened(path) as file:
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "random": {}}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    try:
        _restore(parts, model, optimizer)
    except (KeyError, ValueError, RuntimeError) as problem:
        raise _damaged(path, str(problem).split("\n")[0]) from problem


def _restore(parts: dict[str, dict[str, Tensor]], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.load_state_dict(parts["model"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in parts["optimizer"].items():
        index, _, rest = name.partition(".")
        moments.setdefault(int(index), {})[rest] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(parts["random"]["cpu"])
    if torch.cuda.is_available() and "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"])


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as problem:
        raise _damaged(path, problem) from problem


def _damaged(path: Path, problem: object) -> InputError:
    return InputError(f"{path}: damaged checkpoint ({problem}); remove it to go on from the one before")
