"""How boundaries agree with others: white space, BPE of the same text, gold; beside trivial cuts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from caesura.analysis.gold import Gold, GoldLine, before_space
from caesura.data.vocabulary import Vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError
from caesura.evaluation.boundaries import BoundaryCounts, BoundaryScores, f1, trivial
from caesura.inference import Translator

Bounds = Collection[int]

ALONE = ", alone"  # ends the name of a table of the gold's own text


@dataclass(frozen=True)
class Agreement:
    """Rows of boundaries against one reference segmentation."""

    reference: str
    about: str  # the reference in a few words
    sentences: int
    rows: dict[str, BoundaryScores]  # "model" first
    alone: bool = False  # of the gold's own text, not of the analysed one
    either_side: tuple[int, int] | None = (
        None  # where two gaps count for a boundary: the model's cuts, all gaps
    )

    @property
    def chance(self) -> float:
        """The mean F1 of as many cuts as the model's at random places."""
        model, places = self.rows["model"], self.rows["every character"].predicted
        if self.either_side is None:
            right = model.predicted * model.gold / places if places else 0.0
            return f1(model.predicted, model.gold, right)
        cuts, gaps = self.either_side
        share = cuts / gaps if gaps else 0.0  # of the gaps that are cut; cuts on both sides count as one
        return f1(cuts - model.gold * share**2, model.gold, model.gold * (1 - (1 - share) ** 2))


@dataclass
class AgreementTally:
    """Counts the agreement of rows with one reference, sentence by sentence."""

    reference: str
    about: str
    sentences: int = 0
    _rows: dict[str, BoundaryCounts] = field(default_factory=dict)
    _either_side: tuple[int, int] | None = None

    def add(
        self,
        rows: dict[str, Bounds],
        gold: Bounds,
        judged: Collection[int] | None = None,
        unmoved: dict[str, Bounds] | None = None,
    ) -> None:
        """One sentence; `judged`: the places on which the reference decides, None for all.

        `unmoved`: the rows before cuts on either side of a boundary became one.
        """
        self.sentences += 1
        if unmoved is not None:
            cuts, gaps = self._either_side or (0, 0)
            self._either_side = cuts + len(unmoved["model"]), gaps + len(unmoved["every character"])
        truth = set(gold)
        for name, bounds in rows.items():
            places = set(bounds) if judged is None else set(bounds) & set(judged)
            self._rows.setdefault(name, BoundaryCounts()).add(places, truth)

    def result(self) -> Agreement:
        """The scores so far."""
        rows = {name: counts.scores() for name, counts in self._rows.items()}
        return Agreement(self.reference, self.about, self.sentences, rows, either_side=self._either_side)


class Agreements:
    """The agreement of a model's cuts with every reference that a text has."""

    def __init__(self, bpe: Vocabulary | None, gold: Gold | None) -> None:
        self._bpe, self._gold = bpe, gold
        self._tallies: dict[str, AgreementTally] = {}

    def add(self, number: int, text: str, bounds: Bounds, own_gold: Bounds | None) -> None:
        """One sentence as the model cut it, with the gold boundaries that came with the text."""
        rows = _rows(text, bounds, self._bpe)
        spaces = rows["whitespace"]
        self._add("white space", "a cut before each word but the first", rows, spaces)
        moved: dict[str, Bounds] = {name: before_spaces(text, places) for name, places in rows.items()}
        about = "the same, where a cut after the space counts too"
        self._add("white space, either side", about, moved, spaces, unmoved=rows)
        if self._bpe is not None:
            about = f"byte-pair encoding of the same text, {len(self._bpe):,} symbols"
            self._add("BPE", about, rows, rows["BPE"])
        if own_gold is not None:
            self._add("gold", "the boundaries that came with the text", rows, own_gold)
        if self._gold is not None and (line := self._gold.in_text(number, text)) is not None:
            where = "whole words of the text that it lists" if self._gold.lexicon else "the same lines"
            self._add(self._gold.name, f"gold of {where}", rows, line.bounds, line.judged)

    def result(self) -> list[Agreement]:
        """All tables; one whose reference has no boundary anywhere is left out: nothing is said by it."""
        tables = [tally.result() for tally in self._tallies.values()]
        return [table for table in tables if table.rows["model"].gold]

    def _add(
        self,
        reference: str,
        about: str,
        rows: dict[str, Bounds],
        gold: Bounds,
        judged: Collection[int] | None = None,
        unmoved: dict[str, Bounds] | None = None,
    ) -> None:
        tally = self._tallies.setdefault(reference, AgreementTally(reference, about))
        tally.add(rows, gold, judged, unmoved)


def with_own_text(tables: list[Agreement], model: Translator, gold: Gold | None) -> list[Agreement]:
    """The tables, and one for the gold's own text unless its sentences are in a table already."""
    if gold is None or (gold.lines is not None and any(table.reference == gold.name for table in tables)):
        return tables
    alone = _on_own_text(model, gold)
    return tables if alone is None else [*tables, alone]


def _on_own_text(model: Translator, gold: Gold) -> Agreement | None:
    """A model on the gold's own sentences, or on its words by themselves; None for a file of boundaries."""
    lines = [line for line in gold.own_text() if line.text]
    if not lines:
        return None
    what = "single words" if gold.lexicon else "sentences of the file itself, without its spaces"
    cuts = [output.segmentation.bounds for output in model.process([line.text for line in lines], None)]
    table = agreement(f"{gold.name}{ALONE}", f"gold of {len(lines):,} {what}", cuts, lines)
    return replace(table, alone=True)


def agreement(name: str, about: str, cuts: Sequence[Bounds], gold: Sequence[GoldLine]) -> Agreement:
    """The agreement of cuts with gold lines, beside trivial cuts."""
    tally = AgreementTally(name, about)
    for bounds, line in zip(cuts, gold, strict=True):
        tally.add(_rows(line.text, bounds, None), line.bounds, line.judged)
    return tally.result()


def train_bpe(texts: Iterable[str], size: int) -> Vocabulary | None:
    """BPE of a text; None where its characters alone are more than `size`, or there are none."""
    try:
        return train_vocabulary("bpe", texts, size)
    except InputError:
        return None


def before_spaces(text: str, bounds: Bounds) -> tuple[int, ...]:
    """The boundaries, those right after white space moved before it."""
    return tuple(sorted({before_space(text, b) for b in bounds} - {0}))


def _rows(text: str, bounds: Bounds, bpe: Vocabulary | None) -> dict[str, Bounds]:
    """The boundaries of the model, and of cuts that do not depend on it."""
    rows: dict[str, Bounds] = {"model": bounds, **trivial(text)}
    if bpe is not None:
        rows["BPE"] = tuple(end for _, end in bpe.encode_spans(text)[1][:-1])
    return rows
