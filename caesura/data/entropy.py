"""Cuts where the next character is hard to predict: where a model's entropy is above a threshold.

Here the model counts n-grams; in `entropy_gru.py` it is a GRU.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from caesura.data.cuts import TextCuts
from caesura.data.files import read_bounded, write_beside
from caesura.data.ngrams import BOUNDARY, Floats, Level, NgramModel, count_ngrams
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.config import EntropyCuts

FORMAT = 1
MAX_BYTES = 16_000_000  # of a file
MAX_NGRAMS = 1 << 24  # of a file, of all lengths
MAX_COUNT = 1 << 48  # of one of them
MAX_ENTRIES = 100  # in the zip, which has 7; chance alone may look like one
TOLERANCE = 0.05  # of a target: many entropies of a text may be equal, and allow no closer rate
KEPT = 256  # thresholds for other rates
_EQUAL = 1e-9  # bits: other machines may round differently, but should cut at the same places


class EntropyModelCuts(TextCuts):
    """Cuts before each character whose entropy, or its rise from the one before, is above a threshold.

    `text` is the digest of the file from which model and threshold were learnt; "" if it is not known.
    """

    def __init__(self, threshold: float, rise: bool, text: str) -> None:
        self.threshold, self.rise, self.text = threshold, rise, text

    @abstractmethod
    def entropies(self, texts: Sequence[str]) -> list[Floats]:
        """Per character of each text, its entropy given the characters before it, in bits."""

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Write model and threshold, as plain data."""

    def at(self, target: float) -> EntropyModelCuts | None:
        """The same model with the threshold nearest to another rate; None where it needs the text again."""
        return None

    def scores(self, text: str) -> Floats:
        """Per character, the bits that are compared with the threshold; no cut comes before the first one."""
        return self.several_scores([text])[0]

    def several_scores(self, texts: Sequence[str]) -> list[Floats]:
        """The same for several texts."""
        entropies = self.entropies(texts)
        return [np.diff(values, prepend=np.nan) for values in entropies] if self.rise else entropies

    def offsets(self, text: str) -> list[int]:
        return self.several_offsets([text])[0]

    def several_offsets(self, texts: Sequence[str]) -> list[list[int]]:
        results = self.several_scores(texts)
        return [(np.flatnonzero(scores[1:] > self.threshold) + 1).tolist() for scores in results]


