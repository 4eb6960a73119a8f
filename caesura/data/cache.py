"""The folder in which all runs keep text as numbers; each file's name is a hash of what it was made from."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.data.blocks import text_size
from caesura.data.corpus import PLACE, Corpus, Counted, identity
from caesura.data.files import Mark, digests, mark_of, parse_json, parts, read_at_most, write_whole
from caesura.data.held import make_folder
from caesura.data.numbering import Counting, Numbering, TextCounts, count_text
from caesura.data.words import side_of
from caesura.errors import InputError

BESIDE = "caesura-cache"  # the folder beside the text
TAG = "CACHEDIR.TAG"  # by which backups and other programs know a cache: https://bford.info/cachedir/
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# Caesura keeps text as numbers here, so that no training has to make them twice. NAME.bin has the ids of all
# pairs, NAME.idx where they begin and what they were made from, NAME.cut the cuts of sources. NAME.counts
# has how often characters and words occur, NAME.hash the hash of an unchanged text; while one process makes
# a file, NAME.lock keeps others waiting.
# Everything here may be deleted at any time: what a training needs is made again.
"""
_LARGE = 1 << 24  # bytes: hash and counts of texts as large as this are kept in files
COUNTS, COUNTS_BYTES = 1, 1 << 28  # their format; the most bytes that are read of one
_PAUSE = 0.1  # seconds between two looks at a lock


@dataclass(frozen=True)
class Cache:
    """Where the numbers of a text lie: in `folder`, or, where that cannot be written to, in `spare`."""

    folder: Path
    spare: Path

    @classmethod
    def of(cls, text: Path, spare: Path) -> Cache:
        """The folder that CAESURA_CACHE names, or the one beside a text; `spare` belongs to the run."""
        place = os.environ.get(PLACE)
        return cls(Path(os.path.abspath(place) if place else os.path.abspath(text.parent / BESIDE)), spare)

    @contextmanager
    def remembering(self, texts: Iterable[Path]) -> Iterator[None]:
        """Inside, unchanged texts are not hashed again; afterwards their hashes are in the cache too."""
        marks = [mark for path in texts if (mark := mark_of(path)) and mark[1] >= _LARGE]
        for mark in marks:
            for folder in (self.folder, self.spare):
                with suppress(OSError, ValueError):
                    if re.fullmatch("[0-9a-f]{32}", content := _hash_file(folder, mark).read_text("ascii")):
                        digests.setdefault(mark, content)
        yield
        writable = [folder for folder in (self.folder, self.spare) if os.access(folder, os.W_OK)]
        for mark in marks if writable else ():
            with suppress(OSError):  # it would only have saved time
                if mark in digests and not (path := _hash_file(writable[0], mark)).exists():
                    write_whole(path, digests[mark])

    def find(self, numbering: Numbering, whole: bool = False) -> Corpus | None:
        """The text as numbers, if the cache has it; `whole`: its checksums are compared."""
        made_from = identity(numbering)
        for folder in (self.folder, self.spare):
            if (found := Corpus.made(folder / _named(made_from), made_from, whole)) is not None:
                return found
        return None

    def counts(
        self,
        counting: Counting,
        progress: Counted = lambda done, total: None,
        say: Callable[[str], None] = lambda message: None,
        cores: int = 1,
    ) -> TextCounts:
        """What occurs in the text; of a large one, this is remembered, unless its vocabulary is of words."""
        if any(counting.split) or text_size(counting.text.files()) < _LARGE:
            return count_text(counting, progress, cores)
        made_from = {"counts": COUNTS, "text": counting.text.digests(), "errors": counting.errors}
        name = f"{_named(made_from)}.counts"
        for folder in (self.folder, self.spare):
            if (counts := _read_counts(folder / name)) is not None:
                return counts
        with self._building(_named(made_from), progress, say) as folder:
            if (counts := _read_counts(folder / name)) is None:
                counts = count_text(counting, progress, cores)
                content = json.dumps([counts.characters, [vars(side) for side in counts.words]])
                if counting.text.digests() == made_from["text"]:  # it has not changed meanwhile
                    write_whole(folder / name, f"{_hashed(content)}\n{content}")
            return counts

    def corpus(
        self,
        numbering: Numbering,
        progress: Counted = lambda done, total: None,
        say: Callable[[str], None] = lambda message: None,
        cores: int = 1,
        whole: bool = False,
    ) -> Corpus:
        """The text as numbers; if the cache does not have them, one process makes them."""
        if (found := self.find(numbering, whole)) is not None:
            return found
        made_from = identity(numbering)
        with self._building(name := _named(made_from), progress, say) as folder:
            found = Corpus.made(folder / name, made_from, whole, say)  # the other process made it
            return Corpus.make(folder / name, numbering, progress, say, cores) if found is None else found

    @contextmanager
    def _building(self, name: str, progress: Counted, say: Callable[[str], None]) -> Iterator[Path]:
        """The folder for new numbers, while no other process makes the same."""
        folder = self._place(say)
        try:
            with _alone(folder, name, lambda: progress(0, 0), say):
                yield folder
        except FileNotFoundError as problem:
            raise InputError(f"{folder}: was removed meanwhile; the same command makes it again") from problem
        except OSError as problem:  # a full disk does not say which
            problem.filename = problem.filename or str(folder)
            raise

    def _place(self, say: Callable[[str], None]) -> Path:
        """The folder for new numbers: the cache, if it can be written to."""
        if _writable(self.folder):
            with suppress(OSError):
                for name, content in ((TAG, _TAG), (".gitignore", "*\n")):
                    if not (path := self.folder / name).exists():
                        write_whole(path, content)
            return self.folder
        if os.environ.get(PLACE):
            raise InputError(f"{self.folder}: cannot be written to; set {PLACE} to another folder")
        if not any(self.spare.glob("*.lock")):  # else the notice was shown before
            remedy = f"{PLACE}=FOLDER would keep it for all runs"
            say(f"{self.folder}: cannot be written to; the text as numbers goes to {self.spare}; {remedy}")
        make_folder(self.spare)
        return self.spare


