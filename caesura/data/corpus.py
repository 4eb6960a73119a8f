"""Parallel text in, memory-mapped ids out."""

from __future__ import annotations

import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caesura.data.cuts import AHEAD, CutsReader, CutsSource, parse_offsets, places_of
from caesura.data.files import Errors, digest, is_tsv, read_lines, stored, write_beside
from caesura.data.held import make_folder
from caesura.data.unpacking import without_suffix
from caesura.data.vocabulary import Vocabulary
from caesura.errors import InputError

# A source, its target, and the gold boundaries of the source; None for a line over the limit.
Pair = tuple[str | None, str | None, list[int] | None]

FORMAT = 3  # 2: with checksums; 3: with characters. Text in another format is numbered again
MAGIC = b"CAESURA\n"
HEADER = 4096  # bytes: the magic, JSON, spaces; the table follows on a page of its own
_FLUSH = 1 << 20  # ids and numbers of the table held in memory while building
_PROGRESS = 10_000  # lines


class ParallelText:
    """Sentence pairs in two files, line by line, or in one TSV; gold boundaries where they are given.

    Boundaries are character offsets strictly inside the source, separated by spaces: the third column of the
    TSV, or a file beside the source, `train.de.bounds` for `train.de` or `train.de.xz`.
    """

    def __init__(self, src: str | Path, trg: str | Path | None = None) -> None:
        self.src = Path(src)
        self.trg = None if trg is None else Path(trg)
        if self.trg is None and not is_tsv(src):
            raise InputError(
                f"{src}: --trg is missing: its translations, line by line; only a .tsv holds both"
            )
        if self.trg is not None and is_tsv(src):
            raise InputError(f"{src}: a .tsv holds its own targets; {trg} should not be given as well")
        bounds = stored(f"{without_suffix(self.src)}.bounds")
        self.bounds = bounds if bounds.is_file() else None

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
                bounds = parse_offsets(cells[2], cells[0], f"{self.src}:{number}", "boundaries")
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
                counted = ", ".join(f"{path} has {n} lines" for path, n in zip(paths, counts, strict=True))
                raise InputError(f"{counted}; parallel files should have the same number")
            number += 1
            src, target, *rest = (None if line is None else str(line) for line in lines)
            bounds = None
            if rest and rest[0] is not None and src is not None:
                bounds = parse_offsets(rest[0], src, f"{self.bounds}:{number}", "boundaries")
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
    """The ids of sentence pairs, memory-mapped from two files, and their cuts, if any, from a third.

    NAME.bin holds the ids of each source and then of its target, 16 or 32 bits each; NAME.idx a page with
    the sources of the corpus and the CRC-32 of ids, table, page and cuts, and then the table; NAME.cut the
    cuts of each source, 8 bits per symbol; all little-endian. The table has a row of zeros and one row per
    pair: where source and target end in the ids, and how many characters they have, 64 bits each.
    """

    imitated = False  # whether a segmenter should learn the cuts, and is not given them

    def __init__(
        self,
        ids: NDArray[np.integer],
        table: NDArray[np.int64],  # [N + 1, 4]
        header: dict[str, Any],
        cuts: NDArray[np.int8] | None = None,
    ) -> None:
        self._ids = ids
        self._table = table
        self._header = header
        self._cuts = cuts
        self._sources = np.append(0, self.lengths[:, 0].cumsum()) if cuts is not None else None
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
        cuts: CutsSource | None = None,
    ) -> Corpus:
        """Number the text, or reuse the result of an earlier call in `folder` if nothing has changed since.

        `say` gets a message about ids there that cannot be used; `cuts` say where segments of the source end.
        """
        made_from = {
            "format": FORMAT,
            "text": text.digests(),
            "vocabularies": [src_vocabulary.fingerprint, trg_vocabulary.fingerprint],
            "settings": [max_src, max_trg, max_chars, errors],
            **({} if cuts is None else {"cuts": cuts.fingerprint}),
        }
        stem = Path(folder) / name
        corpus = cls._open(stem)
        if corpus is not None and corpus._header["made_from"] == made_from:
            return corpus
        if corpus is None and _paths(stem)[1].exists() and say is not None:
            say(f"{stem}.idx: damaged, or from another version; the text is numbered again")
        filtered = _Filter(text, (src_vocabulary, trg_vocabulary), (max_src, max_trg, max_chars), cuts)
        try:
            make_folder(stem.parent)
            _write(stem, filtered, filtered.pairs(errors, progress), made_from)
        except PermissionError as error:
            raise InputError(f"{folder}: {error.strerror}; the ids of the corpus are kept there") from error
        return cls.load(folder, name)

    @classmethod
    def load(cls, folder: str | Path, name: str) -> Corpus:
        """Open a corpus that is already built."""
        corpus = cls._open(Path(folder) / name)
        if corpus is None:
            raise InputError(f"{Path(folder) / name}.idx: not a corpus, or damaged; it should be built again")
        return corpus

    @classmethod
    def _open(cls, stem: Path) -> Corpus | None:
        bin_path, idx_path, cut_path = _paths(stem)
        try:
            with idx_path.open("rb") as file:
                page = file.read(HEADER)
            sizes = bin_path.stat().st_size, idx_path.stat().st_size
            header = json.loads(page.removeprefix(MAGIC).decode("utf-8")) if page.startswith(MAGIC) else {}
            pairs, count, dtype = header["pairs"], header["ids"], np.dtype(header["dtype"])
            if sizes != (count * dtype.itemsize, HEADER + 4 * 8 * (pairs + 1)):
                return None
            table = np.memmap(idx_path, dtype="<i8", mode="r", offset=HEADER, shape=(pairs + 1, 4))
            ids = np.memmap(bin_path, dtype=dtype, mode="r") if count else np.empty(0, dtype)
            if table[0].any() or table[-1, 1] != count:
                return None
            sums = header.pop("crc32")
            cuts = _open_cuts(cut_path, header.get("cuts"))
            checksums = [zlib.crc32(ids.data), zlib.crc32(table.data), _header_sum(header)]
            if sums != (checksums if cuts is None else [*checksums, zlib.crc32(cuts.data)]):
                return None
            return cls(np.asarray(ids), np.asarray(table), header, cuts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def fits(self, src_vocabulary: Vocabulary, trg_vocabulary: Vocabulary) -> bool:
        """Whether this version has numbered it with these vocabularies."""
        made = self._header.get("made_from", {})
        vocabularies = [src_vocabulary.fingerprint, trg_vocabulary.fingerprint]
        return (made.get("format"), made.get("vocabularies")) == (FORMAT, vocabularies)

    def __len__(self) -> int:
        return len(self._table) - 1

    def __getitem__(self, i: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        before, row = self._table[i % len(self) :][:2]
        return self._ids[before[1] : row[0]], self._ids[row[0] : row[1]]

    def cuts(self, i: int) -> NDArray[np.int8] | None:
        """The cuts of a source, one per symbol: 1 if a segment ends after it, else 0; None: it has none.

        All are -1 where they are not known, which only cuts to be imitated may be.
        """
        if self._cuts is None or self._sources is None:
            return None
        start, end = self._sources[i % len(self) :][:2]
        return self._cuts[start:end]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The symbols of each source and target, [N, 2], without </s>."""
        return np.diff(self._table[:, :2].ravel()[1:]).reshape(-1, 2)

    @property
    def characters(self) -> NDArray[np.int64]:
        """The characters of each source and target, [N, 2], whatever a symbol is."""
        return self._table[1:, 2:]


def _paths(stem: Path) -> tuple[Path, Path, Path]:
    return Path(f"{stem}.bin"), Path(f"{stem}.idx"), Path(f"{stem}.cut")


def _open_cuts(path: Path, count: int | None) -> NDArray[np.int8] | None:
    if count is None:
        return None
    if path.stat().st_size != count:
        raise ValueError(f"{path} should have {count} bytes")
    return np.asarray(np.memmap(path, dtype=np.int8, mode="r")) if count else np.empty(0, np.int8)


class _Numbers(NamedTuple):
    """What is kept of a pair."""

    src: list[int]
    trg: list[int]
    characters: tuple[int, int]
    cuts: NDArray[np.int8] | None  # of the source


class _Filter:
    """Numbers pairs, leaves out those that should not be trained on, and counts them."""

    def __init__(
        self,
        text: ParallelText,
        vocabularies: tuple[Vocabulary, Vocabulary],
        longest: tuple[int | None, int | None, int | None],  # symbols of a side each; characters of either
        cuts: CutsSource | None = None,
    ) -> None:
        self.text, self.vocabularies, self.cuts = text, vocabularies, cuts
        *self.longest, self.max_chars = longest
        self.read = 0
        self.dropped: Counter[str] = Counter()

    def pairs(self, errors: Errors, progress: Callable[[int], None] | None) -> Iterator[_Numbers]:
        cuts = None if self.cuts is None else self.cuts.reader(errors)
        lines = self.text.pairs(errors, with_bounds=False)
        for src, trg, _ in lines if cuts is None else _announced(lines, cuts):
            self.read += 1
            if cuts is not None:
                cuts.advance(src)
            if progress is not None and self.read % _PROGRESS == 0:
                progress(self.read)
            pair = self._numbered(src, trg, cuts)
            if isinstance(pair, str):
                self.dropped[pair] += 1
            else:
                yield pair
        if cuts is not None:
            cuts.finish(self.text.src, self.read)
        if progress is not None:
            progress(self.read)

    def _numbered(self, src: str | None, trg: str | None, cuts: CutsReader | None) -> _Numbers | str:
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
        characters = len(src), len(trg)
        if cuts is None:
            return _Numbers(src_ids, trg_ids, characters, None)
        places = places_of(self.vocabularies[0].encode_spans(src)[1])
        return _Numbers(src_ids, trg_ids, characters, cuts.cuts(src, places))


def _announced(pairs: Iterator[Pair], cuts: CutsReader) -> Iterator[Pair]:
    """Yield the pairs; before each block of AHEAD, pass the sources of the block to `cuts`."""
    while some := [*islice(pairs, AHEAD)]:
        cuts.ahead(src for src, _, _ in some)
        yield from some


def _header_sum(header: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(header).encode())


def _write(stem: Path, filtered: _Filter, pairs: Iterator[_Numbers], made_from: dict[str, Any]) -> None:
    bin_path, idx_path, cut_path = _paths(stem)
    wide, with_cuts = max(map(len, filtered.vocabularies)) > 1 << 16, filtered.cuts is not None
    with write_beside(idx_path) as idx:
        with (
            write_beside(bin_path) as bin_file,
            write_beside(cut_path) if with_cuts else nullcontext() as cut_file,
        ):
            idx.write(b" " * HEADER)
            kept, count, sums = _stream(pairs, array("I" if wide else "H"), bin_file, idx, cut_file)
            # Never an old index beside new ids or cuts, whatever happens between the renames.
            idx_path.unlink(missing_ok=True)
            symbols = cut_file.tell() if cut_file is not None else 0
        if not with_cuts:
            cut_path.unlink(missing_ok=True)
        header = {
            "made_from": made_from,
            "dtype": "<u4" if wide else "<u2",
            "pairs": kept,
            "ids": count,
            "report": {"read": filtered.read, "kept": kept, "dropped": filtered.dropped},
            **({"cuts": symbols} if with_cuts else {}),
        }
        checks = [*sums[:2], _header_sum(header), *(sums[2:] if with_cuts else ())]
        page = MAGIC + json.dumps({**header, "crc32": checks}).encode()
        if len(page) > HEADER:
            raise ValueError(f"the header of {idx_path} takes {len(page)} bytes, over {HEADER}")
        idx.seek(0)
        idx.write(page)


def _stream(
    pairs: Iterator[_Numbers],
    ids: array[int],
    bin_file: IO[bytes],
    idx: IO[bytes],
    cut_file: IO[bytes] | None,
) -> tuple[int, int, tuple[int, int, int]]:
    """Write ids, table and cuts: how many pairs and ids there were, and the checksums of all three."""
    table, cuts = array("q", [0] * 4), array("b")
    kept = count = 0
    sums = 0, 0, 0

    def flush() -> tuple[int, int, int]:
        for numbers, file in ((ids, bin_file), (table, idx), (cuts, cut_file)):
            if file is not None:
                file.write(numbers.tobytes())
        updated = zlib.crc32(ids, sums[0]), zlib.crc32(table, sums[1]), zlib.crc32(cuts, sums[2])
        del ids[:], table[:], cuts[:]
        return updated

    for src, trg, characters, pair_cuts in pairs:
        if pair_cuts is not None:
            cuts.frombytes(pair_cuts.tobytes())
        ids.fromlist(src)
        ids.fromlist(trg)
        middle = count + len(src)
        count = middle + len(trg)
        table.extend((middle, count, *characters))
        kept += 1
        if len(ids) + len(table) >= _FLUSH:
            sums = flush()
    return kept, count, flush()
