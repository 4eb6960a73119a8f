"""Parallel text in, memory-mapped ids out."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from caesura.data.files import Errors, digest, is_tsv, read_lines, write_beside
from caesura.data.vocabulary import Vocabulary
from caesura.errors import InputError

# A source, its target, and the gold boundaries of the source; None for a line over the limit.
Pair = tuple[str | None, str | None, list[int] | None]

_COMPRESSED = (".gz", ".xz")

FORMAT = 2  # 2: with checksums; what is of another format is numbered again
MAGIC = b"CAESURA\n"
HEADER = 4096  # bytes: the magic, JSON, spaces; the offsets follow on a page of their own
_FLUSH = 1 << 20  # ids and offsets held in memory while building
_PROGRESS = 10_000  # lines


class ParallelText:
    """Sentence pairs in two files, a line a line, or in one TSV; gold boundaries where they are given.

    Boundaries are character offsets strictly inside the source, separated by spaces: the third column of the
    TSV, or a file beside the source, `train.de.bounds` for `train.de` or `train.de.gz`.
    """

    def __init__(self, src: str | Path, trg: str | Path | None = None) -> None:
        self.src = Path(src)
        self.trg = None if trg is None else Path(trg)
        if self.trg is None and not is_tsv(src):
            raise InputError(
                f"{src}: --trg is missing: its translations, line by line; only a .tsv (.gz, .xz) holds both"
            )
        if self.trg is not None and is_tsv(src):
            raise InputError(f"{src}: a .tsv holds its own targets; {trg} should not be given as well")
        beside = f"{_plain(self.src)}.bounds"
        found = (Path(beside + suffix) for suffix in ("", *_COMPRESSED))
        self.bounds = next((path for path in found if path.is_file()), None)

    def __iter__(self) -> Iterator[Pair]:
        return self.pairs()

    def pairs(self, errors: Errors = "strict", with_bounds: bool = True) -> Iterator[Pair]:
        """The pairs in their order; a line over the limit is None."""
        if self.trg is None:
            return self._from_tsv(errors, with_bounds)
        return self._from_files(self.trg, errors, with_bounds)

    def _from_tsv(self, errors: Errors, with_bounds: bool) -> Iterator[Pair]:
        for number, line in enumerate(read_lines(self.src, errors), 1):
            if line is None:
                yield None, None, None
                continue
            cells = line.split("\t")
            if not 2 <= len(cells) <= 3:
                raise InputError(
                    f"{self.src}:{number}: {len(cells)} columns; should be source, TAB, target, "
                    "and maybe TAB, boundaries"
                )
            bounds = None
            if with_bounds and len(cells) == 3:
                bounds = _parse_bounds(cells[2], cells[0], f"{self.src}:{number}")
            yield cells[0], cells[1], bounds

    def _from_files(self, trg: Path, errors: Errors, with_bounds: bool) -> Iterator[Pair]:
        paths = [self.src, trg]
        if with_bounds and self.bounds is not None:
            paths.append(self.bounds)
        readers = [read_lines(path, errors) for path in paths]
        number = 0
        while True:
            lines = [next(reader, _END) for reader in readers]
            if all(line is _END for line in lines):
                return
            if any(line is _END for line in lines):
                counts = [
                    number if line is _END else number + 1 + sum(1 for _ in reader)
                    for line, reader in zip(lines, readers, strict=True)
                ]
                told = ", ".join(f"{path} has {n} lines" for path, n in zip(paths, counts, strict=True))
                raise InputError(f"{told}; parallel files should have the same number")
            number += 1
            src, target, *rest = (None if line is None else str(line) for line in lines)
            bounds = None
            if rest and rest[0] is not None and src is not None:
                bounds = _parse_bounds(rest[0], src, f"{self.bounds}:{number}")
            yield src, target, bounds

    def digests(self) -> list[str]:
        """The hashes of the text files, as they are on disk."""
        return [digest(self.src)] if self.trg is None else [digest(self.src), digest(self.trg)]


_END = object()


def read_sources(path: str | Path, errors: Errors = "strict") -> Iterator[str | None]:
    """The lines of a text file, or of a TSV the sources alone; None for a line over the limit."""
    if not is_tsv(path):
        return read_lines(path, errors)
    return (src for src, _, _ in ParallelText(path).pairs(errors, with_bounds=False))


def _plain(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in _COMPRESSED else path


def _parse_bounds(cell: str, src: str, place: str) -> list[int]:
    parts = cell.split()
    if not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        raise InputError(
            f"{place}: boundaries {cell[:60]!r}; should be character offsets separated by spaces"
        )
    bounds = [int(p) for p in parts]
    if any(a >= b for a, b in zip([0, *bounds], [*bounds, len(src)], strict=True)) and bounds:
        raise InputError(
            f"{place}: boundaries {cell[:60]!r}; should rise, each inside a source of {len(src)} characters"
        )
    return bounds


@dataclass(frozen=True)
class FilterReport:
    """How many pairs were read, kept, and dropped for which reason."""

    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.dropped.items())
        return f"{self.read} pairs read, {self.kept} kept" + (f"; dropped: {reasons}" if reasons else "")


class Corpus:
    """The ids of sentence pairs, memory-mapped from two files.

    NAME.bin holds the ids of each source and then of its target, 16 or 32 bits each; NAME.idx a page with
    what the corpus was made from and the CRC-32 of ids, offsets and page, and then 2N + 1 offsets into the
    ids, 64 bits each; all little-endian.
    """

    def __init__(self, ids: NDArray[np.integer], offsets: NDArray[np.int64], header: dict[str, Any]) -> None:
        self._ids = ids
        self._offsets = offsets
        self._header = header
        self.report = FilterReport(**header["report"])

    @classmethod
    def build(
        cls,
        text: ParallelText,
        src_vocabulary: Vocabulary,
        trg_vocabulary: Vocabulary,
        folder: str | Path,
        name: str,
        max_src: int | None = None,
        max_trg: int | None = None,
        max_chars: int | None = None,
        errors: Errors = "strict",
        progress: Callable[[int], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> Corpus:
        """Number the text, or take what an earlier call left in `folder` if nothing has changed since.

        `say` is told of ids there that cannot be used.
        """
        made_from = {
            "format": FORMAT,
            "text": text.digests(),
            "vocabularies": [src_vocabulary.fingerprint, trg_vocabulary.fingerprint],
            "settings": [max_src, max_trg, max_chars, errors],
        }
        stem = Path(folder) / name
        corpus = cls._open(stem)
        if corpus is not None and corpus._header["made_from"] == made_from:
            return corpus
        if corpus is None and _paths(stem)[1].exists() and say is not None:
            say(f"{stem}.idx: damaged, or of another version; the text is numbered again")
        filtered = _Filter(text, (src_vocabulary, trg_vocabulary), (max_src, max_trg, max_chars))
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            _write(stem, filtered, filtered.pairs(errors, progress), made_from)
        except PermissionError as error:
            raise InputError(f"{folder}: {error.strerror}; the ids of the corpus are kept there") from error
        return cls.load(folder, name)

    @classmethod
    def load(cls, folder: str | Path, name: str) -> Corpus:
        """Open a corpus that is already built."""
        corpus = cls._open(Path(folder) / name)
        if corpus is None:
            raise InputError(
                f"{Path(folder) / name}.idx: no corpus, or a damaged one; it should be built again"
            )
        return corpus

    @classmethod
    def _open(cls, stem: Path) -> Corpus | None:
        bin_path, idx_path = _paths(stem)
        try:
            with idx_path.open("rb") as file:
                page = file.read(HEADER)
            sizes = bin_path.stat().st_size, idx_path.stat().st_size
            header = json.loads(page.removeprefix(MAGIC).decode("utf-8")) if page.startswith(MAGIC) else {}
            pairs, count, dtype = header["pairs"], header["ids"], np.dtype(header["dtype"])
            if sizes != (count * dtype.itemsize, HEADER + 8 * (2 * pairs + 1)):
                return None
            offsets = np.memmap(idx_path, dtype="<i8", mode="r", offset=HEADER)
            ids = np.memmap(bin_path, dtype=dtype, mode="r") if count else np.empty(0, dtype)
            if offsets[0] != 0 or offsets[-1] != count:
                return None
            sums = header.pop("crc32")
            if sums != [zlib.crc32(ids.data), zlib.crc32(offsets.data), _header_sum(header)]:
                return None
            return cls(np.asarray(ids), np.asarray(offsets), header)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self._offsets) // 2

    def __getitem__(self, i: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        start, middle, end = self._offsets[2 * (i % len(self)) :][:3]
        return self._ids[start:middle], self._ids[middle:end]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The symbols of each source and target, [N, 2], without </s>."""
        return np.diff(self._offsets).reshape(-1, 2)


