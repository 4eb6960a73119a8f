"""Parallel text in, memory-mapped ids out."""

from __future__ import annotations

import json
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from caesura.data.blocks import Block, in_order, read_blocks, workers_for
from caesura.data.cuts import OffsetFile, other_length, parse_offsets
from caesura.data.files import Errors, digest, is_tsv, line_of, read_lines, stored, write_beside
from caesura.data.held import make_folder
from caesura.data.numbering import Numbering, Numbers, expected
from caesura.data.unpacking import without_suffix
from caesura.errors import InputError

# A source, its target, and the gold boundaries of the source; None for a line over the limit.
Pair = tuple[str | None, str | None, list[int] | None]

Counted = Callable[[int, int], None]  # lines so far, and about how many there are

FORMAT = 3  # 2: with checksums; 3: with characters. Text in another format is numbered again
MAGIC = b"CAESURA\n"
HEADER = 4096  # bytes: the magic, JSON, spaces; the table follows on a page of its own
PLACE = "CAESURA_CACHE"  # in the environment: the folder for numbered text
_MUCH = 100e6  # bytes: a user is told before more are written


class ParallelText:
    """Sentence pairs in two files, line by line, or in one TSV; with gold boundaries if there are any.

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
        for block in self.blocks(with_bounds):
            yield from self.pairs_of(block, errors, with_bounds)

    def blocks(self, with_bounds: bool = False, cuts: Path | None = None) -> Iterator[Block]:
        """The lines of the files in blocks; the lines of boundaries or of a file of cuts come with them."""
        texts = self.files(with_bounds)

        def uneven(counts: list[int]) -> InputError:
            if cuts is not None and len({*counts[:-1]}) == 1:
                return other_length(self.src, counts[0], cuts, counts[-1])
            files = zip(texts, counts, strict=False)
            counted = ", ".join(f"{path} has {count} lines" for path, count in files)
            return InputError(f"{counted}; parallel files should have the same number")

        return read_blocks([*texts, *([] if cuts is None else [cuts])], uneven)

    def pairs_of(self, block: Block, errors: Errors, with_bounds: bool) -> Iterator[Pair]:
        """The pairs of a block."""
        names = [stored(path) for path in self.files(with_bounds)]
        for number, row in enumerate(block.rows, block.first):
            lines = [line_of(body, name, number, errors) for body, name in zip(row, names, strict=False)]
            if self.trg is None:
                yield self._from_row(lines[0], number, with_bounds)
                continue
            bounds = None
            if len(lines) == 3 and lines[2] is not None and lines[0] is not None:
                bounds = parse_offsets(lines[2], lines[0], f"{self.bounds}:{number}", "boundaries")
            yield lines[0], lines[1], bounds

    def files(self, with_bounds: bool = False) -> list[Path]:
        """The files of the text, with the file of boundaries if there is one."""
        files = [self.src] if self.trg is None else [self.src, self.trg]
        return [*files, self.bounds] if self.trg and self.bounds and with_bounds else files

    def _from_row(self, line: str | None, number: int, with_bounds: bool) -> Pair:
        if line is None:
            return None, None, None
        cells = line.split("\t")
        if not 2 <= len(cells) <= 3:
            raise InputError(
                f"{self.src}:{number}: {len(cells)} columns; should be source, TAB, target, "
                "and maybe TAB, boundaries"
            )
        bounds = None
        if with_bounds and len(cells) == 3:
            bounds = parse_offsets(cells[2], cells[0], f"{self.src}:{number}", "boundaries")
        return cells[0], cells[1], bounds

    def digests(self) -> list[str]:
        """The hashes of the text files, as they are on disk."""
        return [*map(digest, self.files())]


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
    def made(
        cls,
        stem: Path,
        made_from: dict[str, Any],
        whole: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> Corpus | None:
        """The corpus in these files, if it was made from `made_from`; `say` gets a message if it is damaged.

        `whole`: its checksums are compared, which reads all of it.
        """
        corpus = cls._open(stem, whole)
        if corpus is None and _paths(stem)[1].exists() and say is not None:
            say(f"{stem}.idx: damaged, or from another version; the text is numbered again")
        return corpus if corpus is not None and corpus._header["made_from"] == made_from else None

    @classmethod
    def make(
        cls,
        stem: Path,
        numbering: Numbering,
        progress: Counted | None = None,
        say: Callable[[str], None] | None = None,
        cores: int = 1,
    ) -> Corpus:
        """Number the text in some processes and write the corpus; its bytes never depend on their number."""
        cuts = numbering.cuts
        blocks = numbering.text.blocks(cuts=cuts.path if isinstance(cuts, OffsetFile) else None)
        cores = 1 if cuts is not None and cuts.one_process else cores
        with closing(in_order(numbering, blocks, workers_for(numbering.text.files(), cores))) as results:
            try:
                make_folder(stem.parent)
                _write(stem, _told(results, progress), numbering, say)
            except PermissionError as error:
                reason = f"{error.strerror}; the ids of the corpus are kept there"
                raise InputError(f"{stem.parent}: {reason}") from error
        return cls.load(stem.parent, stem.name)

    @classmethod
    def load(cls, folder: str | Path, name: str, whole: bool = False) -> Corpus:
        """Open a corpus that is already built; `whole`: its checksums are compared."""
        corpus = cls._open(Path(folder) / name, whole)
        if corpus is None:
            raise InputError(f"{Path(folder) / name}.idx: not a corpus, or damaged; it should be built again")
        return corpus

    @classmethod
    def _open(cls, stem: Path, whole: bool) -> Corpus | None:
        bin_path, idx_path, cut_path = _paths(stem)
        if not (idx_path.is_file() and bin_path.is_file()):  # opening a pipe would wait for its other end
            return None
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
            if len(sums) != (3 if cuts is None else 4) or sums[2] != _header_sum(header):
                return None
            files = [ids, table] if cuts is None else [ids, table, cuts]
            if whole and [sums[at] for at in (0, 1, 3)[: len(files)]] != [zlib.crc32(f.data) for f in files]:
                return None
            return cls(np.asarray(ids), np.asarray(table), header, cuts)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self._table) - 1

    def __getitem__(self, i: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        before, row = self._table[i % len(self) :][:2]
        return self._ids[before[1] : row[0]], self._ids[row[0] : row[1]]

    def cuts(self, i: int) -> NDArray[np.int8] | None:
        """The cuts of a source, one per symbol: 1 if a segment ends after it, else 0; None: there are none.

        All are -1 if nobody knows them; only cuts to be imitated may be unknown.
        """
        if self._cuts is None or self._sources is None:
            return None
        start, end = self._sources[i % len(self) :][:2]
        return self._cuts[start:end]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The symbols of each source and target, [N, 2], without </s>."""
        return np.diff(self._table[:, :2].ravel()[1:]).reshape(-1, 2)

    def target_symbols(self, rows: NDArray[np.int64]) -> int:
        """The symbols of some targets together, without </s>."""
        return int((self._table[rows + 1, 1] - self._table[rows + 1, 0]).sum())

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


