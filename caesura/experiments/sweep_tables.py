"""Tables of a sweep: one row per run, and one per setting with mean and spread over its seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from caesura.analysis.means import ENOUGH
from caesura.analysis.tables import Cell, Column, Table
from caesura.experiments.results import spread
from caesura.experiments.sweep_results import Shown, Sweep, SweepRun
from caesura.terminal import duration

Getter = Callable[[SweepRun], float | None]
Measures = list[tuple[Column, Getter]]
MOVES = {"cosine": "fidelity", "cosine_error": "±", "best": "best flip", "hardening": "hardening"}
PHASES = {"start": SweepRun.first, "best": SweepRun.at_best, "end": SweepRun.last}


def _measures(sweep: Sweep) -> Measures:
    """The columns of numbers that at least one run has."""
    measures: Measures = [
        *_phases("segments", ".3f", "segment_length", "start", "best", "end"),
        (Column("segments: asked", "g"), lambda r: r.last("target_length")),
        *_phases("longest", ",.0f", "longest_segment", "end"),
    ]
    for name, look in sweep.shown.items():
        measures += _phases(look.heading, _finer(look), name, "start", "end")
    measures += [
        *_phases("output", ".3f", "output_segment_length", "start", "best", "end"),
        *_phases("output longest", ",.0f", "longest_output_segment", "end"),
        *_phases("output live", ".2%", "output_live", "start", "end"),
        (Column("cross-entropy: end", ".3f"), lambda r: r.last_logged("cross_entropy")),
        *_phases("dev BLEU", ".2f", "bleu", "best", "end"),
        *_phases("dev chrF2", ".2f", "chrf", "best", "end"),
        (Column("test BLEU", ".2f"), lambda r: (r.test or {}).get("bleu")),
        (Column("test chrF2", ".2f"), lambda r: (r.test or {}).get("chrf")),
    ]
    for reference in dict.fromkeys(name for run in sweep.runs for name in run.boundaries):
        measures.append((Column(f"F1 {reference}", ".3f"), _boundary(reference, "f1")))
        measures.append((Column(f"by chance, {reference}", ".3f"), _boundary(reference, "chance")))
    for side, prefix in (("source", ""), ("target", "output ")):
        measures.append((Column(f"{prefix}lock-step", ".2f"), _halting(side, "overhead")))
        measures.append((Column(f"{prefix}coordination", ".2f"), _halting(side, "coordination")))
    for key, heading in MOVES.items():
        measures.append((Column(heading, ".3f"), _move(key)))
    if any(run.moved for run in sweep.runs):  # cutters are compared, so their costs belong here
        measures.append((Column("parameters", ","), lambda r: r.parameters))
    measures.append((Column("ms per update", ".1f"), lambda r: r.milliseconds))
    return [(column, get) for column, get in measures if any(get(run) is not None for run in sweep.runs)]


def _phases(heading: str, form: str, field: str, *phases: str) -> Measures:
    """The columns of one field at some of its PHASES."""

    def getter(phase: str) -> Getter:
        return lambda run: PHASES[phase](run, field)

    return [(Column(f"{heading}: {phase}", form), getter(phase)) for phase in phases]


def _finer(look: Shown) -> str:
    """The format of a figure with one digit more than elsewhere: runs of a sweep may differ by little."""
    return re.sub(r"\.(\d+)", lambda match: f".{int(match[1]) + 1}", look.format)


def _boundary(reference: str, kind: str) -> Getter:
    def get(run: SweepRun) -> float | None:
        scores = run.boundaries.get(reference, {})
        return scores.get(kind) if scores.get("gold", 0) >= ENOUGH else None

    return get


def _move(key: str) -> Getter:
    return lambda run: run.moved.get(key)


def _halting(side: str, kind: str) -> Getter:
    return lambda run: (run.coordination.get(side) or {}).get(kind)


def runs_table(sweep: Sweep) -> Table:
    """One row per run, in the order of the sweep, baselines last."""
    measures = _measures(sweep)
    columns = [Column("run"), *(column for column, _ in measures)]
    columns += [Column("updates", ","), Column("sentences", ","), Column("seconds", ".0f"), Column("ended")]
    rows: list[list[Cell]] = []
    for run in sorted(sweep.runs, key=lambda run: run.beside):
        counts: list[Cell] = [run.updates, run.sentences, run.seconds]
        rows.append([run.name, *(get(run) for _, get in measures), *counts, ended(run)])
    return Table("table", f"{len(rows)} run{'s' * (len(rows) != 1)}{_conditions(sweep)}", columns, rows)


# The columns that fit a terminal, with their short heads; headline figures are added.
BRIEF = {
    "run": "run", "segments: start": "start", "segments: end": "end", "segments: asked": "asked",
    "output: start": "out: start", "output: end": "out: end", "output live: end": "out: live",
    "dev BLEU: best": "BLEU", "dev chrF2: best": "chrF2", "test BLEU": "test", "F1 white space": "F1",
    "F1 white space, either side": "either", "ms per update": "ms", "ended": "ended",
}  # fmt: skip
LEGEND = {
    ("start", "end", "asked"): "characters in a segment",
    ("out: start", "out: end", "out: live"): "the same of outputs",
    ("BLEU", "chrF2"): "best on dev",
    ("test",): "its BLEU",
    ("F1",): "against white space, which goes with the word after it",
    ("either",): "with either word",
    ("ms",): "per update",
}


def brief_table(sweep: Sweep) -> tuple[str, list[str], list[list[str]], str]:
    """Title, heads, cells and legend of the table of runs as a terminal shows it: ends, best, price."""
    table, headlines = runs_table(sweep), [look for look in sweep.shown.values() if look.headline]
    brief = BRIEF | {f"{look.heading}: end": look.heading for look in headlines}
    meanings = {(look.heading,): f"{look.definition.partition(';')[0]}, at the end" for look in headlines}
    kept = [(i, column) for i, column in enumerate(table.columns) if column.name in brief]
    rows = [[column.show(row[i]) for i, column in kept] for row in table.rows]
    heads = [brief[column.name] for _, column in kept]
    first, *others = LEGEND.items()
    legend = [first, *meanings.items(), *others]
    entries = [([head for head in names if head in heads], meaning) for names, meaning in legend]
    phrases = [f"{', '.join(names)}: {meaning}" for names, meaning in entries if names]
    return table.title, heads, rows, ". ".join(filter(None, ["; ".join(phrases), "All else: table.md"]))


def groups_table(sweep: Sweep) -> Table:
    """One row per setting: mean ± standard deviation over seeds, and their number."""
    groups: dict[tuple[bool, str, str, str], list[SweepRun]] = {}
    for run in sorted(sweep.runs, key=lambda run: run.beside):
        groups.setdefault((run.beside, run.config, run.alike, run.group), []).append(run)
    measures = _measures(sweep)
    columns = [Column("setting"), Column("seeds", "d"), *(Column(column.name) for column, _ in measures)]
    rows: list[list[Cell]] = []
    for (*_, name), runs in groups.items():
        tried = [run for run in runs if run.best is not None]
        cells: list[Cell] = [_spread(column, [get(run) for run in tried]) for column, get in measures]
        rows.append([name, len(tried), *cells])
    return Table("groups", "Mean ± standard deviation over seeds", columns, rows)


def _spread(column: Column, values: Sequence[float | None]) -> str:
    result = spread(values)
    if result is None:
        return ""
    few = f" ({result.count})" if result.count < len(values) else ""  # of fewer seeds than the row has
    return result.show(column.form) + few


def ended(run: SweepRun) -> str:
    """The reason why a run stopped, in a few words."""
    if run.status == "failed":
        return f"failed: {run.reason}"
    return {"budget": "budget spent", "finished": run.reason}.get(run.status, run.status)


def _conditions(sweep: Sweep) -> str:
    most = max((run.parallel for run in sweep.runs), default=1)
    return _budgets(sweep) + (f", up to {most} side by side, which their times include" if most > 1 else "")


def _budgets(sweep: Sweep) -> str:
    """The training time of runs: one budget, or the range where calls have given several."""
    budgets = {sweep.budget if run.budget is None else run.budget for run in sweep.runs}
    limits = sorted(budget for budget in budgets if budget is not None)
    ends = list(dict.fromkeys(duration(budget) for budget in (*limits[:1], *limits[-1:])))
    if not ends:
        return ""
    if None in budgets:
        return f", with {'budgets' if ends[1:] else 'a budget'} of {' to '.join(ends)} where they had one"
    return f", budgets of {' to '.join(ends)} each" if ends[1:] else f", {ends[0]} of training each"


def _sections(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """Titles of tables that fit a page, and how the names of their columns begin."""
    headings = [f"{look.heading}: " for look in sweep.shown.values()]
    beside, apart = (headings, []) if len(headings) < 2 else ([], headings)
    return {
        "Segments, in characters": ("segments: ", "longest: ", *beside),
        "Figures of the segmenters": (*apart,),
        "Output segments": ("output: ", "output longest: ", "output live: "),
        "Scores": ("cross-entropy: ", "dev ", "test "),
        "Boundaries": ("F1 ", "by chance, "),
        "Cuts inside a batch": ("lock-step", "coordination", "output lock-step", "output coordination"),
        "Moving cuts": (*MOVES.values(),),
        "Training": ("parameters", "ms per update", "updates", "sentences", "seconds", "ended"),
    }


def markdown(sweep: Sweep) -> str:
    """Both tables, in parts, with their notes, as Markdown."""
    parts = _parts(runs_table(sweep), 1, _sections(sweep))
    if any(run.seed != other.seed for run in sweep.runs for other in sweep.runs):
        parts += _parts(groups_table(sweep), 2, _sections(sweep))
    notes = [
        "Segment lengths in characters, of the dev set; BLEU and chrF2 on dev are greedy, on test with the "
        "config's beam and the model of the best dev BLEU. Boundaries and halting are that model's, on test.",
        *(f"{look.heading.capitalize()}: {look.definition} ({look.unit})." for look in sweep.shown.values()),
        "Cross-entropy: of training text, in nats per target symbol, at the last updates that were logged; "
        "it compares runs with the same target symbols.",
        "By chance: F1 of as many cuts at random places. Lock-step and coordination: docs/analysis.md.",
    ]
    if any(run.moved for run in sweep.runs):
        notes.append(
            "Fidelity: cosine between the gradient of the cutter's scores and the true one, ± its standard "
            "error. Best flip: the gain of the best cut to add or remove. Hardening: the cost of hard "
            "cuts at the model's places. Both in nats per target symbol."
        )
    if cut := [run for run in sweep.runs if run.examples]:
        lines = [line for run in cut for line in (f"{run.name}:", *(f"    {text}" for text in run.examples))]
        parts.append("\n".join(["**How each cuts a sentence**\n", "```", *lines, "```"]))
    signatures = [f"`{text}`" for text in sweep.signatures]
    return "\n\n".join([*parts, *notes, *sweep.made, *signatures]) + "\n"


def _parts(table: Table, names: int, sections: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A table under its title as narrower ones, each with the columns that name the rows."""
    parts = [f"## {table.title}"]
    for title, starts in sections.items():
        kept = [i for i, column in enumerate(table.columns) if column.name.startswith(starts)]
        if kept:
            kept = [*range(names), *kept]
            rows = [[row[i] for i in kept] for row in table.rows]
            part = Table(table.key, title, [table.columns[i] for i in kept], rows)
            parts.append(f"**{title}**\n\n{part.markdown().rstrip()}")
    return parts