def _paths(stem: Path) -> tuple[Path, Path]:
    return Path(f"{stem}.bin"), Path(f"{stem}.idx")


class _Filter:
    """Numbers pairs, leaves out those that should not be trained on, and counts them."""

    def __init__(
        self,
        text: ParallelText,
        vocabularies: tuple[Vocabulary, Vocabulary],
        longest: tuple[int | None, int | None, int | None],  # symbols of a side each; characters of either
    ) -> None:
        self.text, self.vocabularies = text, vocabularies
        *self.longest, self.max_chars = longest
        self.read = 0
        self.dropped: Counter[str] = Counter()

    def pairs(
        self, errors: Errors, progress: Callable[[int], None] | None
    ) -> Iterator[tuple[list[int], list[int]]]:
        for src, trg, _ in self.text.pairs(errors, with_bounds=False):
            self.read += 1
            if progress is not None and self.read % _PROGRESS == 0:
                progress(self.read)
            pair = self._numbered(src, trg)
            if isinstance(pair, str):
                self.dropped[pair] += 1
            else:
                yield pair
        if progress is not None:
            progress(self.read)

    def _numbered(self, src: str | None, trg: str | None) -> tuple[list[int], list[int]] | str:
        """The ids of a pair, or the reason to drop it."""
        if src is None or trg is None:
            return "line over the limit"
        if not src.strip():
            return "empty source"
        if not trg.strip():
            return "empty target"
        for side, line in (("source", src), ("target", trg)):
            if self.max_chars is not None and len(line) > self.max_chars:
                return f"{side} longer than {self.max_chars} characters"
        src_ids, trg_ids = self.vocabularies[0].encode(src), self.vocabularies[1].encode(trg)
        for side, ids, most in zip(("source", "target"), (src_ids, trg_ids), self.longest, strict=True):
            if most is not None and len(ids) > most:
                return f"{side} longer than {most} symbols"
        return src_ids, trg_ids


