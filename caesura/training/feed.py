"""The batches of an epoch; for a GPU they are padded to a few shapes and made ready by a thread meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from caesura.data.batching import Batch, BatchPlan, EpochBatches, Ids, Split, collate, rounded
from caesura.data.corpus import Corpus

Pairs = Corpus | Sequence[tuple[Ids, Ids]]  # a list is enough without given cuts
AHEAD = 3  # batches that wait for the GPU


class Planned(NamedTuple):
    """A batch of the plan, and the parts that this process computes."""

    rows: NDArray[np.int64]  # sentences by number
    parts: list[Batch]  # a single part if nothing is split


class Epochs:
    """The batches of one epoch after the other; while one is trained on, a thread plans the next."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan, self._next = plan, dict[int, Future[EpochBatches]]()

    def __call__(self, epoch: int) -> EpochBatches:
        planned = self._next.pop(epoch, None)
        batches = self._plan.epoch(epoch) if planned is None else planned.result()
        worker = ThreadPoolExecutor(1, "plan")
        self._next = {epoch + 1: worker.submit(self._plan.epoch, epoch + 1)}
        worker.shutdown(wait=False)
        return batches


def feed(
    corpus: Pairs, plan: Sequence[NDArray[np.int64]], device: torch.device, split: Split | None = None
) -> Iterator[Planned]:
    """The batches that `plan` names, in its order and in host memory, pinned where a GPU fetches them."""
    split = split or Split()
    if device.type != "cuda":
        for rows in plan:
            yield _planned(corpus, rows, split, collated)
        return
    with ThreadPoolExecutor(1, "feed") as worker:
        waiting: deque[Future[Planned]] = deque()
        for rows in plan:
            waiting.append(worker.submit(_pinned, corpus, rows, split))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _planned(
    corpus: Pairs,
    rows: NDArray[np.int64],
    split: Split,
    batch_of: Callable[[Pairs, NDArray[np.int64]], Batch],
) -> Planned:
    parts = [batch_of(corpus, part) for part in split(rows)]
    if split.size * split.parts > 1:
        whole = torch.tensor([_target_symbols(corpus, rows) + len(rows), len(rows)])
        parts = [replace(part, whole=whole) for part in parts]
    return Planned(rows, parts)


def _target_symbols(corpus: Pairs, rows: NDArray[np.int64]) -> int:
    """Without </s>; of a large batch, other processes compute most rows, which this one need not read."""
    if isinstance(corpus, Corpus):
        return corpus.target_symbols(rows)
    return sum(len(corpus[int(i)][1]) for i in rows)


def collated(corpus: Pairs, rows: NDArray[np.int64]) -> Batch:
    """A batch of these rows, padded to the longest."""
    return _marked(corpus, collate([corpus[i] for i in rows], rows, cuts=_cuts(corpus, rows)))


def padded(corpus: Pairs, rows: NDArray[np.int64]) -> Batch:
    """A batch padded to one of a few shapes, so that graphs can be used again."""
    pairs = [corpus[i] for i in rows]
    T, U = (max(len(pair[side]) for pair in pairs) + 1 for side in (0, 1))
    shape = rounded(len(rows)), rounded(T), rounded(U)
    return _marked(corpus, collate(pairs, rows, shape, _cuts(corpus, rows)))


def _cuts(corpus: Pairs, rows: NDArray[np.int64]) -> list[NDArray[np.int8]] | None:
    if not isinstance(corpus, Corpus):
        return None
    cuts = [marks for i in rows if (marks := corpus.cuts(int(i))) is not None]
    return cuts or None


def _marked(corpus: Pairs, batch: Batch) -> Batch:
    return batch.imitated() if isinstance(corpus, Corpus) and corpus.imitated else batch


def _pinned(corpus: Pairs, rows: NDArray[np.int64], split: Split) -> Planned:
    planned = _planned(corpus, rows, split, padded)
    return planned._replace(parts=[part.pin() for part in planned.parts])
