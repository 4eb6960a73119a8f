"""A file of offsets for a training text: better cuts for some of its sentences, and `?` for all others.

Beside it, NAME.jsonl has one line on what the cuts were made from, and one per sentence. A later call
continues there.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from caesura.analysis.moves import better_cuts
from caesura.data.corpus import ParallelText
from caesura.data.cuts import UNKNOWN
from caesura.data.files import refuse_unwritable, write_whole
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.training.prepare import LONGEST

TOGETHER = 64  # sentences whose cuts are moved in the same batches


@dataclass(frozen=True)
class Lesson:
    """A line of the training text, from 0, and where to cut it. Losses: nats per target symbol."""

    line: int
    characters: int
    offsets: list[int]
    before: float
    after: float
    moves: int


@dataclass(frozen=True)
class Sample:
    """Some lines of a training text, in the order in which their cuts are moved."""

    model: Translator
    text: ParallelText
    lines: list[int]
    count: int  # of all lines

    @classmethod
    def draw(cls, model: Translator, text: ParallelText, sentences: int, seed: int) -> Sample:
        """A sample of the pairs that are short enough; a larger sample begins with the smaller one."""
        data, count, fit = model.config.data, 0, []
        for number, (src, trg, _) in enumerate(text.pairs(data.errors, with_bounds=False)):
            count = number + 1
            if src and trg and src.strip() and trg.strip():
                most = data.max_chars or LONGEST
                if max(len(src), len(trg)) <= min(most, model.config.testing.max_input):
                    fit.append(number)
        random.Random(seed).shuffle(fit)
        if not fit:
            raise InputError(f"{text.src}: no sentence that could be cut better")
        return cls(model, text, fit[:sentences], count)

    def lessons(self, done: int, rounds: int) -> Iterator[list[Lesson]]:
        """Better cuts for all but the first `done` lines, TOGETHER lines at a time."""
        lines = self.lines[done:]
        wanted, pairs = {*lines}, {}
        everything = self.text.pairs(self.model.config.data.errors, with_bounds=False)
        for number, (src, trg, _) in enumerate(everything):
            if number in wanted:
                pairs[number] = str(src), str(trg)
        rest = iter(lines)
        while some := [*islice(rest, TOGETHER)]:
            yield self._lessons({line: pairs[line] for line in some}, rounds)

    def _lessons(self, pairs: dict[int, tuple[str, str]], rounds: int) -> list[Lesson]:
        sources, targets = zip(*pairs.values(), strict=True)
        lessons = []
        for line, src, moved in zip(
            pairs, sources, better_cuts(self.model, sources, targets, rounds), strict=True
        ):
            ends = [end for _, end in self.model.src_vocabulary.encode_spans(src)[1]]
            offsets = sorted({ends[i] for i in moved.cuts} - {len(src)})
            lessons.append(Lesson(line, len(src), offsets, moved.before, moved.after, moved.moves))
        return lessons


@dataclass(frozen=True)
class Summary:
    """What better cuts gain. Losses: means over sentences, in nats per target symbol."""

    sentences: int
    before: float
    after: float
    moves: float  # per sentence
    length: float  # characters per segment

    @classmethod
    def of(cls, lessons: list[Lesson]) -> Summary:
        """The summary of at least one lesson."""
        segments = sum(len(lesson.offsets) + 1 for lesson in lessons)
        return cls(
            sentences=len(lessons),
            before=fmean(lesson.before for lesson in lessons),
            after=fmean(lesson.after for lesson in lessons),
            moves=fmean(lesson.moves for lesson in lessons),
            length=sum(lesson.characters for lesson in lessons) / segments,
        )


def teach(
    sample: Sample,
    out: Path,
    rounds: int,
    made_from: dict[str, Any],
    report: Callable[[int], None],
    seconds: float | None = None,
) -> tuple[Summary, bool]:
    """Write better cuts to `out`, from where an earlier call ended; whether all are done.

    Calls that would write different cuts differ in `made_from`. After so many `seconds`, the call ends.
    """
    began, log = time.monotonic(), Path(f"{out}.jsonl")
    with refuse_unwritable(out):
        lessons = _kept(log, made_from)[: len(sample.lines)]
        report(len(lessons))
        for part in sample.lessons(len(lessons), rounds):
            lessons += part
            rows = [made_from, *map(asdict, lessons)]
            write_whole(log, "".join(json.dumps(row) + "\n" for row in rows))
            report(len(part))
            if seconds is not None and time.monotonic() - began > seconds:
                break
        offsets = {lesson.line: " ".join(map(str, lesson.offsets)) for lesson in lessons}
        write_whole(out, "".join(f"{offsets.get(line, UNKNOWN)}\n" for line in range(sample.count)))
    return Summary.of(lessons), len(lessons) == len(sample.lines)


def _kept(log: Path, made_from: dict[str, Any]) -> list[Lesson]:
    """The lessons that earlier calls have written; refused if those calls had another `made_from`."""
    if not log.exists():
        return []
    try:
        header, *rows = map(json.loads, log.read_text(encoding="utf-8").splitlines())
        header, lessons = dict(header), [Lesson(**row) for row in rows]
    except (ValueError, TypeError) as problem:
        raise InputError(f"{log}: not what an earlier call wrote; choose another --out") from problem
    if header != made_from:
        changed = next(key for key in made_from if header.get(key) != made_from[key])
        raise InputError(f"{log}: from a call with another {changed}; choose another --out")
    return lessons