def _header_sum(header: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(header).encode())


def _write(
    stem: Path, filtered: _Filter, pairs: Iterator[tuple[list[int], list[int]]], made_from: dict[str, Any]
) -> None:
    bin_path, idx_path = _paths(stem)
    wide = max(map(len, filtered.vocabularies)) > 1 << 16
    with write_beside(idx_path) as idx:
        with write_beside(bin_path) as bin_file:
            idx.write(b" " * HEADER)
            kept, count, sums = _stream(pairs, array("I" if wide else "H"), bin_file, idx)
            # Never an old index beside new ids, whatever happens between the two renames.
            idx_path.unlink(missing_ok=True)
        header = {
            "made_from": made_from,
            "dtype": "<u4" if wide else "<u2",
            "pairs": kept,
            "ids": count,
            "report": {"read": filtered.read, "kept": kept, "dropped": filtered.dropped},
        }
        page = MAGIC + json.dumps({**header, "crc32": [*sums, _header_sum(header)]}).encode()
        if len(page) > HEADER:
            raise ValueError(f"the header of {idx_path} takes {len(page)} bytes, over {HEADER}")
        idx.seek(0)
        idx.write(page)


def _stream(
    pairs: Iterator[tuple[list[int], list[int]]], ids: array[int], bin_file: IO[bytes], idx: IO[bytes]
) -> tuple[int, int, tuple[int, int]]:
    """Write ids and offsets: how many pairs and ids there were, and the checksums of what was written."""
    offsets = array("q", [0])
    kept = count = 0
    sums = 0, 0

    def flush() -> tuple[int, int]:
        for numbers, file in ((ids, bin_file), (offsets, idx)):
            file.write(numbers.tobytes())
        found = zlib.crc32(ids, sums[0]), zlib.crc32(offsets, sums[1])
        del ids[:], offsets[:]
        return found

    for src, trg in pairs:
        ids.fromlist(src)
        ids.fromlist(trg)
        offsets.append(count + len(src))
        count += len(src) + len(trg)
        offsets.append(count)
        kept += 1
        if len(ids) + len(offsets) >= _FLUSH:
            sums = flush()
    return kept, count, flush()
