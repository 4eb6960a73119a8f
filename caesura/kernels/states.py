"""States of decoders: dataclasses whose fields name their owner, so that reordering is written once.

A field belongs to a hypothesis [B, K, ...] unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor

# Metadata: all hypotheses of a sentence share the field [B, ...]; no reordering changes the field.
SENTENCE, EVERYONE = MappingProxyType({"owner": "sentence"}), MappingProxyType({"owner": "everyone"})
ROOM = 64  # symbols, by default

State = TypeVar("State")


def reordered(state: State, sentences: Tensor | None, hypotheses: Tensor) -> State:
    """Keep `sentences` [B'] (None: all) and of each its `hypotheses` [B', K'], which may repeat.

    A part with its own `reorder` is moved by it; a tuple, part by part.
    """
    rows = torch.arange(len(hypotheses), device=hypotheses.device) if sentences is None else sentences

    def moved(part: Any, owner: str) -> Any:
        if part is None or owner == "everyone":
            return part
        if hasattr(part, "reorder"):
            return part.reorder(sentences, hypotheses)
        if owner == "sentence" and sentences is None:
            return part
        if hasattr(part, "rows"):
            return part.rows(rows)
        if isinstance(part, tuple):
            return tuple(moved(one, owner) for one in part)
        return part[rows] if owner == "sentence" else part[rows[:, None], hypotheses]

    return _changed(state, moved)


def grown(state: State, room: int) -> State:
    """The state with room for so many symbols in all; only parts with their own `grow` have a limit."""
    return _changed(state, lambda part, _: part.grow(room) if hasattr(part, "grow") else part)


def _changed(state: State, change: Callable[[Any, str], Any]) -> State:
    """Apply `change` to every part and its owner."""
    parts = {
        f.name: change(getattr(state, f.name), f.metadata.get("owner", "hypothesis"))
        for f in fields(state)  # type: ignore[arg-type]  # a state is a dataclass
    }
    return replace(state, **parts)  # type: ignore[type-var]
