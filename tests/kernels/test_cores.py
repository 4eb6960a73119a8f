"""How many CPU threads are used: as asked, or as many as cores are free."""

import os

import pytest
import torch

from caesura.kernels import cores
from caesura.kernels.cores import free_cores, use_threads


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Eight cores, all of them used by PyTorch, which is not told how many to use; the numbers it gets."""
    taken: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cores, "own_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    return taken


@pytest.mark.parametrize(
    ("load", "free"), [(0.0, 8), (4.0, 8), (4.5, 3), (6.9, 1), (7.0, 1), (8.0, 1), (300.0, 1)]
)
def test_cores_are_free_by_the_load_of_the_last_minute(
    machine: list[int], monkeypatch: pytest.MonkeyPatch, load: float, free: int
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert free_cores() == free
    message = use_threads(None)
    assert machine == [free]
    assert bool(message) == (free < 8)
    assert "--threads 8" in message or not message


def test_cores_are_free_where_no_load_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert free_cores() == cores.own_cores() >= 1


def test_a_wish_is_fulfilled_on_a_busy_machine(machine: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (20.0, 0.0, 0.0))
    assert use_threads(5) == ""
    assert machine == [5]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert use_threads(None) == ""
    assert machine == [5], "PyTorch has read it"
