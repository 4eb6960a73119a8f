"""Cuts of a training text where the translation goes on with another word.

The source is spelled in small symbols of BPE, the target in large ones, which are mostly words. A hidden
Markov model links each source symbol to a target symbol, or to none. The next symbol shares the link of the
one before it, or it has a link of its own: the nearer to the diagonal, the more probable (as in fast_align,
Dyer et al. 2013). A segment ends where a link of its own is more probable than a threshold.
B sentences, I source symbols, J target symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from caesura.data.corpus import Pair, ParallelText
from caesura.data.cuts import CutsReader, TextCuts, unknown
from caesura.data.entropy import TOLERANCE, find_threshold
from caesura.data.files import Errors
from caesura.data.ngrams import Floats
from caesura.data.vocabulary import Vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.config import AlignmentCuts
    from caesura.data.blocks import Block

FORMAT = 1  # of the alignment: texts aligned in another format are aligned again
SAMPLE = 60_000  # at most so many pairs teach the model, evenly spread
WORDS = 8_000  # target symbols
ROUNDS = 5  # of expectation and maximization
NONE = 0.08  # the prior of no target symbol
TENSION = 4.0  # of the diagonal: how fast the prior falls with the distance from it
SMOOTHING = 0.01  # added to each count, so that rare target symbols do not take everything
LINKS = 1 << 19  # in memory at a time

LONGEST = 2_000  # characters of a sentence that is aligned

Ints = NDArray[np.int64]
Sentences = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Links:
    """The possible links of some sentences of I source and J target symbols, padded; J + 1 with none."""

    symbols: Ints  # [B, I] source symbol
    words: Ints  # [B, J + 1] target symbol + 1; 0: none
    prior: Floats  # [I, B, J + 1] sums to 1; 0 on padding
    real: NDArray[np.bool_]  # [I, B] False: padding

    @classmethod
    def of(cls, pairs: Sequence[tuple[Ints, Ints]]) -> Links:
        """All links between source and target symbols of each pair."""
        heights, widths = (np.array([len(pair[side]) for pair in pairs]) for side in (0, 1))
        symbols = np.zeros((len(pairs), heights.max()), np.int64)
        words = np.zeros((len(pairs), 1 + widths.max()), np.int64)
        for b, (source, target) in enumerate(pairs):
            symbols[b, : len(source)], words[b, 1 : 1 + len(target)] = source, target + 1
        row, column = np.arange(symbols.shape[1])[:, None], np.arange(words.shape[1]) - 1
        share = (column + 0.5) / np.maximum(widths, 1)[:, None]  # [B, J + 1], of the way through the target
        far = np.abs(((row + 0.5) / heights)[..., None] - share)
        near = np.exp(-TENSION * far) * ((column >= 0) & (column < widths[:, None]))
        prior = near * (1 - NONE) / np.maximum(near.sum(2, keepdims=True), np.finfo(float).tiny)
        prior[..., 0] = NONE
        return cls(symbols, words, prior, row < heights)

    def posterior(self, table: Floats, staying: float) -> tuple[Floats, Floats]:
        """[I, B, J + 1]: the probability of each link. [I - 1, B]: that a gap's two symbols share one."""
        emitted = table[self.words, self.symbols.T[..., None]]  # [I, B, J + 1]
        forward, backward = self.prior * emitted, np.ones_like(emitted)
        scale = np.ones(self.real.shape)
        stays = np.zeros((len(emitted) - 1, emitted.shape[1]))
        for i in range(len(emitted)):
            if i:
                forward[i] = emitted[i] * (staying * forward[i - 1] + (1 - staying) * self.prior[i])
            scale[i] = forward[i].sum(1)
            forward[i] /= scale[i, :, None]
        for i in range(len(emitted) - 2, -1, -1):
            ahead = emitted[i + 1] * backward[i + 1] / scale[i + 1, :, None]
            moved = (1 - staying) * (self.prior[i + 1] * ahead).sum(1, keepdims=True)
            inner = self.real[i + 1]
            backward[i] = np.where(inner[:, None], staying * ahead + moved, 1)
            stays[i] = np.where(inner, staying * (forward[i] * ahead).sum(1), 0)
        return forward * backward * self.real[..., None], stays