def _hashed(content: str) -> str:
    return hashlib.blake2b(content.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _named(made_from: dict[str, Any]) -> str:
    return _hashed(json.dumps(made_from))


def _hash_file(folder: Path, mark: Mark) -> Path:
    return folder / f"{_hashed(repr(mark))}.hash"


def _read_counts(path: Path) -> TextCounts | None:
    """The counts of an earlier process; None if they are missing or damaged."""
    try:
        expected, _, content = read_at_most(path, COUNTS_BYTES).decode().partition("\n")
        if _hashed(content) != expected:
            return None
        characters, words = parse_json(content.encode())
        src, trg = map(side_of, words)
        return TextCounts(
            (Counter(characters[0]), Counter(characters[1])), (Counter(), Counter()), (src, trg)
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _writable(folder: Path) -> bool:
    try:
        make_folder(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@contextmanager
def _alone(
    folder: Path, name: str, waiting: Callable[[], None], say: Callable[[str], None]
) -> Iterator[None]:
    """Inside, no other process numbers this text, if the file system has locks; they end with a process.

    Without locks, several processes may write the same bytes, and the last one's stay. Files that killed
    processes have left half written are removed.
    """
    lock, said = _opened(folder / f"{name}.lock"), False
    try:
        while (locked := _locked(lock)) is False:
            if not said:
                say(f"{folder}: another process is reading this text; waiting for it")
            said = True
            waiting()
            time.sleep(_PAUSE)
        for leftover in parts(folder, "*") if locked else ():
            with suppress(OSError):
                _remove(leftover, name)
        yield
    finally:
        os.close(lock)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except PermissionError:  # another user's
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)


def _locked(lock: int) -> bool | None:
    """Whether this process now holds the lock; None if there are no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno not in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
            raise
        return None
    return True


def _remove(leftover: Path, name: str) -> None:
    """Remove a file that was not written to the end, unless another process is writing it."""
    if (other := leftover.name.split(".")[0]) == name:
        leftover.unlink()
        return
    lock = os.open(leftover.with_name(f"{other}.lock"), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _locked(lock):
            leftover.unlink()
    finally:
        os.close(lock)
