"""The cost of reading and numbering a training text, and from it the time and memory of 12 million pairs.

    python benchmarks/numbering.py SRC TRG --pairs 1000000 2000000 --cores 2

The lines of the two files, which may be fewer, are repeated in a shuffled order in a temporary folder.
Characters are numbered; their vocabularies are made first, as a training does. CPU time counts, so that other
programs disturb little: with P cores, the process that reads text and writes numbers takes one of them, those
that work on blocks share the others, and the slower of the two decides.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np

from caesura.data.batching import BatchPlan
from caesura.data.corpus import Corpus, ParallelText, identity
from caesura.data.numbering import Counting, Numbering, count_text
from caesura.data.vocabulary_training import train_vocabulary
from caesura.training.feed import padded

GOAL, CORES = 12_000_000, 16  # pairs and cores of the extrapolation
BATCHES = 200  # whose making is timed
WHO = {"main": resource.RUSAGE_SELF, "workers": resource.RUSAGE_CHILDREN}


def repeated(files: list[Path], pairs: int, folder: Path) -> ParallelText:
    """A text of so many pairs, made from the pairs of two files."""
    sides = [path.read_bytes().split(b"\n")[:-1] for path in files]
    rng, order = random.Random(1), list[int]()
    while len(order) < pairs:
        order += rng.sample(range(len(sides[0])), len(sides[0]))
    for side, name in zip(sides, ("src", "trg"), strict=True):
        with (folder / name).open("wb") as file:
            file.writelines(side[i] + b"\n" for i in order[:pairs])
    return ParallelText(folder / "src", folder / "trg")


def seconds() -> dict[str, float]:
    """CPU time so far; that of workers counts when they have ended."""
    used = {name: resource.getrusage(who) for name, who in WHO.items()}
    return {name: usage.ru_utime + usage.ru_stime for name, usage in used.items()}


def peak(process: str) -> int:
    """The peak memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def watch(peaks: dict[str, int]) -> None:
    """Note the peak memory of each worker, as long as the program runs."""
    while True:
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError, IndexError):
                peaks.update((child, peak(child)) for child in (task / "children").read_text().split())
        time.sleep(0.1)


@contextmanager
def measured(what: str, pairs: int) -> Iterator[None]:
    """Print the time of a step, and its estimate for more pairs on more cores."""
    before, began = seconds(), time.perf_counter()
    yield
    wall, after = time.perf_counter() - began, seconds()
    main, workers = (after[name] - before[name] for name in WHO)
    goal = GOAL / pairs * max(main, workers / (CORES - 1))
    print(
        f"{what:<12} {wall:7.1f} s wall, CPU main {main:6.1f} s = {1e6 * main / pairs:5.2f} us/pair, workers "
        f"{workers:6.1f} s = {1e6 * workers / pairs:5.2f} us/pair; {GOAL:,} on {CORES} cores: {goal:5.0f} s"
    )


def timed(what: str, do: Callable[..., object], *given: object) -> None:
    """Print the CPU time of a call."""
    began = time.process_time()
    do(*given)
    print(f"{what:<40} {time.process_time() - began:6.2f} s CPU")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs=2, type=Path, metavar="FILE", help="source and target, line by line")
    parser.add_argument("--pairs", nargs="+", type=int, default=[1_000_000, 2_000_000])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given, peaks = parser.parse_args(), dict[str, int]()
    Thread(target=watch, args=(peaks,), daemon=True).start()
    for pairs in given.pairs:
        with TemporaryDirectory(dir=given.folder) as name:
            with ProcessPoolExecutor(1, get_context("spawn")) as other:  # its memory does not count
                text = other.submit(repeated, given.files, pairs, Path(name)).result()
            peaks.clear()
            Path("/proc/self/clear_refs").write_text("5")  # forget the peak of earlier work
            size = sum(path.stat().st_size for path in text.files())
            print(f"{pairs:,} pairs, {size / 1e6:,.0f} MB, {given.cores} workers")
            with measured("counting", pairs):
                counts = count_text(Counting(text, (False, False), "strict"), cores=given.cores)
            src, trg = (train_vocabulary("char", side, 300) for side in counts.characters)
            numbering = Numbering(text, (src, trg), (5000, 5000), None, "strict", None)
            with measured("hashing", pairs):
                made_from = identity(numbering)
            with measured("numbering", pairs):
                corpus = Corpus.make(Path(name) / "train", numbering, cores=given.cores)
            stem = Path(name) / "train"
            disk = sum(path.stat().st_size for path in stem.parent.glob("train.*"))
            workers = max(peaks.values(), default=0)
            print(f"disk {disk / 1e6:,.0f} MB ({disk / pairs:.0f} bytes per pair); peak memory ", end="")
            print(f"{peak('self')} MB and {workers} MB per worker; {CORES} cores: ", end="")
            print(f"{peak('self') + (CORES - 1) * workers:,} MB")
            timed("opening", Corpus.made, stem, made_from)
            timed("opening and comparing checksums", Corpus.made, stem, made_from, True)
            plan = BatchPlan(np.resize(corpus.lengths, (GOAL, 2)), 20_000, "symbols")
            timed(f"planning an epoch of {GOAL:,}", plan.epoch, 1)
            batches = islice(BatchPlan(corpus.lengths, 128, "sentences").epoch(1), BATCHES)
            timed(f"making {BATCHES} batches of 128", list, map(partial(padded, corpus), batches))
            del corpus, plan, batches


if __name__ == "__main__":
    main()
