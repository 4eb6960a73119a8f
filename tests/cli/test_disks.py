"""Disks that are full, read-only or not ours: real file systems, as large as is asked for."""

import gc
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from cli.program import Done, caesura, contents, refusal, write_config
from wording import wording

from caesura.data import blocks
from caesura.inference import Translator
from caesura.terminal import TrainingDisplay
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress

NOBODY = 65534

Mount = Callable[..., Path]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can enter, unlike pytest's own."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def mount(folder: Path) -> Iterator[Mount]:
    """Mounts file systems in memory with the given options."""
    mounted: list[Path] = []

    def mount(options: str, missing: str = "mounting is not allowed here") -> Path:
        place = folder / f"disk{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True
        )
        if done.returncode != 0:
            pytest.skip(f"NOT TESTED, {missing}: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    gc.collect()  # mapped files of a run that failed
    for place in mounted:
        subprocess.run(["umount", place], check=True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """As somebody who may do little."""
    if os.getuid() != 0:
        pytest.skip("NOT TESTED, only root can become nobody")
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def trained_on_a_disk_that_fills_up(config: Path, disk: Path, left: int) -> Done:
    """Train; after update 25 somebody else takes all of the disk but `left` bytes."""

    def update(display: TrainingDisplay, progress: Progress, loss: float | None) -> None:
        if progress.update == 25:
            with (disk / "other").open("wb") as other:
                other.write(bytes(max(0, shutil.disk_usage(disk).free - left)))

    with mock.patch.object(TrainingDisplay, "update", update):
        return caesura("train", config, "--out", disk / "out")


@pytest.mark.slow
def test_a_disk_that_fills_up_at_any_point_loses_nothing(
    corpus: Path, models: dict[str, Path], tmp_path: Path, mount: Mount
) -> None:
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    disk = mount("size=2m")
    statuses = set()
    for pages in (0, 2, 10, 30):  # the next files are a few pages of the log, 8 of weights, 24 of state
        done = trained_on_a_disk_that_fills_up(config, disk, 4096 * pages)
        statuses.add(done.status)
        if done.status:
            assert done.err == f"caesura: {disk}/out: No space left on device\n"
            assert done.status == 1
            assert read_progress(list_checkpoints(disk / "out" / "checkpoints")[-1]).update in (20, 40)
            assert [*(disk / "out").rglob("*.part")] == []
        (disk / "other").unlink()
        assert caesura("train", config, "--out", disk / "out").status == 0
        best = (models["word"] / "model.safetensors").read_bytes()
        assert (disk / "out" / "model.safetensors").read_bytes() == best
        shutil.rmtree(disk / "out")
    assert 1 in statuses


def test_a_full_disk_is_noticed_before_training_starts(corpus: Path, tmp_path: Path, mount: Mount) -> None:
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    message = refusal(caesura("train", config, "--out", mount("size=200k") / "out"))
    assert " MB are free there, and checkpoints and models want " in message
    assert message.endswith("make room, lower training.keep_last or choose another --out")
    disk = mount("size=200k")
    (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free))
    done = caesura("train", config, "--out", disk / "out")
    assert done.status in (1, 2)
    assert done.err.startswith(f"caesura: {disk}/out: ")
    assert done.err.count("\n") == 1


def test_a_read_only_disk_is_noticed_before_training_starts(
    corpus: Path, models: dict[str, Path], tmp_path: Path, mount: Mount
) -> None:
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    disk = mount("size=4m")
    shutil.copytree(models["word"], disk / "out")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for out in (disk / "out", disk / "new"):
        assert refusal(caesura("train", config, "--out", out)).startswith(f"{out}: ")
    assert caesura("translate", disk / "out", stdin=b"eins\n").out == "one\n"


def test_text_on_a_read_only_disk_is_numbered_in_the_runs_folder(
    corpus: Path, tmp_path: Path, mount: Mount
) -> None:
    disk = mount("size=4m")
    shutil.copytree(corpus, disk / "text", ignore=shutil.ignore_patterns("caesura-cache"))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    config = write_config(tmp_path / "c.yaml", "word", disk / "text")
    command = ("train", config, "--out", tmp_path / "out", "--set")
    first = caesura(*command, "training.updates=2")
    again = caesura(*command, "training.updates=4", "--check-cache")
    assert (first.status, again.status) == (0, 0)
    remark = next(line for line in first.lines if "cannot be written to" in line)
    assert wording(remark, disk).startswith(f"{disk}/text/caesura-cache: ")
    assert "cannot be written to" not in again.out
    assert len([*(tmp_path / "out" / "cache").glob("*.idx")]) == 1


def test_a_disk_without_room_for_the_numbers_of_a_text_is_one_sentence(
    corpus: Path, tmp_path: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, disk = shutil.copytree(corpus, tmp_path / "text"), mount("size=300k")
    for name in ("train.de", "train.en"):
        (text / name).write_bytes((text / name).read_bytes() * 20)
    config = write_config(tmp_path / "c.yaml", "char", text)
    monkeypatch.setenv("CAESURA_CACHE", str(disk / "cache"))
    monkeypatch.setattr(blocks, "LINES", 50)
    command = ("train", config, "--out", tmp_path / "out", "--set", "training.updates=2")

    def fill(left: int) -> None:
        (disk / "other").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - left)))

    def working(display: TrainingDisplay, what: str, done: int, total: int = 0) -> None:
        if what.startswith("numbering") and done == 100:  # when there seemed to be room
            fill(4096)

    fill(20 << 10)
    message = refusal(caesura(*command))
    assert wording(message, disk, *re.findall(r"[\d.]+(?= MB|;)", message)).startswith(f"{disk}/cache: ")
    (disk / "other").unlink()
    with mock.patch.object(TrainingDisplay, "working", working):
        done = caesura(*command)
    assert (done.status, done.err) == (1, f"caesura: {disk}/cache: No space left on device\n")
    assert {path.name.lstrip("0123456789abcdef") for path in (disk / "cache").iterdir()} == {
        *("CACHEDIR.TAG", ".gitignore", ".lock")
    }
    (disk / "other").unlink()
    assert caesura(*command).status == 0