def learn_links(
    pairs: Sequence[tuple[Ints, Ints]],
    words: int,
    symbols: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Floats, float]:
    """[words + 1, symbols]: how probable each source symbol is given a target symbol, or none; by EM.

    And how probable it is that the next source symbol has the same link. `progress` gets the number of pairs
    done, and of all; each round counts its pairs again.
    """
    table, staying, done = np.full((words + 1, symbols), 1 / symbols), 0.5, 0
    for _ in range(ROUNDS):
        counts, stays, gaps = np.full(table.shape, SMOOTHING), 0.0, 0
        for part in parts(pairs):
            links = Links.of([pairs[i] for i in part])
            linked, stayed = links.posterior(table, staying)
            places = links.words * symbols + links.symbols.T[..., None]
            np.add.at(counts.reshape(-1), places, linked)
            stays, gaps = stays + stayed.sum(), gaps + int(links.real[1:].sum())
            done += len(part)
            progress(done, ROUNDS * len(pairs))
        table, staying = counts / counts.sum(1, keepdims=True), float(stays / max(1, gaps))
    return table, staying


def parts(pairs: Sequence[tuple[Ints, Ints]]) -> Iterator[Ints]:
    """Which pairs go together: those of similar length, and of about LINKS links."""
    sizes = [(len(source), len(target) + 1) for source, target in pairs]
    order = sorted(range(len(pairs)), key=sizes.__getitem__)
    start, widest = 0, 0
    for end, i in enumerate(order):
        widest = max(widest, sizes[i][1])
        if end > start and (end + 1 - start) * sizes[i][0] * widest > LINKS:
            yield np.array(order[start:end])
            start, widest = end, sizes[i][1]
    if pairs:
        yield np.array(order[start:])


