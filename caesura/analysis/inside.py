"""What a model does inside, in numbers kept when it is gone: `caesura analyze MODEL --only inside`.

The paper's Table 5, its examples (Tables 3, 6 and 7), and its plots of gates and attention as means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from caesura.analysis.attention import AttentionStatistics, attention_statistics
from caesura.analysis.characters import visible
from caesura.analysis.cuts import segmented
from caesura.analysis.findings import plain
from caesura.analysis.gates import AROUND, GateStatistics, gate_statistics
from caesura.analysis.lines import Line, subsample
from caesura.analysis.moved import StageReport
from caesura.analysis.segments import SegmentStatistics, SegmentTally
from caesura.analysis.sentences import Reading, choose, reading
from caesura.analysis.tables import Cell, Column, Table
from caesura.analysis.training_text import TrainingText
from caesura.evaluation.pieces import join_pieces
from caesura.inference import Translator

EXAMPLES = 4  # the same lines for every model
LENGTHS = 6  # of segments that are listed
CHARACTERS = 12  # listed with their counts alone and within longer segments

Records = Mapping[str, Mapping[str, Any]]  # by the names of models


@dataclass(frozen=True)
class Inside:
    """Measurements of one model on one text."""

    segments: SegmentStatistics
    gates: GateStatistics | None  # None: no recurrent encoder
    attention: AttentionStatistics | None  # None: the decoder shows none
    examples: list[Reading]

    def record(self) -> dict[str, Any]:
        """All of it, for JSON; gates at white space and punctuation, and one character later."""
        s = self.segments
        top = {n: listed for n, listed in s.top.items() if 1 < n <= LENGTHS}
        gates = self.gates.profiles if self.gates else []
        around = range(AROUND, AROUND + 2)  # at the character, and after it
        record = {
            "sentences": s.sentences,
            "mean": s.mean,
            "longest": s.longest,
            "frequent": {n: [[t.text, t.count, t.training] for t in listed] for n, listed in top.items()},
            "characters": [[c.text, c.alone, c.within] for c in s.within[:CHARACTERS]],
            "gates": [
                {
                    **{key: getattr(p, key) for key in ("layer", "direction", "gate", "inside")},
                    "space": [p.space.solid[i] for i in around],
                    "punctuation": [p.punctuation.solid[i] for i in around],
                }
                for p in gates
            ],
            "attention": None,
            "examples": [
                [r.number, join_pieces(r.pieces), r.translation, r.reference] for r in self.examples
            ],
        }
        if a := self.attention:
            record["attention"] = {
                key: getattr(a, key) for key in vars(a) if isinstance(getattr(a, key), float)
            }
        return dict(plain(record))


def measure_inside(
    model: Translator,
    lines: Iterable[Line],
    text: str,
    sample: int,
    training: TrainingText,
    seed: int = 1,
    report: StageReport = lambda *_: None,
) -> Inside:
    """Segments of the lines of a `text`, or of 10,000 of them; gates and attention of `sample` of these."""
    filled, cuts = segmented(model, lines, text, seed, report)
    tally = SegmentTally()
    for cut in cuts.values():
        tally.add(cut)
    some = [line for line in subsample(filled, sample, seed) if line.reference is not None]
    texts, some_cuts = [line.source for line in some], [cuts[line.number] for line in some]
    references = [line.reference or "" for line in some]
    shown = choose(filled, EXAMPLES, seed)
    translated = model.process([line.source for line in shown], model.searcher(1))
    return Inside(
        tally.result(training),
        gate_statistics(model, texts, some_cuts, [set() for _ in texts]) if texts else None,
        attention_statistics(model, texts, references, some_cuts) if texts else None,
        [reading(line, output, training.trg) for line, output in zip(shown, translated, strict=True)],
    )


def inside_tables(records: Records) -> list[Table]:
    """The tables of several models that are not empty."""
    made = [frequent_table(records), characters_table(records), examples_table(records)]
    made += [gates_table(records), attention_table(records)]
    return [table for table in made if table.rows]


def frequent_table(records: Records) -> Table:
    """The paper's Table 5."""
    rows: list[list[Cell]] = []
    for name, record in records.items():
        for length, listed in record["frequent"].items():
            shown = "; ".join(f"{visible(text)} {count:,}" for text, count, _ in listed)
            trained = [training for *_, training in listed if training is not None]
            unseen = f"{sum(not n for n in trained)} of {len(trained)}" if trained else ""
            rows.append([name, int(length), shown, unseen])
    columns = [Column("system"), Column("length", "d"), Column("segments and how often")]
    title = "The most frequent segments of each length (the paper's Table 5)"
    return Table("frequent", title, [*columns, Column("not in training")], rows)


def characters_table(records: Records) -> Table:
    """What the paper counts for the Japanese letter ki, for the characters most often within segments."""
    rows: list[list[Cell]] = [
        [name, visible(text), alone, within]
        for name, record in records.items()
        for text, alone, within in record["characters"]
    ]
    columns = [Column("system"), Column("character"), Column("a segment of its own", ",")]
    title = "Characters most often within longer segments"
    return Table("characters", title, [*columns, Column("within longer ones", ",")], rows)


def examples_table(records: Records) -> Table:
    """The same lines, as each model cut and translated them."""
    listed = [(name, *example) for name, record in records.items() for example in record["examples"]]
    rows: list[list[Cell]] = []
    for number, reference in {line: reference for _, line, *_, reference in listed}.items():
        rows.append([number, "reference", "", reference])
        rows += [[number, name, cut, written] for name, line, cut, written, _ in listed if line == number]
    columns = [Column("line", "d"), Column("system"), Column("source"), Column("translation, greedy")]
    return Table("examples", "Lines of dev (the paper's Tables 3, 6 and 7)", columns, rows)


def gates_table(records: Records) -> Table:
    """Mean gates of each layer, the update gate in the paper's convention."""
    rows: list[list[Cell]] = [
        [name, g["layer"], g["direction"], g["gate"], g["inside"], *g["space"], *g["punctuation"]]
        for name, record in records.items()
        for g in record["gates"]
    ]
    columns = [Column("system"), Column("layer", "d"), Column("direction"), Column("gate")]
    heads = ("within words", "at a space", "after it", "at punctuation", "after that")
    title = "Mean gates around spaces and punctuation (the paper's Figures 3 and 4)"
    return Table("gates", title, [*columns, *(Column(head, ".2f") for head in heads)], rows)


def attention_table(records: Records) -> Table:
    """Where attention goes, beside an even spread."""
    kinds = {"first": "first characters", "space": "spaces", "end": "</s>"}
    rows: list[list[Cell]] = [
        [name, *(a[key + even] for key in kinds for even in ("", "_uniform")), a["entropy"]]
        for name, record in records.items()
        if (a := record["attention"])
    ]
    columns = [Column("system")]
    for kind in kinds.values():
        columns += [Column(f"on {kind}", ".1%"), Column("even", ".1%")]
    title = "Attention (the paper's Appendix C)"
    return Table("attention", title, [*columns, Column("entropy, bits", ".2f")], rows)