class NgramCuts(EntropyModelCuts):
    """Cuts by the entropy of n-grams."""

    def __init__(self, model: NgramModel, threshold: float, rise: bool = False, text: str = "") -> None:
        super().__init__(threshold, rise, text)
        self.model = model
        self._thresholds: dict[float, float] = {}  # by target, for `at`

    @classmethod
    def learn(cls, lines: Iterable[str], settings: EntropyCuts, text: str = "") -> NgramCuts:
        """Count a text, and find the threshold that cuts it into segments of the requested length."""
        assert settings.order is not None  # the config fills it in
        rise = settings.by == "rise"
        whole = count_ngrams(lines, settings.order + rise)  # with the previous character's history
        model = NgramModel(whole.alphabet, whole.levels[: settings.order])
        return cls(model, _threshold(model, whole.levels, rise, settings.target), rise, text)

    def at(self, target: float) -> NgramCuts | None:
        """The threshold from counts of how often every entropy occurred; a rise needs more counts."""
        if self.rise:
            return None
        threshold = self._thresholds.get(target)
        if threshold is None:
            threshold = _threshold(self.model, self.model.levels, False, target, math.inf)
            if len(self._thresholds) >= KEPT:  # other threads may store or clear at any moment
                self._thresholds.clear()
            self._thresholds[target] = threshold
        return NgramCuts(self.model, threshold, text=self.text)

    def entropies(self, texts: Sequence[str]) -> list[Floats]:
        return [self.model.entropies(text) for text in texts]

    @property
    def fingerprint(self) -> list[Any]:
        return ["entropy", self._digest]

    @cached_property
    def _digest(self) -> str:
        content = hashlib.blake2b(f"{FORMAT} {self.threshold!r} {self.rise}".encode(), digest_size=16)
        for name, values in self._arrays().items():
            content.update(f"\n{name} {values.dtype.str} {values.size}\n".encode())
            content.update(values.tobytes())
        return content.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write counts and threshold as a .npz."""
        content = io.BytesIO()
        arrays = {name: _narrow(values) for name, values in self._arrays().items()}
        if self.text:
            arrays["text"] = np.frombuffer(self.text.encode(), np.uint8)
        np.savez_compressed(content, format=FORMAT, threshold=self.threshold, **arrays)  # type: ignore[arg-type]
        if content.tell() > MAX_BYTES or arrays["counts"].size > MAX_NGRAMS:
            raise InputError(
                f"{path}: over {MAX_NGRAMS:,} n-grams, or {MAX_BYTES // 10**6} MB of them; set a smaller "
                "data.cuts.order"
            )
        with write_beside(path) as file:
            file.write(content.getvalue())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        levels = self.model.levels
        sizes = [len(level.symbols) for level in levels]
        followers = [
            np.bincount(level.parents, minlength=size)
            for level, size in zip(levels, [1, *sizes], strict=False)
        ]
        return {
            "alphabet": self.model.alphabet,
            "sizes": np.array(sizes, np.int64),  # n-grams of each length
            "followers": np.concatenate(followers),  # how many each has, the empty one first
            "symbols": np.concatenate([level.symbols for level in levels]),
            "counts": np.concatenate([level.counts for level in levels]),
        }


def load_ngrams(path: Path, settings: EntropyCuts) -> NgramCuts:
    """Read what `NgramCuts.save` wrote; refuse any other file, and one with other settings."""
    content = read_bounded(path, MAX_BYTES)
    try:
        if content.count(_ENTRY) > MAX_ENTRIES:  # each takes much more memory than it has bytes
            raise ValueError(f"it holds more than {MAX_ENTRIES} files")
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            number, threshold = int(_array(packed, "format")), float(_array(packed, "threshold"))
            if number != FORMAT:
                raise ValueError(f"its format is {number}, and this version reads {FORMAT}")
            if not np.isfinite(threshold):
                raise ValueError("its threshold should be a finite number")
            model, text = _model(packed), _text(packed)
    except (*_ZIP_ERRORS, ValueError, TypeError, KeyError, OSError, MemoryError, OverflowError) as problem:
        cause = problem.args[0] if isinstance(problem, KeyError) else problem  # str() would quote it
        reason = str(cause).partition("\n")[0] or type(problem).__name__
        raise InputError(f"{path}: not a file of n-grams: {reason}") from problem
    if model.order != settings.order:
        raise InputError(
            f"{path}: n-grams of up to {model.order}; data.cuts.order of this model is {settings.order}"
        )
    return NgramCuts(model, threshold, settings.by == "rise", text)


DIGEST = re.compile(rb"[0-9a-f]{1,128}")
_ENTRY = b"PK\1\2"  # starts one in a zip's list
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # numpy's; others may ask for much memory

# Of an array of at most one axis, as numpy writes it. Its own reader parses Python, and warns of old forms.
_HEADER = re.compile(
    rb"\{'descr': '([<>|][uif]\d)', 'fortran_order': False, 'shape': \((?:(\d{1,9}),)?\), \} *\n"
)


def _array(packed: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of numbers, whose header is read before it takes memory."""
    entry = packed.getinfo(f"{name}.npy")
    if entry.compress_type not in _COMPRESSIONS:
        raise ValueError(f"{name} is compressed in another way than numpy's")
    with packed.open(entry) as file:
        magic, length = file.read(8), int.from_bytes(file.read(2), "little")
        header = _HEADER.fullmatch(file.read(length))
        if magic != b"\x93NUMPY\1\0" or not header or int(header[2] or 1) > MAX_NGRAMS:
            raise ValueError(f"{name} should be at most {MAX_NGRAMS:,} numbers")
        dtype, size = np.dtype(header[1].decode()), int(header[2] or 1)
        values = np.frombuffer(
            file.read(size * dtype.itemsize), dtype, size
        )  # ValueError where it is cut off
    return values if header[2] else values.reshape(())


def _whole_numbers(packed: zipfile.ZipFile, name: str) -> NDArray[np.int64]:
    values = _array(packed, name)
    if values.ndim != 1 or values.dtype.kind != "u" or values.max(initial=0) > MAX_COUNT:
        raise ValueError(f"{name} should be a list of whole numbers, each at most {MAX_COUNT:,}")
    return values.astype(np.int64)


def _text(packed: zipfile.ZipFile) -> str:
    """The digest of the counted text; "" if the file has none."""
    if "text.npy" not in packed.namelist():
        return ""
    values = _array(packed, "text")
    if values.ndim != 1 or values.dtype != np.uint8 or not DIGEST.fullmatch(content := values.tobytes()):
        raise ValueError("text should be a digest")
    return content.decode()


