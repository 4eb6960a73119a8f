"""Lines in, whole files out: reading text that may be anything, and writing that leaves nothing half done."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Literal

from caesura.data.held import check_held
from caesura.data.unpacking import DAMAGED, PACKED, open_packed, position, without_suffix
from caesura.errors import InputError

Errors = Literal["strict", "replace"]

LINE_LIMIT = 1_000_000  # bytes
JSON_BYTES = 1 << 28  # of a file that is read; the largest sweep.json in docs/ has 180 kB
JSON_VALUES = 16_000_000  # in it
_BOM = b"\xef\xbb\xbf"


def read_lines(path: str | Path, errors: Errors = "strict") -> Iterator[str | None]:
    """The lines of a text file (plain, packed, or "-" for standard input); None: a line over LINE_LIMIT.

    Lines end at "\\n" alone, so that two files stay parallel whatever other separators are inside them.
    """
    raw = RawLines(path)
    return (line_of(body, raw.name, number, errors) for number, body in enumerate(raw, 1))


class RawLines:
    """The same lines as bytes, once, and the share of the file that has been read."""

    def __init__(self, path: str | Path) -> None:
        self._path = stored(path)
        self.name = "standard input" if str(self._path) == "-" else str(self._path)
        self._stream: IO[bytes] | None = None

    @property
    def share(self) -> float:
        """From 0 to 1, in bytes on disk; buffers read a little ahead."""
        if self._stream is None or self._stream.closed:
            return 1.0
        return min(1.0, position(self._stream) / max(1, os.path.getsize(self._path)))

    def __iter__(self) -> Iterator[bytes | None]:
        number = 0
        try:
            with _opened(self._path) as self._stream:
                # Room for a line at the limit with everything that is taken off it: BOM, "\r", "\n".
                while raw := self._stream.readline(LINE_LIMIT + 5):
                    number += 1
                    whole = raw.endswith(b"\n")
                    body = raw.removesuffix(b"\n").removesuffix(b"\r")
                    if number == 1:
                        body = body.removeprefix(_BOM)
                    if len(body) <= LINE_LIMIT:
                        yield body
                        continue
                    while not whole and (rest := self._stream.readline(1 << 16)):
                        whole = rest.endswith(b"\n")
                    yield None
        except DAMAGED as error:
            raise InputError(f"{self.name}: damaged or cut off after line {number}: {error}") from error
        except MemoryError as error:
            reason = "takes more memory to unpack than there is, after line"
            raise InputError(f"{self.name}: {reason} {number}") from error
        except OSError as error:
            if isinstance(error, IsADirectoryError):
                raise InputError(f"{self._path}: is a directory; name a text file") from error
            closed = str(self._path) == "-" and error.errno == errno.EBADF
            reason = "closed; name a file, or send text there" if closed else error.strerror or str(error)
            raise InputError(f"{self.name}: {reason}") from error


def stored(path: str | Path) -> Path:
    """The file that a text's name stands for: the one of that name, else the packed one, such as NAME.xz."""
    if str(path) == "-" or os.path.exists(path):
        return Path(path)
    packed = [file for suffix in PACKED if os.path.isfile(file := f"{path}{suffix}")]
    if len(packed) > 1:
        raise InputError(f"{path}: no such file, but {' and '.join(packed)} are there; name one of them")
    return Path(packed[0] if packed else path)


def packed_instead(path: str | Path) -> str | None:
    """A sentence about a packed file that is read in place of the one that was named; None: it is there."""
    return None if (file := stored(path)) == Path(path) else f"no file {path}; reading {file.name} instead"


def is_tsv(path: str | Path) -> bool:
    """Whether a file, which may be compressed, is named as a TSV."""
    return without_suffix(path).endswith(".tsv")


