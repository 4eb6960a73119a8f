"""The benchmark of Transformers loses no result: rows are written at once, and bad ones do not end it."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import transformers
from transformers import Results, Row, planned


def test_rows_are_compared_with_earlier_ones() -> None:
    rows = planned(joeynmt=True, compiled=True)
    assert {row.system.split(",")[0] for row in rows} == {"Caesura", "torch.nn", "JoeyNMT"}
    for i, row in enumerate(rows):
        if row.system != "Caesura":
            same = replace(row, system="Caesura")
            key = [getattr(same, name) for name in ("table", "text", "batch", "times")]
            earlier = [[r.table, r.text, r.batch, r.times] for r in rows[:i] if r.system == "Caesura"]
            assert key in earlier
    assert len(planned(joeynmt=False, compiled=False)) < len(rows)


def test_what_is_known_is_written_and_nothing_begins_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "results.json"

    def timed(work: Callable[[], Any], rounds: int, warm: int) -> float:
        written = json.loads(path.read_text())["rows"] if path.exists() else []
        assert len(written) == len(results.rows)
        return float(work())

    monkeypatch.setattr(transformers, "fresh", lambda: None)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)  # which imports the compiler
    monkeypatch.setattr(transformers, "milliseconds", timed)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 2**30)
    results = Results(path, 100, {"peak": 1e12})

    def failing(text: Any, batch: int) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    ours = Row("training", transformers.TEXTS[0], "Caesura", lambda text, batch: lambda: 20.0, 320)
    rows = [
        ours,
        replace(ours, system="slower", make=lambda text, batch: lambda: 50.0),
        replace(ours, system="failing", make=failing),
        replace(ours, system="late", lasts=101),
        replace(ours, table="length", times=1),
        replace(ours, table="length", times=4, make=lambda text, batch: lambda: 120.0),
    ]
    for row in rows:
        results.measure(row, 3)
    ratios = [row.get("ratio") for row in results.rows]
    assert ratios == [1.0, 2.5, None, None, 1.0, 1.5]
    assert ["failed" in row for row in results.rows].count(True) == 1
    assert "left out" in results.rows[3]
    assert json.loads(path.read_text())["rows"] == results.rows
