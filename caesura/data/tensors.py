"""Tensors, and facts about them, in one safetensors file with a checksum over both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from caesura.data.files import write_beside
from caesura.errors import InputError
from caesura.visible import HALVES

KEY = "caesura"  # the one entry of the metadata: several would be written in any order


class DamagedError(InputError):
    """A file that is cut off, or not as it was written."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts, which JSON has to be able to hold, whole or not at all."""
    there = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = json.dumps({"sha256": _checksum(there, facts), **facts})
    with write_beside(path) as file:
        file.write(save(there, {KEY: metadata}))


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, unchecked; of a file from before there were checksums, its metadata."""
    with _opened(path) as file:
        facts = _facts(path, file)
    facts.pop("sha256", None)
    return facts


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts as they were saved; anything else is refused."""
    with _opened(path) as file:
        facts = _facts(path, file)
        try:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as problem:
            raise DamagedError(f"{path}: damaged ({_first_line(problem)})") from problem
        checked = KEY in (file.metadata() or {})
    checksum = facts.pop("sha256", None)
    if checked and checksum != _checksum(tensors, facts):
        raise DamagedError(f"{path}: damaged (its checksum is another)")
    return tensors, facts


def _facts(path: Path, file: Any) -> dict[str, Any]:
    metadata: dict[str, str] = file.metadata() or {}
    if KEY not in metadata:
        return dict(metadata)
    try:
        facts = json.loads(metadata[KEY])
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path}: damaged (its metadata is no JSON: {problem})") from problem
    if not isinstance(facts, dict):
        raise DamagedError(f"{path}: damaged (its metadata is no mapping)")
    return facts


def _checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    found = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        value = tensors[name]
        found.update(f"\n{name} {value.dtype} {[*value.shape]}\n".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _opened(path: Path) -> Any:
    try:
        if not HALVES.search(str(path)):
            return safe_open(path, framework="pt")
        with open(path, "rb") as file:  # safetensors takes no name that is not UTF-8
            return safe_open(f"/dev/fd/{file.fileno()}", framework="pt")
    except (SafetensorError, OSError, ValueError) as problem:
        raise DamagedError(f"{path}: damaged ({_first_line(problem)})") from problem


def _first_line(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]
