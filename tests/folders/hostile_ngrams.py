"""Files of n-grams as a stranger might make them, drawn at random."""

import io
import os
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from folders.test_strangers import flipped, truncated

from caesura.data.entropy import MAX_NGRAMS

Entries = dict[str, bytes]
SHAPES = (
    *("()", "(0,)", "(8,)", "(8, 1)", "(3, 16)", "8", "(True,)", "(1.5,)", "('8',)", "(8L,)", "('\x1b[2J',)"),
    *("(1099511627776,)", f"(1{'0' * 400},)", "(-1,)", "(-8, -1)", "(-8,)", "(0, 1099511627776)"),
    *(f"({'1, ' * 2000})", "(" * 2000, "(" * 60_000, "-" * 5000 + "1"),
)
TYPES = (
    *("'|u1'", "'<u8'", "'>u8'", "'<i8'", "'<f2'", "'<f8'", "'<f16'", "'<c16'", "'|b1'", "'<M8[s]'"),
    *("'|O'", "'|S9'", "'<U9'", "('|u1', (1000000000,))", "[('a', '<u8')]", "'\x1b[2J'", "7", "None"),
)
WHOLE = [0, 1, 2, 255, 1 << 16, MAX_NGRAMS, 1 << 48, 1 << 62, (1 << 64) - 1]
NUMBERS = [float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 0.5]


class Owner:
    """Makes a folder where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _claim(entries: Entries, name: str, rng: random.Random) -> None:
    """A header that promises what does not follow, or far more than is there."""
    parts = rng.choice(TYPES), rng.choice(SHAPES)
    header = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}".format(*parts).encode()
    content = bytes(rng.choice((0, 8, 64, 64, 1 << 26)))
    entries[name] = b"\x93NUMPY\1\0" + struct.pack("<H", len(header) & 0xFFFF) + header + content


def _values(entries: Entries, name: str, rng: random.Random) -> None:
    """Other numbers: one more, one less, one that is large, none, or very many."""
    if name in ("format.npy", "threshold.npy"):
        entries[name] = _array(rng.choice([*NUMBERS, 1, 2, [1], [[1.0]], [1, 2], 1 << 63]))
        return
    values = np.load(io.BytesIO(entries[name])).astype(np.uint64)
    at = rng.randrange(len(values))
    kind = rng.randrange(6)
    if kind == 0:
        values[at] = rng.choice(WHOLE)
    elif kind == 1:
        values = np.insert(values, at, rng.choice(WHOLE))
    elif kind == 2:
        values = np.delete(values, at)
    elif kind == 3:
        values = values[:0]
    elif kind == 4:
        values = np.ones(rng.choice((1000, MAX_NGRAMS)), np.uint8)
    else:
        rng.shuffle(values)  # type: ignore[arg-type]
    entries[name] = _array(values)


def _boundaries(entries: Entries, name: str, rng: random.Random) -> None:
    """The n-grams of a text without a character."""
    ones = _array(np.ones(3, np.uint8))
    entries.update({f"{name}.npy": ones for name in ("sizes", "followers", "symbols", "counts")})
    entries["alphabet.npy"] = _array(np.ones(0, np.uint8))


def _dropped(entries: Entries, name: str, rng: random.Random) -> None:
    del entries[name]


def _renamed(entries: Entries, name: str, rng: random.Random) -> None:
    entries[rng.choice(["../../", "/", "./", "\x1b[2J"]) + name] = entries.pop(name)


def hostile_ngrams(path: Path, rng: random.Random) -> None:
    """Put another file of n-grams in the place of a good one."""
    with zipfile.ZipFile(path) as packed:
        entries = {name: packed.read(name) for name in packed.namelist()}

    def pickled(entries: Entries, name: str, rng: random.Random) -> None:
        entries[name] = _array(np.array([Owner(path.parent.parent / "owned")], object))

    changes = [_claim, _claim, _values, _values, _boundaries, _dropped, _renamed, pickled]
    if rng.random() < 0.8:
        rng.choice(changes)(entries, rng.choice([*entries]), rng)
    content = io.BytesIO()
    kinds = (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_BZIP2,
        zipfile.ZIP_LZMA,
    )
    with zipfile.ZipFile(content, "w", rng.choice(kinds)) as packed, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
        for name, entry in (*entries.items(), *rng.sample([*entries.items()], rng.choice((0, 0, 1)))):
            packed.writestr(name, entry)
    packed_bytes = content.getvalue()
    if rng.random() < 0.4:
        packed_bytes = rng.choice((flipped, truncated))(packed_bytes, rng)
    path.write_bytes(packed_bytes)
