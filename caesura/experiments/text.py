"""The text of an experiment in numbers: the paper's Table 1 and a little more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.analysis.tables import Cell, Column, Table
from caesura.config import Config
from caesura.data.files import read_json
from caesura.errors import InputError
from caesura.experiments.recipe import Splits
from caesura.experiments.results import FIGURES, SystemResult
from caesura.training.prepare import parallel_text


@dataclass(frozen=True)
class Lengths:
    """One side of a text, in characters; spaces count."""

    mean: float
    longest: int


@dataclass(frozen=True)
class Split:
    """Train, dev or test."""

    name: str
    sentences: int
    src: Lengths
    trg: Lengths
    text: str = ""  # its name, if a recipe has several texts


def measure_text(config: Config, text: str = "") -> list[Split]:
    """Count the sentences and characters of a config's text."""
    splits = []
    for name in ("train", "dev", "test"):
        corpus = getattr(config.data, name)
        if corpus is None:
            continue
        count, sums, longest = 0, [0, 0], [0, 0]
        for pair in parallel_text(corpus).pairs(config.data.errors, with_bounds=False):
            count += 1
            for side in (0, 1):
                length = len(pair[side] or "")
                sums[side] += length
                longest[side] = max(longest[side], length)
        means = [total / max(1, count) for total in sums]
        src, trg = (Lengths(m, n) for m, n in zip(means, longest, strict=True))
        splits.append(Split(name, count, src, trg, text))
    return splits


def kept_text(path: Path) -> list[Split]:
    """The counts that a table.json has; none where there is no such file."""
    if not path.exists():
        return []
    try:
        return [
            Split(**split | {side: Lengths(**split[side]) for side in ("src", "trg")})
            for split in read_json(path)["text"]
        ]
    except (ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{path}: not the tables of a recipe: {problem!r}") from problem


def text_table(splits: Sequence[Split], paper: Splits | None) -> Table:
    """The paper's Table 1 for this text, with lengths."""
    columns = [Column("split"), Column("sentences", ",")]
    several = len({s.text for s in splits}) > 1
    for side in ("source", "target"):
        columns += [Column(f"{side} characters", ".1f"), Column("longest", "d")]
    rows: list[list[Cell]] = [
        [
            f"{s.text}, {s.name}" if several else s.name,
            *(s.sentences, s.src.mean, s.src.longest, s.trg.mean, s.trg.longest),
        ]
        for s in splits
    ]
    if paper is not None:
        columns.append(Column(f"the paper's sentences{f' ({paper.name})' if paper.name else ''}", ","))
        rows = [[*row, getattr(paper, split.name)] for row, split in zip(rows, splits, strict=True)]
    return Table("text", "Table 1: the text (mean length and longest line, in characters)", columns, rows)


def like_for_like(splits: Sequence[Split], paper: Splits | None, text: str) -> str:
    """A note where a training text differs from the paper's, which makes scores hard to compare."""
    train = next((s.sentences for s in splits if (s.name, s.text) == ("train", text)), None)
    if paper is None or train is None:
        return ""
    if paper.name:
        ours = f"{text or 'other text'} ({train:,} pairs)"
        return (
            f"The paper's text is {paper.name} ({paper.train:,} pairs), ours is {ours}: compare the order of "
            "the systems; no score is like for like."
        )
    if train == paper.train:
        return ""
    share = f"{train / paper.train:.0%} of the paper's {paper.train:,}"
    read = "of which each system reads those within its limits"
    return f"The training text has {train:,} pairs, {share}, {read}: the scores are not like for like."


def reading_table(results: Sequence[SystemResult]) -> Table:
    """The part of the text that each system reads: its symbols, and the pairs within its limits."""
    rows: list[list[Cell]] = []
    for result in results:
        begun = [(o.start, o) for o in result.outcomes.values() if o.start]
        if not begun:
            continue
        start, outcome = max(begun, key=lambda pair: "symbols" in pair[0])  # which older logs lack
        kept = [*start.get("symbols", (None, None)), FIGURES["pairs"](outcome)]
        dropped = start["training"].partition("; dropped: ")[2]
        rows.append([result.system.name, start["src_vocabulary"], start["trg_vocabulary"], *kept, dropped])
    columns = [Column("system"), Column("source vocabulary", ","), Column("target vocabulary", ",")]
    columns += [Column("source symbols", ".1f"), Column("target symbols", ".1f")]
    columns += [Column("pairs", ","), Column("dropped")]
    return Table("reading", "What each system reads (mean symbols per training sentence)", columns, rows)
