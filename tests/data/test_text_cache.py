"""The cache of numbered text: one entry serves all, whatever kills, deletes, damages or refuses it."""

import fcntl
import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from errno import ENOLCK
from pathlib import Path
from threading import Event

import pytest
from wording import refuses, wording

from caesura.data import blocks, cache, corpus, files
from caesura.data.cache import Cache
from caesura.data.corpus import PLACE, Corpus, ParallelText
from caesura.data.files import stored
from caesura.data.numbering import Counting, Numbering, count_text
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

LINES = [f"zeile {i} mit text" for i in range(500)]
WRITTEN = {".bin", ".idx"}


@pytest.fixture
def text(tmp_path: Path) -> ParallelText:
    folder = tmp_path / "text"
    folder.mkdir()
    for name, lines in (("a", LINES), ("b", LINES[::-1])):
        (folder / name).write_text("".join(line + "\n" for line in lines))
    return ParallelText(folder / "a", folder / "b")


def numbering_of(text: ParallelText, most: int | None = None) -> Numbering:
    chars = train_vocabulary("char", LINES)
    return Numbering(text, (chars, chars), (most, most), None, "strict", None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where text was numbered."""
    places: list[Path] = []
    make = Corpus.make
    monkeypatch.setattr(Corpus, "make", lambda stem, *a: (places.append(stem), make(stem, *a))[1])
    return places


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in WRITTEN}


def rows(corpus: Corpus) -> list[tuple[list[int], list[int]]]:
    return [(a.tolist(), b.tolist()) for a, b in corpus]


def test_one_entry_beside_the_text_serves_every_run(
    text: ParallelText, tmp_path: Path, made: list[Path]
) -> None:
    for run in ("one", "two"):
        corpus = Cache.of(text.src, tmp_path / run).corpus(numbering_of(text))
        assert len(corpus) == 500
    assert len(made) == 1
    assert made[0].parent == text.src.parent / "caesura-cache"
    assert (
        (made[0].parent / "CACHEDIR.TAG")
        .read_bytes()
        .startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    )
    assert not (tmp_path / "one").exists()
    Cache.of(text.src, tmp_path / "one").corpus(numbering_of(text, 15))
    text.src.write_text(text.src.read_text().replace("zeile 7 ", "zeile 8 "))
    Cache.of(text.src, tmp_path / "one").corpus(numbering_of(text))
    assert len({*made}) == 3
    shutil.rmtree(made[0].parent)
    assert len(Cache.of(text.src, tmp_path / "one").corpus(numbering_of(text))) == 500
    assert len(made) == 4


def test_what_takes_much_of_a_disk_is_said_before(
    text: ParallelText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_MUCH", 1)
    messages: list[str] = []
    Cache.of(text.src, tmp_path).corpus(numbering_of(text), say=messages.append)
    assert len(messages) == 1
    assert wording(messages[0]).endswith(f" in {text.src.parent}/caesura-cache")


def test_it_lies_where_the_environment_says(
    text: ParallelText, tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "shared" / "cache"))
    copied = shutil.copytree(text.src.parent, tmp_path / "copy")
    for folder in (text.src.parent, copied):
        moved = ParallelText(folder / "a", folder / "b")
        Cache.of(moved.src, tmp_path / "run").corpus(numbering_of(moved))
    assert [path.parent for path in made] == [tmp_path / "shared" / "cache"], "the text is the same"
    (tmp_path / "file").touch()
    monkeypatch.setenv(PLACE, str(tmp_path / "file"))
    with refuses(InputError, f"{tmp_path}/file: ", PLACE):
        Cache.of(text.src, tmp_path / "run").corpus(numbering_of(text))


def test_text_in_a_place_that_cannot_be_written_to_is_numbered_for_the_run(
    text: ParallelText, tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (text.src.parent / "caesura-cache").touch()  # root may write anywhere
    messages: list[str] = []
    for _ in range(2):
        Cache.of(text.src, tmp_path / "run").corpus(numbering_of(text), say=messages.append)
    assert [path.parent for path in made] == [tmp_path / "run"]
    assert len(messages) == 1
    assert wording(messages[0]).startswith(f"{text.src.parent}/caesura-cache: ")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "pipe", "header"])
def test_a_damaged_entry_is_made_again(
    text: ParallelText, tmp_path: Path, made: list[Path], damage: str
) -> None:
    kept, messages = Cache.of(text.src, tmp_path / "run"), list[str]()
    whole, folder = rows(kept.corpus(numbering_of(text))), made[0].parent
    before = contents(folder)
    ids, idx = made[0].with_suffix(".bin"), made[0].with_suffix(".idx")
    content = ids.read_bytes()
    if damage == "pipe":
        ids.unlink()
        os.mkfifo(ids)
    elif damage == "header":
        idx.write_bytes(idx.read_bytes().replace(b'"kept": 500', b'"kept": 501'))
    else:
        ids.write_bytes(content[:-1] if damage == "truncated" else bytes([content[0] ^ 1]) + content[1:])
    if damage == "flipped":
        kept.corpus(numbering_of(text), say=messages.append)
        assert (len(made), messages) == (1, []), "only a check reads all of it"
    corpus = kept.corpus(numbering_of(text), say=messages.append, whole=damage == "flipped")
    assert (len(made), len(messages)) == (2, 1)
    assert wording(messages[0], made[0].name).startswith(f"{idx}: ")
    assert rows(corpus) == whole
    assert contents(folder) == before


@pytest.fixture
def waits() -> Iterator[Callable[[int, int], None]]:
    """Progress that waits for an event, once a text is being numbered."""
    event = Event()

    def wait(done: int, total: int) -> None:
        event.wait(60)

    wait.event = event  # type: ignore[attr-defined]
    yield wait
    event.set()


def test_of_two_at_once_one_makes_it_and_the_other_waits(
    text: ParallelText, tmp_path: Path, made: list[Path], waits: Callable[[int, int], None]
) -> None:
    messages: list[str] = []

    def waited(done: int, total: int) -> None:
        waits.event.set()  # type: ignore[attr-defined]

    kept = Cache.of(text.src, tmp_path / "run")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(kept.corpus, numbering_of(text), waits)
        while not made:
            time.sleep(0.01)
        second = threads.submit(kept.corpus, numbering_of(text), waited, messages.append)
        assert rows(first.result()) == rows(second.result())
    assert len(made) == 1
    assert len(messages) == 1
    assert wording(messages[0]).startswith(f"{text.src.parent}/caesura-cache: ")


def test_without_locks_both_make_the_same_bytes_and_nobody_removes_anything(
    text: ParallelText, tmp_path: Path, made: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(file: int, operation: int) -> None:
        raise OSError(ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    kept = Cache.of(text.src, tmp_path / "run")
    with ThreadPoolExecutor(1) as threads:
        both = Event()

        def together(done: int, total: int) -> None:
            other = made[0].with_suffix(".bin.77.part")  # of another host
            other.touch()
            if not both.is_set():
                both.set()
                with monkeypatch.context() as patch:  # as another process
                    patch.setattr(os, "getpid", lambda: 78)
                    kept.corpus(numbering_of(text))

        corpus = threads.submit(kept.corpus, numbering_of(text), together).result()
    assert len(made) == 2
    assert len(rows(corpus)) == 500
    assert made[0].with_suffix(".bin.77.part").exists()


def test_the_hash_of_a_large_text_is_remembered_until_it_changes(
    text: ParallelText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    hashed = files._hashed
    monkeypatch.setattr(files, "_hashed", lambda path, *a: (read.append(path.name), hashed(path, *a))[1])
    monkeypatch.setattr(files, "_YOUNG", 0.0)
    monkeypatch.setattr(cache, "_LARGE", 0)

    def digests() -> list[str]:
        files.digests.clear()  # as in another process
        with Cache.of(text.src, tmp_path / "run").remembering(text.files()):
            return text.digests()

    (text.src.parent / "caesura-cache").mkdir()
    first = digests()
    assert [digests(), read] == [first, ["a", "b"]]
    os.utime(text.src, ns=(1, 1))
    assert [digests(), read] == [first, ["a", "b", "a"]]
    facts = text.src.stat()
    text.src.write_text(text.src.read_text().replace("zeile 7 ", "zeile 8 "))
    os.utime(text.src, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # size and time are those of before
    assert digests() != first
    for path in (text.src.parent / "caesura-cache").glob("*.hash"):
        path.write_text("nonsense")
    assert digests() != first
    monkeypatch.setattr(files, "_YOUNG", 3600.0)
    read.clear()
    digests(), digests()
    assert read == ["a", "b"] * 2, "what was written just now may change within its time stamp"


def test_a_large_text_is_counted_once_and_anew_where_that_is_damaged(
    text: ParallelText, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[Counting] = []
    counted = count_text
    monkeypatch.setattr(cache, "count_text", lambda what, *a: (times.append(what), counted(what, *a))[1])
    kept, counting = Cache.of(text.src, tmp_path / "run"), Counting(text, (False, False), "strict")
    expected, folder = kept.counts(counting), text.src.parent / "caesura-cache"
    assert not folder.exists(), "it is small"
    monkeypatch.setattr(cache, "_LARGE", 0)
    assert [kept.counts(counting), kept.counts(counting)] == [expected] * 2
    assert len(times) == 2
    (path,) = folder.glob("*.counts")
    content = path.read_bytes()
    for damaged in (content[:-1], content.replace(b'"total": ', b'"total": 1', 1), b"", b"\n"):
        path.write_bytes(damaged)
        assert kept.counts(counting) == expected
        assert path.read_bytes() == content
    assert len(times) == 6
    kept.counts(Counting(text, (False, True), "strict"))
    kept.counts(Counting(text, (False, False), "replace"))
    assert len(times) == 8
    for path in text.files():
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    monkeypatch.setattr(cache, "_LARGE", 3 * sum(stored(path).stat().st_size for path in text.files()))
    assert [kept.counts(counting), kept.counts(counting)] == [expected] * 2
    assert len(times) == 9, "packed text is larger than its file"


BUILDER = """
import sys
from pathlib import Path
from caesura.data import blocks
from caesura.data.cache import Cache
from caesura.data.corpus import ParallelText
from caesura.data.numbering import Numbering
from caesura.data.vocabulary_file import load_vocabulary
blocks.LINES, blocks._WORTH = 50, 1
chars = load_vocabulary(sys.argv[2])
text = ParallelText(sys.argv[1] + "/a", sys.argv[1] + "/b")
numbering = Numbering(text, (chars, chars), (None, None), None, "strict", None)
print(len(Cache.of(text.src, Path("unused")).corpus(numbering, cores=2)), flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_a_builder_that_is_killed_at_any_moment_stops_nobody(
    text: ParallelText, tmp_path: Path, kills: int
) -> None:
    chars, folder = train_vocabulary("char", LINES), text.src.parent / "caesura-cache"
    chars.save(tmp_path / "chars.json")
    builder = [sys.executable, "-c", BUILDER, str(text.src.parent), str(tmp_path / "chars.json")]
    whole, rng, left = (
        rows(Cache(tmp_path / "other", tmp_path).corpus(numbering_of(text))),
        random.Random(1),
        0,
    )
    for _ in range(kills):
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen(builder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not folder.exists() and process.poll() is None:
            time.sleep(0.001)
        time.sleep(rng.random() ** 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left += len([*folder.glob("*.part")])
        assert rows(Cache.of(text.src, tmp_path).corpus(numbering_of(text))) == whole
        assert contents(folder) == contents(tmp_path / "other")
    print(f"{kills} kills, {left} files half written")
    again = subprocess.run(builder, capture_output=True, check=True, text=True)
    assert again.stdout == "500\n"
    assert blocks.LINES == 8192


def test_what_a_killed_builder_left_of_another_text_is_removed(text: ParallelText, tmp_path: Path) -> None:
    folder = text.src.parent / "caesura-cache"
    folder.mkdir()
    names = ["0f.bin.1.part", "0e.bin.2.part", "0d.bin.part"]
    for name in (*names, "0f.lock", "0e.lock"):
        (folder / name).touch()
    busy = os.open(folder / "0e.lock", os.O_RDWR)
    fcntl.flock(busy, fcntl.LOCK_EX)
    Cache.of(text.src, tmp_path).corpus(numbering_of(text))
    os.close(busy)
    assert [(folder / name).exists() for name in names] == [False, True, True]
