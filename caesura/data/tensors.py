"""Tensors, and facts about them, in one safetensors file with a checksum over both.

The header, which a stranger may have written, is read here and not by safetensors: its claims
are compared with the file and with what the caller expects before anything is mapped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from caesura.data.files import write_whole
from caesura.errors import InputError
from caesura.visible import HALVES, quoted

KEY = "caesura"  # the one entry of the metadata: several would be written in any order
MAX_HEADER = 1 << 22  # bytes: names, types and shapes of over 30,000 tensors
MAX_AXES = 16

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class DamagedError(InputError):
    """A file that is cut off or changed."""


class Kind(NamedTuple):
    """The type and shape that a header claims for a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]


Kinds = Mapping[str, Kind]


@dataclass(frozen=True)
class Header:
    """The claims of a file: its tensors by name, the facts, and the bytes that the tensors take."""

    tensors: Kinds
    facts: dict[str, Any]  # of a file from before there were checksums, its metadata
    checked: bool  # there is a checksum
    size: int


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts, which JSON has to be able to hold, whole or not at all."""
    contiguous = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = json.dumps({"sha256": _checksum(contiguous, facts), **facts})
    write_whole(path, save(contiguous, {KEY: metadata}))


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, unchecked; of a file from before there were checksums, its metadata."""
    facts = read_header(path).facts
    facts.pop("sha256", None)
    return facts


def read_header(path: Path) -> Header:
    """The header of a file, checked against the size of the file; only the header is read."""
    try:
        with path.open("rb") as file:
            room = file.seek(0, 2) - 8
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= room:
                raise DamagedError(f"{path}: damaged (cut off, or not a safetensors file)")
            if length > MAX_HEADER:
                raise DamagedError(f"{path}: damaged (a header of more than {MAX_HEADER >> 20} MiB)")
            tree = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
        metadata = tree.pop("__metadata__", None) or {}
        tensors = _kinds(tree, room - length)
        facts = json.loads(metadata[KEY]) if KEY in metadata else dict(metadata)
        if not isinstance(facts, dict):
            raise ValueError("its metadata is not a mapping")
    except OSError as problem:
        raise DamagedError(f"{path}: damaged ({problem.strerror or problem})") from problem
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise DamagedError(f"{path}: damaged (its header: {problem})") from problem
    return Header(tensors, facts, KEY in metadata, room - length)


def load_tensors(
    path: Path, expect: Callable[[Kinds], None] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts from a file; anything that was not saved like this is refused.

    `expect` refuses unexpected tensors before any memory is taken for them.
    """
    header = read_header(path)
    if expect is not None:
        expect(header.tensors)
    try:
        with _opened(path) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = header.facts.pop("sha256", None)
        if header.checked and checksum != _checksum(tensors, header.facts):
            raise DamagedError(f"{path}: damaged (its checksum differs)")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as problem:
        if isinstance(problem, MemoryError) or "memory" in str(problem):
            needed = f"{header.size / 2**30:.1f} GiB, more memory than there is"
            raise InputError(f"{path}: takes {needed}") from problem
        raise DamagedError(f"{path}: damaged ({_first_line(problem)})") from problem
    return tensors, header.facts


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(entries := dict(pairs)) < len(pairs):  # two readers might choose different ones
        raise ValueError("a name occurs twice")
    return entries


def _kinds(tree: dict[str, Any], size: int) -> dict[str, Kind]:
    """The tensors of a header; together, without gaps, they must fill `size` bytes."""
    kinds, spans = {}, []
    for name, entry in tree.items():
        dtype, shape, (first, last) = _TYPES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
        numbers = (*shape, first, last)
        if dtype is None or {*map(type, numbers)} != {int} or not 0 <= min(numbers) <= max(numbers) < 2**63:
            raise ValueError(f"{quoted(name)} is not a tensor of a known type")
        if len(shape) > MAX_AXES or last - first != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{quoted(name)} has a size that does not fit its shape")
        kinds[name] = Kind(dtype, tuple(shape))
        spans.append((first, last))
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise ValueError("tensors overlap or leave gaps")
        end = last
    if end != size:
        raise ValueError(f"it promises {end:,} bytes of tensors, but there are {size:,}")
    return kinds


def _checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(facts).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"\n{name} {value.dtype} {[*value.shape]}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _opened(path: Path) -> Any:
    if not HALVES.search(str(path)):
        return safe_open(path, framework="pt")
    with open(path, "rb") as file:  # safetensors takes no name that is not UTF-8
        return safe_open(f"/dev/fd/{file.fileno()}", framework="pt")


def _first_line(problem: BaseException) -> str:
    return str(problem).partition("\n")[0]