class Aligner:
    """A model of translations, which cuts pairs of sentences."""

    def __init__(self, vocabularies: tuple[Vocabulary, Vocabulary], table: Floats, staying: float) -> None:
        self.vocabularies, self.table, self.staying = vocabularies, table, staying
        self.threshold = 0.5

    @classmethod
    def learn(
        cls,
        text: Callable[[], Sentences],
        usual: Callable[[], Sentences],
        settings: AlignmentCuts,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Aligner:
        """Learn from a text, in several passes; `usual`, a sample like the whole text, sets the threshold.

        ValueError if no threshold gives the cuts that the settings ask for.
        """
        try:
            symbols = train_vocabulary("bpe", (src for src, _ in text()), settings.voc_limit)
        except InputError as problem:
            raise ValueError(f"voc_limit {settings.voc_limit}: {problem}") from problem
        try:
            words = train_vocabulary("bpe", (trg for _, trg in text()), WORDS)
        except InputError:  # a script of thousands of characters
            words = train_vocabulary("char", (trg for _, trg in text()), WORDS)
        vocabularies = symbols, words
        spelled = [spell(vocabularies, *pair)[:2] for pair in text()]
        aligner = cls(vocabularies, *learn_links(spelled, len(words), len(symbols), progress))
        scores = np.concatenate(aligner.scores([spell(vocabularies, *pair)[:2] for pair in usual()]))
        lengths, target = [len(src) for src, _ in usual()], settings.target
        shortest = sum(lengths) / (len(scores) + len(lengths))
        if shortest > target * (1 + TOLERANCE):
            raise ValueError(
                f"target {target:g} is shorter than the {settings.voc_limit} symbols that are aligned, which "
                f"have {shortest:.2f} characters; choose a smaller voc_limit or a larger target"
            )
        even = np.ones(len(scores))
        aligner.threshold = find_threshold(scores, even, len(lengths), sum(lengths), target, math.inf)
        return aligner

    def scores(self, pairs: Sequence[tuple[Ints, Ints]]) -> list[Floats]:
        """Per gap between two source symbols, the probability that the second has a link of its own."""
        result = [np.empty(0)] * len(pairs)
        for part in parts(pairs):
            _, stays = Links.of([pairs[i] for i in part]).posterior(self.table, self.staying)
            for b, i in enumerate(part):
                result[i] = 1 - stays[: len(pairs[i][0]) - 1, b]
        return result

    def offsets(self, pairs: Sequence[tuple[str, str]]) -> list[list[int]]:
        """Where to cut the source of each pair."""
        spelled = [spell(self.vocabularies, *pair) for pair in pairs]
        scores = self.scores([(source, target) for source, target, _ in spelled])
        return [
            ends[:-1][score > self.threshold].tolist()
            for (*_, ends), score in zip(spelled, scores, strict=True)
        ]


def spell(vocabularies: tuple[Vocabulary, Vocabulary], src: str, trg: str) -> tuple[Ints, Ints, Ints]:
    """The symbols of both sides, and where those of the source end."""
    ids, spans = vocabularies[0].encode_spans(src)
    ends = np.array([end for _, end in spans])
    return np.array(ids), np.array(vocabularies[1].encode(trg)), ends


class AlignedCuts:
    """The cuts of a training text where the aligned target word changes."""

    one_process = True  # keeps what it has learned

    def __init__(
        self,
        text: ParallelText,
        settings: AlignmentCuts,
        blame: Callable[[], AbstractContextManager[None]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`blame` makes a ValueError one about the settings; `progress` is that of `learn_links`."""
        self.text, self.settings, self._blame, self._progress = text, settings, blame, progress
        self._aligner: Aligner | None = None

    @property
    def fingerprint(self) -> list[Any]:
        """What decides where the text is cut, besides the text."""
        return [self.settings.type, FORMAT, self.settings.target, self.settings.voc_limit]

    def reader(self, errors: Errors = "strict", block: Block | None = None) -> CutsReader:
        """Reads the lines of the text, or of a block of it; the first reader learns from all of it."""
        if self._aligner is None:
            self._aligner = self._learnt(errors)
        if block is None:
            return AlignedReader(self._aligner, self.text.pairs(errors, with_bounds=False))
        return AlignedReader(self._aligner, self.text.pairs_of(block, errors, with_bounds=False))

    def _learnt(self, errors: Errors) -> Aligner:
        every = -(-sum(1 for _ in self.text.pairs(errors, with_bounds=False)) // SAMPLE)

        def sample(every: int) -> Iterator[tuple[str, str]]:
            pairs = islice(self.text.pairs(errors, with_bounds=False), 0, None, every)
            return (pair for pair in map(_usable, pairs) if pair is not None)

        # Pairs that the model has seen get fewer cuts. The second sample has the usual share of such pairs.
        usual = every + 1 if every > 1 else 1
        with self._blame():
            texts = partial(sample, max(1, every)), partial(sample, usual)
            return Aligner.learn(*texts, self.settings, self._progress)


class AlignedReader(CutsReader):
    """Reads a text and its translation together."""

    def __init__(self, aligner: Aligner, pairs: Iterator[Pair]) -> None:
        self._aligner, self._pairs = aligner, pairs
        self._next: list[list[int] | None] = []  # offsets of the next lines, in reverse; None: not known
        self._offsets: list[int] | None = None  # of this line

    def ahead(self, texts: Iterable[str | None]) -> None:
        some = [*map(_usable, islice(self._pairs, sum(1 for _ in texts)))]
        offsets = iter(self._aligner.offsets([pair for pair in some if pair is not None]))
        self._next = [None if pair is None else next(offsets) for pair in some][::-1]

    def advance(self, text: str | None) -> None:
        self._offsets = self._next.pop()

    def cuts(self, text: str, places: NDArray[np.int32]) -> NDArray[np.int8]:
        return unknown(places) if self._offsets is None else TextCuts.marks(self._offsets, places)


def _usable(pair: Pair) -> tuple[str, str] | None:
    """Source and target, if both have text and neither is too long."""
    src, trg, _ = pair
    if src is None or trg is None or not src.strip() or not trg.strip():
        return None
    return (src, trg) if max(len(src), len(trg)) <= LONGEST else None
