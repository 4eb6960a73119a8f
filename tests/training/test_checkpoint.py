"""Checkpoints: what is saved comes back, the newest are kept, and damage is named."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from wording import refuses

from caesura.data.tensors import DamagedError
from caesura.errors import InputError
from caesura.kernels.adam import Adam
from caesura.training.checkpoint import (
    Progress,
    list_checkpoints,
    load_checkpoint,
    newest_progress,
    read_progress,
    save_checkpoint,
    snapshot,
)

PROGRESS = Progress(
    update=7,
    epoch=2,
    batch=3,
    sentences=280,
    since_validation=40,
    seconds=12.25,
    learning_rate=1.5e-4,
    schedule={"patience": 3, "max_halvings": 10, "best": 21.5, "waited": 1, "halvings": 0},
    window={"loss": 0.1 + 0.2, "symbols": 99.0},
    journal={"metrics.jsonl": 1234},
    text=["abc", "déf"],
    finished="7 updates",
)


def setting(seed: int) -> tuple[nn.Module, Adam]:
    """A model with dropout, so that its random state matters, and its optimizer."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2, bias=False))
    return model, Adam(model.parameters(), lr=0.01)


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()


def saved(folder: Path, updates: int = 3) -> tuple[Path, nn.Module, Adam]:
    model, optimizer = setting(0)
    steps(model, optimizer, updates)
    return save_checkpoint(folder, snapshot(model, optimizer, PROGRESS), keep=1), model, optimizer


def test_training_on_a_cpu_leaves_a_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("the GPU")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", touched)
    monkeypatch.setattr(torch.cuda, "set_rng_state", touched)
    path, model, optimizer = saved(tmp_path)
    load_checkpoint(path, model, optimizer)


@pytest.mark.parametrize("updates", [0, 3])
def test_a_resumed_run_makes_the_same_updates_as_an_uninterrupted_one(tmp_path: Path, updates: int) -> None:
    path, model, optimizer = saved(tmp_path, updates)
    steps(model, optimizer, 2)
    other, other_optimizer = setting(1)  # another seed: whatever agrees below came out of the file
    steps(other, other_optimizer, 5)
    other_optimizer = Adam(other.parameters(), lr=0.01)
    load_checkpoint(path, other, other_optimizer)
    steps(other, other_optimizer, 2)
    for (name, ours), theirs in zip(other.named_parameters(), model.parameters(), strict=True):
        assert ours.equal(theirs), name


def test_weights_moments_and_random_state_come_back_bit_by_bit(tmp_path: Path) -> None:
    path, model, optimizer = saved(tmp_path)
    drawn = torch.rand(4)
    other, other_optimizer = setting(1)
    load_checkpoint(path, other, other_optimizer)
    assert torch.rand(4).equal(drawn)
    for name, value in model.state_dict().items():
        assert other.state_dict()[name].equal(value), name
    ours, theirs = other_optimizer.state_dict()["state"], optimizer.state_dict()["state"]
    assert ours.keys() == theirs.keys() == {0, 1, 2}
    for index, moments in theirs.items():
        assert ours[index].keys() == moments.keys() == {"step", "exp_avg", "exp_avg_sq"}
        for name, value in moments.items():
            assert ours[index][name].equal(value)
            assert ours[index][name].dtype == value.dtype


def test_progress_comes_back_whole(tmp_path: Path) -> None:
    assert read_progress(saved(tmp_path)[0]) == PROGRESS


@given(keep=st.integers(1, 4), updates=st.lists(st.integers(1, 3000), min_size=1, max_size=6, unique=True))
def test_the_newest_checkpoints_are_kept(
    tmp_path_factory: pytest.TempPathFactory, keep: int, updates: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    model = nn.Linear(1, 1)
    optimizer = Adam(model.parameters())
    for update in sorted(updates):
        save_checkpoint(folder, snapshot(model, optimizer, Progress(update=update)), keep)
    kept = [read_progress(path).update for path in list_checkpoints(folder)]
    assert kept == sorted(updates)[-keep:]
    assert len([*folder.iterdir()]) == len(kept)  # nothing half-written is left behind


@pytest.mark.parametrize(
    "damage",
    [
        *(
            pytest.param(lambda data, s=s: data[: int(len(data) * s)], id=f"cut at {s}")
            for s in (0, 0.001, 0.3, 0.999)
        ),
        pytest.param(lambda data: b"\xff" * 8 + data[8:], id="length of the header"),
        pytest.param(lambda data: data[:8] + b"?" * 50 + data[58:], id="header"),
        pytest.param(lambda data: data + b"more", id="something after the end"),
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path, model, optimizer = saved(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    for read in (read_progress, lambda p: load_checkpoint(p, model, optimizer)):
        with pytest.raises(DamagedError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: damaged (")


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, place: float, bit: int
) -> None:
    path, model, _ = saved(tmp_path_factory.mktemp("run"))
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    other, other_optimizer = setting(1)
    try:
        progress = load_checkpoint(path, other, other_optimizer)
    except InputError:
        return
    assert progress == PROGRESS
    assert all(
        ours.equal(theirs) for ours, theirs in zip(other.parameters(), model.parameters(), strict=True)
    )


def test_a_checkpoint_from_before_there_were_checksums_is_read(tmp_path: Path) -> None:
    path, model, _ = saved(tmp_path)
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {"format": "1", "progress": json.dumps(asdict(PROGRESS))})
    other, other_optimizer = setting(1)
    assert load_checkpoint(path, other, other_optimizer) == PROGRESS == read_progress(path)
    assert all(
        ours.equal(theirs) for ours, theirs in zip(other.parameters(), model.parameters(), strict=True)
    )


def test_a_checkpoint_takes_the_place_of_later_ones_and_leaves_enough(tmp_path: Path) -> None:
    model, optimizer = setting(0)
    for update in (10, 20, 30):
        save_checkpoint(tmp_path, snapshot(model, optimizer, Progress(update=update)), keep=3)
    save_checkpoint(tmp_path, snapshot(model, optimizer, Progress(update=25)), keep=2)  # 30 was damaged
    assert [read_progress(path).update for path in list_checkpoints(tmp_path)] == [20, 25]


def test_the_newest_counters_are_of_the_newest_checkpoint_that_can_be_read(tmp_path: Path) -> None:
    assert newest_progress(tmp_path / "checkpoints") is None
    model, optimizer = setting(0)
    for update in (10, 20, 30):
        save_checkpoint(tmp_path, snapshot(model, optimizer, Progress(update=update)), keep=3)
    for left in (30, 20, 10):
        assert newest_progress(tmp_path) == Progress(update=left)
        list_checkpoints(tmp_path)[left // 10 - 1].write_bytes(b"damaged")
    assert newest_progress(tmp_path) is None


@pytest.mark.parametrize("metadata", [None, {"format": "3", "progress": "{}"}])
def test_a_file_of_another_format_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "000000001.safetensors"
    save_file({"model.weight": torch.zeros(1)}, path, metadata)
    with refuses(InputError, f"{path}: "):
        read_progress(path)


@pytest.mark.parametrize("progress", [None, "{", '{"updates": 1}'])
def test_a_checkpoint_with_unreadable_counters_is_refused(tmp_path: Path, progress: str | None) -> None:
    path = tmp_path / "000000001.safetensors"
    metadata = {"format": "1"} | ({} if progress is None else {"progress": progress})
    save_file({"model.weight": torch.zeros(1)}, path, metadata)
    with pytest.raises(InputError, match=f"^{path}: "):
        read_progress(path)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.safetensors"):
        read_progress(tmp_path / "none.safetensors")
