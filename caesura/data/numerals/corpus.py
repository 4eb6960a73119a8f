"""The corpus of numerals: examples drawn without repetition, split by number, written as TSV."""

import datetime
import os
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TypeVar

from caesura.data.files import write_whole
from caesura.errors import InputError

from .morphs import LIMIT
from .spelling import FORMS, LANGUAGES, Example, example
from .typos import with_typo

T = TypeVar("T")

YEARS = (1000, 2999)
DEV_SHARE = 0.05
TEST_SHARE = 0.10


@dataclass(frozen=True)
class HeldOut:
    """How many examples each file but `train` gets, where there are so many."""

    dev: int = 500
    test: int = 1000
    long: int = 500
    typo: int = 500


def split_of(number: int, seed: int) -> str:
    """The one split that a number (or a date as yyyymmdd) belongs to: train, dev or test."""
    if number == 0:
        return "train"  # its word is in no other number: elsewhere it could not be learned
    drawn = int.from_bytes(sha256(f"{seed}:{number}".encode()).digest()[:8], "big") / 2**64
    return "dev" if drawn < DEV_SHARE else "test" if drawn < DEV_SHARE + TEST_SHARE else "train"


def make_corpus(
    language: str = "de",
    forms: Sequence[str] = ("cardinal",),
    size: int = 20_000,
    largest: int = 99_999,
    seed: int = 1,
    held_out: HeldOut | None = None,
) -> dict[str, list[Example]]:
    """The examples of train, dev, test, test.long (one digit more than `largest`) and test.typo."""
    held_out = held_out or HeldOut()
    forms = tuple(dict.fromkeys(forms))
    _check(language, forms, size, largest, held_out)

    def draw(split: str, low: int, high: int, count: int) -> list[Example]:
        rng = random.Random(f"{seed}:{split}")
        pairs = _interleave(_with_form(form, _candidates(form, low, high, rng)) for form in forms)
        if split != "test.long":
            pairs = (pair for pair in pairs if split_of(pair[0], seed) == split)
        examples = [example(number, language, form) for number, form in islice(pairs, count)]
        rng.shuffle(examples)
        return examples

    longer = 10 ** len(str(largest))
    corpus = {
        "train": draw("train", 0, largest, size),
        "dev": draw("dev", 0, largest, held_out.dev),
        "test": draw("test", 0, largest, held_out.test),
        "test.long": draw("test.long", longer, min(10 * longer - 1, LIMIT), held_out.long),
    }
    rng = random.Random(f"{seed}:test.typo")
    alphabet = "".join(
        sorted({char for e in corpus["train"] + corpus["test"] for char in e.source} - set(" -"))
    )
    typos = (with_typo(clean, language, alphabet, rng) for clean in corpus["test"])
    corpus["test.typo"] = [*islice((typo for typo in typos if typo), held_out.typo)]
    return corpus


def write_corpus(
    folder: str | os.PathLike[str],
    language: str = "de",
    forms: Sequence[str] = ("cardinal",),
    size: int = 20_000,
    largest: int = 99_999,
    seed: int = 1,
    held_out: HeldOut | None = None,
) -> dict[str, Path]:
    """Write `train.tsv`, `dev.tsv`, `test.tsv`, `test.long.tsv`, `test.typo.tsv`: source, target, offsets."""
    corpus = make_corpus(language, forms, size, largest, seed, held_out)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; name a folder") from None
    paths = {name: Path(folder) / f"{name}.tsv" for name in corpus}
    for name, path in paths.items():
        lines = (f"{e.source}\t{e.target}\t{' '.join(map(str, e.bounds))}\n" for e in corpus[name])
        write_whole(path, "".join(lines))
    return paths


def _check(language: str, forms: Sequence[str], size: int, largest: int, held_out: HeldOut) -> None:
    if language not in LANGUAGES:
        raise InputError(f"unknown language {language!r}: choose from {', '.join(LANGUAGES)}")
    for form in forms:
        if form not in FORMS:
            raise InputError(f"unknown form {form!r}: choose from {', '.join(FORMS)}")
    if not forms:
        raise InputError(f"no form given: choose from {', '.join(FORMS)}")
    if not 1 <= largest <= LIMIT:
        raise InputError(f"largest is {largest}: it must be from 1 to {LIMIT}")
    sizes = {"size": size} | {field.name: getattr(held_out, field.name) for field in fields(held_out)}
    for name, value in sizes.items():
        if value < 0:
            raise InputError(f"{name} is {value}: it must be 0 or more")
    if largest < YEARS[0] and not {"cardinal", "ordinal"} & set(forms):
        raise InputError(
            f"largest is {largest}: years and dates begin at {YEARS[0]}, so it must be that or more"
        )


def _candidates(form: str, low: int, high: int, rng: random.Random) -> Iterator[int]:
    """All numbers of a form from low to high, each once; every count of digits is as likely as the others."""
    if form in ("year", "date"):
        low, high = max(low, YEARS[0]), min(high, YEARS[1])
    if form == "ordinal":
        low = max(low, 1)
    if form == "date" and low <= high:
        first, last = datetime.date(low, 1, 1).toordinal(), datetime.date(high, 12, 31).toordinal()
        days = map(datetime.date.fromordinal, _shuffled(first, last, rng))
        return (10_000 * day.year + 100 * day.month + day.day for day in days)
    digits = range(len(str(low)), len(str(high)) + 1)
    return _interleave(
        _shuffled(max(low, 10 ** (d - 1) if d > 1 else 0), min(high, 10**d - 1), rng) for d in digits
    )


def _with_form(form: str, numbers: Iterator[int]) -> Iterator[tuple[int, str]]:
    return ((number, form) for number in numbers)


def _shuffled(low: int, high: int, rng: random.Random) -> Iterator[int]:
    """The numbers from low to high in random order: a shuffle that remembers only what it has moved."""
    moved: dict[int, int] = {}
    for i in range(low, high + 1):
        j = rng.randrange(i, high + 1)
        yield moved.get(j, j)
        moved[j] = moved.pop(i, i)


def _interleave(streams: Iterable[Iterator[T]]) -> Iterator[T]:
    """One item of each stream in turn; a stream that has ended is passed over."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for item in stream:
            yield item
            waiting.append(stream)
            break