def _opened(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if str(path) == "-":
        try:  # a buffer of our own: Python cannot end while another thread waits for lines in its own
            return open(os.dup(sys.stdin.fileno()), "rb")
        except io.UnsupportedOperation:  # not a stream of the system
            return nullcontext(sys.stdin.buffer)
    return open_packed(path) or open(path, "rb")


def line_of(body: bytes | None, name: str | Path, number: int, errors: Errors) -> str | None:
    """The text of a line of a file; None stands for one over the limit."""
    if body is None:
        return None
    if errors == "replace":
        return body.decode("utf-8", "replace").replace("\0", "\ufffd")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        at, byte = error.start + 1, body[error.start]
        raise InputError(
            f"{name}:{number}: invalid UTF-8 at byte {at} (0x{byte:02x}); --errors replace goes on"
        ) from None
    if "\0" in text:
        at = body.index(0) + 1
        raise InputError(f"{name}:{number}: NUL at byte {at} (0x00); --errors replace goes on")
    return text


Mark = tuple[str, int, int, int]  # if it stays, the file has not changed
digests: dict[Mark, str] = {}  # of files that this process has hashed or read in a cache
_YOUNG = 2.0  # seconds: a file written more recently may change again within the same time stamp


def mark_of(path: str | Path) -> Mark | None:
    """The path, size and times of a text file; None if it is too new for them to show a change."""
    try:
        facts = os.stat(file := stored(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if time.time() - max(facts.st_mtime, facts.st_ctime) < _YOUNG:
        return None
    return os.path.abspath(file), facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def digest(path: str | Path) -> str:
    """A hash of the bytes of a text file, packed or not; an unchanged file is read once."""
    mark = mark_of(path)
    result = digests.get(mark) if mark else None
    if result is None:
        result = _hashed(stored(path), "blake2b")[:32]
        if mark is not None and mark_of(path) == mark:
            digests[mark] = result
    return result


def checksum(path: str | Path) -> str:
    """The SHA-256 of a file, as `sha256sum` prints it."""
    return _hashed(path, "sha256")


def _hashed(path: str | Path, function: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, function).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def refuse_links(paths: Iterable[Path], folder: Path) -> None:
    """Refuse a folder in which one of these paths is a link to a place outside of it."""
    home = folder.resolve()
    for path in paths:
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):  # links may go round
            raise InputError(
                f"{path}: a link that leads out of the folder; put what it leads to in its place"
            )


def refuse_odd(files: Iterable[Path], folders: Iterable[Path] = ()) -> None:
    """Refuse anything in place of these that is not a plain file or folder: opening a pipe waits for ever."""
    for paths, kind, fits in ((files, "plain file", Path.is_file), (folders, "folder", Path.is_dir)):
        for path in paths:
            if os.path.lexists(path) and not fits(path):
                raise InputError(f"{path}: not a {kind}; remove it or choose another --out")


def read_bounded(path: Path, most: int) -> bytes:
    """A file of a model folder, which may be a stranger's: a plain one, not led out of it, not too large."""
    refuse_links([path], path.parent)
    try:
        return read_at_most(path, most)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ValueError as problem:
        raise InputError(f"{path}: {problem}") from problem


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def parse_json(content: bytes, most: int = JSON_VALUES) -> Any:
    """Parse JSON; ValueError where it is not JSON, is nested too deeply or has more than `most` values.

    Values are counted before they take memory: one of two bytes can take a hundred.
    """
    check_values(content, most)
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as problem:
        raise ValueError("nested too deeply") from problem


def check_values(content: bytes, most: int) -> None:
    """Refuse JSON, or lines of it, with more than `most` values."""
    if _marks(content) > most and _marks(_STRING.sub(b"", content)) > most:
        raise ValueError(f"more than {most:,} values")


def _marks(content: bytes) -> int:
    """An upper bound of the number of values, less one: each but the first comes after one of these."""
    return sum(map(content.count, (b",", b"[", b"{", b":")))


def read_json(path: Path) -> Any:
    """The content of a JSON file; OSError and ValueError are passed on."""
    return parse_json(read_at_most(path, JSON_BYTES))


def read_at_most(path: Path, most: int) -> bytes:
    """The bytes of a plain file; ValueError where there are more than `most`."""
    if path.exists() and not path.is_file():  # a pipe may never end
        raise ValueError("not a plain file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"larger than {most >> 20} MiB")
    return content


def read_tail(path: Path, most: int = 1 << 20) -> str:
    """The last `most` bytes of a text."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - most))
        return file.read(most).decode("utf-8", "replace")


@contextmanager
def refuse_unwritable(out: Path, option: str = "--out") -> Iterator[None]:
    """Refuse an --out in which files cannot be made or opened."""
    try:
        yield
    except OSError as problem:
        reason = f"cannot be written to ({problem.strerror}); choose another {option}"
        raise InputError(f"{out}: {reason}") from problem


@contextmanager
def write_beside(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its place at `path` only when it is whole and on disk.

    Where its process is killed, a file that `parts` finds stays.
    """
    check_held(path)
    beside = Path(f"{path}.{os.getpid()}.part")
    try:
        beside.unlink(missing_ok=True)  # of a process that had this number before
        with beside.open("xb") as file:  # never through a link that stands there
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_held(path)  # it may have taken long
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync(beside.parent)


def write_whole(path: str | Path, content: bytes | str) -> None:
    """The same for a file whose content is at hand."""
    with write_beside(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def parts(folder: Path, name: str) -> Iterator[Path]:
    """The parts of files `name` (a pattern) in a folder that were not written to the end."""
    return (path for path in folder.glob(f"{name}.[0-9]*.part") if not path.is_dir())


def _sync(folder: Path) -> None:
    """Have the names in a folder on disk as well, where its file system can do that."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)