def identity(numbering: Numbering) -> dict[str, Any]:
    """The settings that decide which numbers a text gets."""
    cuts = numbering.cuts
    return {
        "format": FORMAT,
        "text": numbering.text.digests(),
        "vocabularies": [vocabulary.fingerprint for vocabulary in numbering.vocabularies],
        "settings": [*numbering.longest, numbering.max_chars, numbering.errors],
        **({} if cuts is None else {"cuts": cuts.fingerprint}),
    }


def _told(results: Iterable[Numbers], progress: Counted | None) -> Iterator[Numbers]:
    """The results; `progress` gets the number of lines read, and about how many there are."""
    read = 0
    for numbers in results:
        read += numbers.read
        if progress is not None:
            progress(read, expected(read, numbers.share))
        yield numbers


def _header_sum(header: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(header).encode())


def _write(
    stem: Path,
    results: Iterator[Numbers],
    numbering: Numbering,
    say: Callable[[str], None] | None,
) -> None:
    bin_path, idx_path, cut_path = _paths(stem)
    dtype = np.dtype("<u4" if max(map(len, numbering.vocabularies)) > 1 << 16 else "<u2")
    with_cuts = numbering.cuts is not None
    with write_beside(idx_path) as idx:
        with (
            write_beside(bin_path) as bin_file,
            write_beside(cut_path) if with_cuts else nullcontext() as cut_file,
        ):
            idx.write(b" " * HEADER)
            files = bin_file, idx, cut_file
            header, sums = _stream(_with_room(results, stem.parent, dtype, say), dtype, files)
            # Never an old index beside new ids or cuts, whatever happens between the renames.
            idx_path.unlink(missing_ok=True)
            symbols = cut_file.tell() if cut_file is not None else 0
        if not with_cuts:
            cut_path.unlink(missing_ok=True)
        header = {
            "made_from": identity(numbering),
            "dtype": dtype.str,
            **header,
            **({"cuts": symbols} if with_cuts else {}),
        }
        checks = [*sums[:2], _header_sum(header), *(sums[2:] if with_cuts else ())]
        page = MAGIC + json.dumps({**header, "crc32": checks}).encode()
        if len(page) > HEADER:
            raise ValueError(f"the header of {idx_path} takes {len(page)} bytes, over {HEADER}")
        idx.seek(0)
        idx.write(page)


def _with_room(
    results: Iterator[Numbers], folder: Path, dtype: np.dtype[Any], say: Callable[[str], None] | None
) -> Iterator[Numbers]:
    """The results; refuses if the first of them shows that the disk lacks room; announces large files."""
    for numbers in islice(results, 1):
        size = dtype.itemsize * len(numbers.ids) + numbers.table.nbytes
        needed = (size + (0 if numbers.cuts is None else len(numbers.cuts))) / max(numbers.share, 1e-9)
        if (free := shutil.disk_usage(folder).free) < needed:
            raise InputError(
                f"{folder}: {free / 1e6:,.1f} MB are free there, and the training text as numbers takes "
                f"about {needed / 1e6:,.1f}; make room, or set {PLACE} to a folder on another disk"
            )
        if needed >= _MUCH and say is not None:
            say(f"the training text as numbers takes about {needed / 1e9:.1f} GB in {folder}")
        yield numbers
    yield from results


def _stream(
    results: Iterator[Numbers], dtype: np.dtype[Any], files: tuple[IO[bytes], IO[bytes], IO[bytes] | None]
) -> tuple[dict[str, Any], list[int]]:
    """Write ids, table and cuts; returns their description for the header, and their checksums."""
    sums, dropped, read, kept, count = [0, 0, 0], Counter[str](), 0, 0, 0

    def write(values: tuple[NDArray[Any] | None, ...]) -> None:
        for i, (numbers, file) in enumerate(zip(values, files, strict=True)):
            if file is not None and numbers is not None:
                content = np.ascontiguousarray(numbers).data
                sums[i] = zlib.crc32(content, sums[i])
                file.write(content)

    write((None, np.zeros(4, "<i8"), None))
    for numbers in results:
        table = numbers.table.astype("<i8")
        table[:, :2] += count
        write((numbers.ids.astype(dtype), table, numbers.cuts))
        count += len(numbers.ids)
        kept += len(table)
        read += numbers.read
        dropped += numbers.dropped
    report = {"read": read, "kept": kept, "dropped": dropped}
    return {"pairs": kept, "ids": count, "report": report}, sums
