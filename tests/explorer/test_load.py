"""Many clients at once, against a server in another process: no error, and memory that does not grow."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "explorer.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that measures the explorer; `explorer` alone is the name of these tests."""
    spec = importlib.util.spec_from_file_location("explorer_benchmark", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("clients", "seconds"),
    [pytest.param(10, 4, marks=pytest.mark.slow), pytest.param(50, 60, marks=pytest.mark.soak)],
)
def test_many_clients_at_once_see_no_error(benchmark: Any, clients: int, seconds: float) -> None:
    pause = clients / 100  # or a fast machine would be told that there are too many requests
    with benchmark.serving(2, benchmark.OWN) as (process, port):
        benchmark.load(process, port, clients, 1, pause)  # until every client has an answer
        seen = benchmark.load(process, port, clients, seconds, pause)
    print(f"{clients} clients: {len(seen.waited)} answers, {seen.early:.0f} MiB, then {seen.late:.0f} MiB")
    assert seen.errors == []
    assert len(seen.waited) >= clients
    assert seen.late < 1.1 * seen.early
