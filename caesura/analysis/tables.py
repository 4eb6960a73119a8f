"""Tables of results, as text and CSV; the report shows the same ones."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caesura.analysis.characters import is_mark, visible
from caesura.analysis.errors import Bucket
from caesura.analysis.findings import Analysis
from caesura.analysis.gates import AROUND
from caesura.analysis.halting import BINS
from caesura.analysis.segments import SegmentStatistics
from caesura.analysis.speed import Speed
from caesura.evaluation.pieces import join_pieces
from caesura.evaluation.scores import Comparison
from caesura.segmenters.figures import LIVE
from caesura.visible import one_line

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its head, and the format of its numbers; none for text."""

    name: str
    form: str = ""

    def show(self, cell: Cell) -> str:
        """A cell as people read it; unknown values are blank, and no zero is negative."""
        if cell is None or cell != cell:  # nan
            return ""
        if not self.form or isinstance(cell, str):
            return str(cell)
        shown = format(cell, self.form)
        return shown if any(digit in shown for digit in "123456789") else shown.removeprefix("-")


@dataclass(frozen=True)
class Table:
    """A table; `key` names its files."""

    key: str
    title: str
    columns: list[Column]
    rows: list[list[Cell]]

    def text(self) -> str:
        """Columns under each other, for a terminal; wide characters take two places."""
        shown = [[one_line(column.name) for column in self.columns]]
        shown += [
            [one_line(c.show(cell)) for c, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]
        widths = [max(map(_places, cells)) for cells in zip(*shown, strict=True)]
        lines = []
        for cells in shown:
            padded = []
            for column, cell, width in zip(self.columns, cells, widths, strict=True):
                room = " " * (width - _places(cell))
                padded.append(room + cell if column.form else cell + room)
            lines.append("  ".join(padded).rstrip())
        return "\n".join([one_line(self.title), "", *lines, ""])

    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        lines = [[column.name for column in self.columns]]
        lines += [["---:" if column.form else "---" for column in self.columns]]
        lines += [[c.show(cell) for c, cell in zip(self.columns, row, strict=True)] for row in self.rows]
        escapes = str.maketrans({"|": "\\|", "<": "&lt;"})  # `<unk>` would be taken for a tag
        return "".join(f"| {' | '.join(cell.translate(escapes) for cell in line)} |\n" for line in lines)

    def csv(self) -> str:
        """The values themselves, in full precision."""
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows(self.rows)
        return file.getvalue()


def _places(text: str) -> int:
    wide = (2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text if not is_mark(c))
    return sum(wide)


def tables(models: Sequence[Analysis], compared: Mapping[str, Comparison] | None = None) -> list[Table]:
    """Every table that is not empty."""
    makers: list[Callable[[], Table]] = [
        lambda: overview(models, compared or {}),
        lambda: summary(models),
        lambda: lengths(models),
        lambda: segments(models),
        lambda: summary(models, written=True),
        lambda: lengths(models, written=True),
        lambda: segments(models, written=True),
        lambda: characters(models),
        lambda: varying(models),
        lambda: agreements(models),
        lambda: sentences(models),
        lambda: figures(models),
        lambda: scores(models),
        lambda: moved(models),
        lambda: gradients(models),
        lambda: training(models),
        lambda: gates(models),
        lambda: attention(models),
        lambda: heads(models),
        lambda: errors(models),
        lambda: inventions(models),
        lambda: buckets(models, "length", "source characters"),
        lambda: buckets(models, "rarity", "rare source words"),
        lambda: typos(models),
        lambda: cost(models),
    ]
    return [table for make in makers if (table := make()).rows]


def overview(models: Sequence[Analysis], compared: Mapping[str, Comparison]) -> Table:
    """The paper's Table 2."""
    columns = [Column("model"), Column("BLEU", ".2f"), Column("± 95%", ".2f"), Column("p", ".3f")]
    columns += [Column("chrF2", ".2f"), Column("exact", ".1%"), Column("asked", "g")]
    columns += [Column("segment length", ".2f"), Column("longest", "d")]
    columns += [Column("output segment length", ".2f"), Column("longest output", "d")]
    columns += [Column("parameters", ",")]
    rows: list[list[Cell]] = []
    for a in models:
        scores, pair = a.scores, compared.get(a.name)
        row: list[Cell] = [a.name]
        row += [scores.bleu if scores else None, pair.bleu.interval if pair else None]
        row += [pair.bleu.p_value if pair else None]
        row += [scores.chrf if scores else None, scores.exact if scores else None]
        row += [a.target_length, a.segments.mean, a.segments.longest]
        row += [s.mean, s.longest] if (s := a.target_segments) else [None, None]
        rows.append([*row, a.cost.parameters])
    title = f"{models[0].text.sentences:,} sentences of {models[0].text.name}, {models[0].text.search}"
    return _without_empty(Table("overview", title, columns, rows))


def _segments(models: Sequence[Analysis], written: bool) -> list[tuple[str, SegmentStatistics]]:
    """The segments of the source per model, or of the translations if its decoder cuts."""
    both = ((a.name, a.target_segments if written else a.segments) for a in models)
    return [(name, s) for name, s in both if s]


def _named(key: str, title: str, written: bool) -> tuple[str, str]:
    return (f"output_{key}", f"{title}, in translations") if written else (key, title)


def summary(models: Sequence[Analysis], written: bool = False) -> Table:
    """Segments in a few numbers."""
    rows: list[list[Cell]] = [
        [name, s.sentences, s.characters, s.segments, s.distinct, s.mean, s.median, s.longest]
        for name, s in _segments(models, written)
    ]
    heads = ("sentences", "characters", "segments", "distinct")
    columns = [Column("model"), *(Column(head, ",") for head in heads)]
    columns += [Column("mean length", ".2f"), Column("median", "g"), Column("longest", "d")]
    return Table(*_named("segment_summary", "segments in a few numbers", written), columns, rows)


def lengths(models: Sequence[Analysis], written: bool = False) -> Table:
    """The histogram of lengths."""
    rows: list[list[Cell]] = [
        [name, n, count, count / s.segments]
        for name, s in _segments(models, written)
        for n, count in s.histogram.items()
    ]
    columns = [Column("model"), Column("characters", "d"), Column("segments", ","), Column("share", ".1%")]
    return Table(*_named("lengths", "segments of each length", written), columns, rows)


def sentences(models: Sequence[Analysis]) -> Table:
    """The paper's Tables 3, 6 and 7."""
    rows: list[list[Cell]] = [
        [r.number, a.name, join_pieces(r.pieces), r.translation, r.reference]
        for first in models[0].readings
        for a in models
        for r in a.readings
        if r.number == first.number
    ]
    columns = [Column("line", "d"), *map(Column, ("model", "source as cut", "translation", "reference"))]
    return _without_empty(Table("sentences", "sentences as they were cut and translated", columns, rows))


def figures(models: Sequence[Analysis]) -> Table:
    """The segmenters' own measurements."""
    rows: list[list[Cell]] = [
        [a.name, f.heading, f.shown, f.unit, f.definition] for a in models for f in a.figures
    ]
    columns = [Column("model"), Column("figure"), Column("value"), Column("unit"), Column("what it is")]
    return Table("figures", "figures of the segmenters", columns, rows)


def scores(models: Sequence[Analysis]) -> Table:
    """The distribution of scores."""
    rows: list[list[Cell]] = [
        [a.name, i / BINS, (i + 1) / BINS, h.halting[i], h.going_on[i]]
        for a in models
        if (h := a.halting)
        for i in range(BINS)
    ]
    columns = [Column("model"), Column("score from", ".2f"), Column("to", ".2f")]
    columns += [Column("symbols that end a segment", ","), Column("that do not", ",")]
    return Table("halting", "scores of symbols", columns, rows)


def moved(models: Sequence[Analysis]) -> Table:
    """The effect of moving the cuts."""
    rows: list[list[Cell]] = []
    for a in models:
        if m := a.moved:
            g, f = m.fidelity, m.flips
            row: list[Cell] = [a.name, m.sentences]
            row += [g.cosine, g.cosine_error, g.autograd_sum, g.true_sum] if g else [None] * 4
            row += [f.hardening, f.best, f.greedy, f.gaining, f.agreeing] if f else [None] * 5
            rows.append(row)
    columns = [Column("model"), Column("sentences", ","), Column("cosine", ".2f"), Column("±", ".2f")]
    columns += [Column("sum in training", ".4f"), Column("true sum", ".4f"), Column("hardening", ".4f")]
    columns += [Column("best flip", ".4f"), Column("greedy flips", ".4f")]
    columns += [Column("flips that gain", ".0%"), Column("direction known", ".0%")]
    return _without_empty(Table("moved", "what moving the cuts would change", columns, rows))


def gradients(models: Sequence[Analysis]) -> Table:
    """Training's gradient with respect to the scores beside the true one."""
    rows: list[list[Cell]] = [
        [a.name, b.positions, b.autograd, b.truth, b.error]
        for a in models
        if a.moved and a.moved.fidelity
        for b in a.moved.fidelity.bins
    ]
    columns = [Column("model"), Column("gaps", ".0f"), Column("training", ".6f"), Column("true", ".6f")]
    columns += [Column("±", ".6f")]
    return Table("gradients", "gradients with respect to the scores, in bins of gaps", columns, rows)


def training(models: Sequence[Analysis]) -> Table:
    """Training as the validations saw it."""
    rows: list[list[Cell]] = []
    for a in models:
        if h := a.history:
            shares = h.live or [math.nan] * len(h.sentences)
            each = zip(h.sentences, h.segment_length, h.bleu, shares, strict=True)
            rows += [[a.name, *(None if math.isnan(v) else v for v in values)] for values in each]
    columns = [Column("model"), Column("training sentences", ",.0f"), Column("segment length", ".2f")]
    columns += [Column("BLEU, dev", ".2f"), Column(LIVE.heading, LIVE.format)]
    return _without_empty(Table("training", "training as the validations saw it", columns, rows))


def segments(models: Sequence[Analysis], written: bool = False) -> Table:
    """The paper's Table 5, with counts."""
    rows: list[list[Cell]] = [
        [name, n, visible(s.text), s.count, s.within, s.training]
        for name, cut in _segments(models, written)
        for n, listed in cut.top.items()
        for s in listed
    ]
    columns = [Column("model"), Column("length", "d"), Column("segment"), Column("count", ",")]
    columns += [Column("within longer ones", ","), Column("in training text", ",")]
    named = _named("segments", "the most frequent segments of each length", written)
    return _without_empty(Table(*named, columns, rows))


def characters(models: Sequence[Analysis]) -> Table:
    """Characters alone and within."""
    rows: list[list[Cell]] = [
        [a.name, visible(c.text), c.alone, c.within] for a in models for c in a.segments.singles
    ]
    columns = [Column("model"), Column("character"), Column("alone", ","), Column("within a segment", ",")]
    return Table("characters", "characters as segments of their own and within longer ones", columns, rows)


def varying(models: Sequence[Analysis]) -> Table:
    """The same string cut differently."""
    rows: list[list[Cell]] = [
        [a.name, v.text, v.occurrences, v.unusual, "  ".join(f"{join_pieces(p)} ×{n}" for p, n in v.cuts)]
        for a in models
        for v in a.varying
    ]
    columns = [Column("model"), Column("string"), Column("occurrences", ",")]
    columns += [Column("not cut in the usual way", ","), Column("cuts")]
    return Table("contexts", "the same string cut differently in different contexts", columns, rows)


def agreements(models: Sequence[Analysis]) -> Table:
    """Boundaries against every reference."""
    rows: list[list[Cell]] = []
    for a in models:
        for table in a.agreements:
            for name, s in table.rows.items():
                row = [a.name, table.reference, a.name if name == "model" else name]
                rows.append([*row, s.precision, s.recall, s.f1, s.predicted, s.gold, s.correct])
    columns = [Column("model"), Column("against"), Column("cut by"), Column("precision", ".3f")]
    columns += [Column("recall", ".3f"), Column("F1", ".3f"), Column("predicted", ",")]
    columns += [Column("gold", ","), Column("correct", ",")]
    return Table("boundaries", "boundary precision, recall and F1", columns, rows)


def gates(models: Sequence[Analysis]) -> Table:
    """Gates at spaces, punctuation and gold boundaries."""
    rows: list[list[Cell]] = []
    for a in models:
        for p in a.gates.profiles if a.gates else ():
            at = [p.space.solid[AROUND], p.space.solid[AROUND + 1], p.punctuation.solid[AROUND]]
            at += [p.place.solid[0], p.inside, p.gold.solid[AROUND - 1], p.gold.solid[AROUND]]
            rows.append([a.name, p.layer, p.direction, p.gate, p.overall, *at])
    columns = [Column("model"), Column("layer", "d"), Column("direction"), Column("gate")]
    heads = ["overall", "at a space", "after a space", "at punctuation", "first of a word", "within words"]
    columns += [Column(head, ".3f") for head in [*heads, "before a gold boundary", "after a gold boundary"]]
    return _without_empty(Table("gates", "mean activations of the encoder's gates", columns, rows))


def attention(models: Sequence[Analysis]) -> Table:
    """Where attention falls, beside its share if it is spread evenly."""
    kinds = ("first", "space", "end", "entropy", "distance")
    rows: list[list[Cell]] = [
        [a.name, *(getattr(s, f"{what}{even}") for what in kinds for even in ("", "_uniform")), s.sentences]
        for a in models
        if (s := a.attention)
    ]
    columns = [Column("model")]
    for kind in ("first characters of words", "spaces", "</s>"):
        columns += [Column(f"on {kind}", ".1%"), Column("if even", ".1%")]
    columns += [Column("entropy, bits", ".2f"), Column("if even", ".2f")]
    columns += [Column("off the diagonal", ".1%"), Column("if even", ".1%"), Column("sentences", ",")]
    return Table("attention", "share of attention, beside the share if it were spread evenly", columns, rows)


def heads(models: Sequence[Analysis]) -> Table:
    """Where attention falls, per layer and head."""
    rows: list[list[Cell]] = [
        [a.name, h.layer, h.head, h.first, h.space, h.end, h.entropy, h.distance]
        for a in models
        if a.attention
        for h in a.attention.heads
    ]
    columns = [Column("model"), Column("layer", "d"), Column("head", "d")]
    columns += [Column(f"on {kind}", ".1%") for kind in ("first characters of words", "spaces", "</s>")]
    columns += [Column("entropy, bits", ".2f"), Column("off the diagonal", ".1%")]
    return Table("heads", "attention of every layer and head", columns, rows)


def errors(models: Sequence[Analysis]) -> Table:
    """Errors of translations, counted."""
    rows: list[list[Cell]] = []
    for a in models:
        if e := a.errors:
            counts = (e.unknown_source, e.unknown_output, e.invented, e.copied, e.copied_right, e.repeating)
            rows.append([a.name, *(c.share if c and c.total else None for c in counts), e.sentences])
    columns = [Column("model"), Column("unknown source words", ".1%"), Column("<unk> written", ".1%")]
    columns += [Column("invented words", ".1%"), Column("copied words", ".1%")]
    columns += [Column("of these right", ".0%"), Column("sentences with a repetition", ".1%")]
    columns += [Column("sentences", ",")]
    return _without_empty(Table("errors", "errors of translations", columns, rows))


def inventions(models: Sequence[Analysis]) -> Table:
    """Words that training never showed."""
    rows: list[list[Cell]] = [
        [a.name, i.word, i.count, i.line] for a in models if a.errors for i in a.errors.inventions
    ]
    columns = [Column("model"), Column("invented word"), Column("times", ","), Column("first in line", "d")]
    return Table("inventions", "words of translations that training never showed", columns, rows)


def buckets(models: Sequence[Analysis], kind: str, head: str) -> Table:
    """Scores by length or by rarity."""
    rows: list[list[Cell]] = []
    for a in models:
        groups: list[Bucket] | None = getattr(a.errors, f"by_{kind}") if a.errors else None
        rows += [[a.name, b.name, b.sentences, b.bleu, b.chrf, b.exact] for b in groups or ()]
    columns = [Column("model"), Column(head), Column("sentences", ","), Column("BLEU", ".2f")]
    columns += [Column("chrF2", ".2f"), Column("exact", ".1%")]
    return Table(f"bleu_by_{kind}", f"scores by {head}", columns, rows)


def typos(models: Sequence[Analysis]) -> Table:
    """Scores with typos."""
    rows: list[list[Cell]] = [
        [a.name, kind, rate, r.realised[kind][i], r.bleu[kind][i], r.chrf[kind][i]]
        for a in models
        if (r := a.robustness)
        for kind in r.bleu
        for i, rate in enumerate(r.rates)
    ]
    columns = [Column("model"), Column("typo"), Column("rate", ".0%"), Column("words with one", ".1%")]
    columns += [Column("BLEU", ".2f"), Column("chrF2", ".2f")]
    return Table("typos", "scores with typos", columns, rows)


def cost(models: Sequence[Analysis]) -> Table:
    """Quality beside price."""
    rows: list[list[Cell]] = []
    for a in models:
        c = a.cost
        total = sum(c.flops.values()) / 1e6 if c.flops else None
        row: list[Cell] = [a.name, a.scores.bleu if a.scores else None, c.parameters]
        sizes = [c.sizes[size] if c.flops else None for size in "TSU"]
        rows.append([*row, c.training_seconds, *_speed(c.segmenting), *_speed(c.translating), total, *sizes])
    columns = [Column("model"), Column("BLEU", ".2f"), Column("parameters", ",")]
    columns += [Column("seconds to best", ",.0f")]
    for done in ("segmented", "translated"):
        columns += [Column(f"{done} per second", ",.0f"), Column(f"± {done}", ",.0f")]
    columns += [Column("MFLOPs per sentence", ",.2f")]
    columns += [Column(head, ".1f") for head in ("symbols", "segments", "target symbols")]
    return _without_empty(Table("cost", "quality and price", columns, rows))


def _speed(speed: Speed | None) -> list[Cell]:
    return [speed.median, speed.spread] if speed and not speed.problem else [None, None]


def _without_empty(table: Table) -> Table:
    """The table without its empty columns."""
    kept = [i for i in range(len(table.columns)) if any(table.columns[i].show(row[i]) for row in table.rows)]
    rows = [[row[i] for i in kept] for row in table.rows]
    return Table(table.key, table.title, [table.columns[i] for i in kept], rows)