@pytest.mark.parametrize("name", [".", "checkpoints", "cache", "metrics.jsonl"])
def test_no_permission_is_noticed_before_training_starts(
    corpus: Path, models: dict[str, Path], folder: Path, name: str
) -> None:
    out, text = folder / "out", shutil.copytree(corpus, folder / "corpus", copy_function=shutil.copyfile)
    text.chmod(0o755)
    config = write_config(folder / "c.yaml", "word", text)
    shutil.copytree(models["word"], out)
    (out / "cache").mkdir()  # exists only if the text's folder cannot be written to
    for path in (out, *out.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.chown(out / name, 0, 0)
    (out / name).chmod(0o755)
    before = contents(out)
    with as_nobody():
        done = caesura("train", config, "--out", out)
    assert refusal(done).startswith(f"{out / name}: ")
    assert contents(out) == before


def test_no_permission_is_noticed_before_a_report_is_made(
    corpus: Path, models: dict[str, Path], folder: Path
) -> None:
    out, text = folder / "out", shutil.copytree(corpus, folder / "corpus", copy_function=shutil.copyfile)
    text.chmod(0o755)
    model = shutil.copytree(models["word"], folder / "word")
    for path in (model, *model.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    out.mkdir(mode=0o755)
    files = ("--src", text / "dev.de", "--trg", text / "dev.en", "--out", out)
    with as_nobody():
        for command in ("analyze", "compare"):
            assert refusal(caesura(command, model, *files)).startswith(f"{out}: ")


def test_a_quota_that_is_used_up_is_one_sentence_and_loses_nothing(
    corpus: Path, folder: Path, mount: Mount
) -> None:
    text = shutil.copytree(corpus, folder / "corpus", copy_function=shutil.copyfile)
    text.chmod(0o755)
    config = write_config(folder / "c.yaml", "word", text)
    mount("size=4m,mode=777")  # as such
    quota = "size=4m,mode=777,usrquota,usrquota_block_hardlimit=300k"
    disk = mount(quota, "no quotas for tmpfs in this kernel")
    with as_nobody():
        done = caesura("train", config, "--out", disk / "out", "--set", "training.keep_last=9")
    assert (done.status, done.err) == (1, f"caesura: {disk}/out: Disk quota exceeded\n")
    assert list_checkpoints(disk / "out" / "checkpoints")


def test_an_average_on_a_full_disk_is_no_model_until_it_is_made_again(
    models: dict[str, Path], tmp_path: Path, mount: Mount
) -> None:
    disk, statuses = mount("size=300k"), []
    for pages in (0, 4, 9, 40):
        call = ("average", models["word"], "--last", 2, "--out", disk / "out")
        (disk / "other").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - 4096 * pages)))
        done = caesura(*call)
        statuses.append(done.status)
        if done.status:
            assert done.err == f"caesura: {disk}/out: No space left on device\n"
            assert {path.suffix for path in (disk / "out").glob("*")} <= {".yaml", ".json", ".md"}
        (disk / "other").unlink()
        assert done.status == 0 or caesura(*call).status == 0
        assert Translator.from_pretrained(disk / "out").translate(["neun"])
        shutil.rmtree(disk / "out")
    assert statuses[0] == 1
    assert statuses[-1] == 0