def _model(packed: zipfile.ZipFile) -> NgramModel:
    """The model that the arrays of a file describe; ValueError where they describe none."""
    names = ("alphabet", "sizes", "followers", "symbols", "counts")
    alphabet, sizes, followers, symbols, counts = (_whole_numbers(packed, name) for name in names)
    if not len(alphabet) or (np.diff(alphabet) <= 0).any() or alphabet.max(initial=0) > 0x10FFFF:
        raise ValueError("alphabet should be code points in rising order")
    ends = [0, *accumulate(sizes.tolist())]
    if not len(sizes) or min(sizes) < 1 or not len(symbols) == len(counts) == ends[-1]:
        raise ValueError("sizes should be those of symbols and counts")
    if len(followers) != 1 + ends[-2] or followers.max() > ends[-1] or counts.min() < 1:
        raise ValueError("followers and counts should be there for each n-gram")
    if symbols.min() < BOUNDARY or symbols.max() > len(alphabet) + BOUNDARY:
        raise ValueError("symbols should be of the alphabet")
    starts = [0, *(1 + end for end in ends[:-1])]
    levels = []
    for (a, b), (c, d) in zip(pairwise(starts), pairwise(ends), strict=True):
        if followers[a:b].sum() != d - c:
            raise ValueError("followers should add up to the n-grams of the next length")
        level = Level(np.repeat(np.arange(b - a), followers[a:b]), symbols[c:d], counts[c:d])
        if ((np.diff(level.parents) == 0) & (np.diff(level.symbols) <= 0)).any():
            raise ValueError("n-grams should be sorted")
        levels.append(level)
    model = NgramModel(alphabet.astype(np.uint32), levels)
    _ = model.tables  # refuses n-grams that cannot be of a text
    return model


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """The same whole numbers in as few bytes as possible."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _threshold(
    model: NgramModel, levels: Sequence[Level], rise: bool, target: float, tolerance: float = TOLERANCE
) -> float:
    """The threshold for the counted text."""
    values, weights = (np.concatenate(parts) for parts in zip(*_gaps(model, levels, rise), strict=True))
    first = levels[0]
    lines = int(first.counts[first.symbols == BOUNDARY].sum())
    characters = int(first.counts.sum()) - lines
    return find_threshold(values, weights, lines, characters, target, tolerance)


def find_threshold(
    values: Floats, weights: Any, lines: int, characters: int, target: float, tolerance: float = TOLERANCE
) -> float:
    """The threshold whose segments have a mean length as close as possible to the requested one.

    `values` are the scores of gaps inside lines; a weight says how often each occurs. The last segment of
    each line counts: (cuts + lines) / characters = 1 / target.
    """
    if target * lines > characters:
        raise ValueError(
            f"target {target:g} is longer than the average line of the training text, "
            f"{characters / lines:.2f} characters; choose a smaller one"
        )
    order = np.argsort(-values, kind="stable")
    values, cuts = values[order], np.append(0, np.cumsum(weights[order]))
    # A threshold may be before the first value, after the last, and between two that are not equal.
    free = np.flatnonzero(np.concatenate(([True], -np.diff(values) > _EQUAL, [True][: len(values)])))
    lengths = characters / (cuts[free] + lines)
    errors = np.abs(lengths / target - 1)
    best = int(errors.argmin())
    if errors[best] > tolerance:
        near = " or ".join(f"{n:.2f}" for n in lengths[max(0, best - 1) : best + 2][::-1])
        raise ValueError(
            f"target {target:g} cannot be met, because many entropies are equal; choose {near}, "
            "or another model of characters"
        )
    at = free[best]
    if not 0 < at < len(values):  # nowhere, or everywhere
        return float(values[0] + 1 if at == 0 else values[-1] - 1) if len(values) else 0.0
    return float((values[at - 1] + values[at]) / 2)


def _gaps(model: NgramModel, levels: Sequence[Level], rise: bool) -> Iterator[tuple[Floats, Any]]:
    """The values of `NgramCuts.scores` at the gaps of the text that was counted, and how often each occurs.

    A gap is before the last character of an n-gram: of the longest ones, or of any that starts a line.
    """
    entropies, suffixes, *_ = model.tables
    after = [*entropies, entropies[-1][suffixes[-1]]]  # by the n-gram of 0, 1, ... characters before
    starts = np.empty(0, bool)  # whether a boundary is first
    for n, level in enumerate(levels):
        starts = starts[level.parents] if n else level.symbols == BOUNDARY
        inner = np.where(starts, n > 1, n + 1 == len(levels))  # a boundary and one character: it is the first
        chosen = np.flatnonzero(inner & (level.symbols != BOUNDARY))
        values = after[n][level.parents[chosen]]
        if rise:
            values = values - after[n - 1][levels[n - 1].parents[level.parents[chosen]]]
        yield values, level.counts[chosen]
