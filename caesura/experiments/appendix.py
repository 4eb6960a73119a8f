"""The appendix of a recipe: every pair of systems compared, and the measurements in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

from caesura.analysis.inside import inside_tables
from caesura.analysis.places import KeptCuts
from caesura.analysis.tables import Cell, Column, Table
from caesura.errors import InputError
from caesura.evaluation.bootstrap import Difference, Replicates, UnitCounts, difference, replicates
from caesura.experiments.outcome import Outcome
from caesura.experiments.results import Spread, SystemResult, spread

APPENDIX, PAIRS = "appendix.md", "pairs.csv"
NOTES = {
    "differences": "Paired bootstrap: 1,000 texts as long as the test set, drawn with replacement, a few "
    "neighbouring lines at a time. The trainings of a system are drawn as well. p equals sacrebleu's only "
    "where single lines are drawn and each system has one training. One seed says nothing about other seeds; "
    "three seeds, drawn with replacement, spread less than new trainings would.",
    "agreement": "F1 between the cuts of two seeds on the same lines of dev, mean over pairs of seeds. By "
    "chance: the F1 of as many cuts at random places.",
    "noise": "A seeded sample of the test set, translated greedily, with the same typos for every system.",
    "beams": "A seeded sample of the test set.",
    "beam times": "The same sample, timed beside other runs if there were any: a rough guide.",
    "length": "The test set in five groups of about the same size.",
    "rarity": "A word is rare if it occurs fewer than ten times in the training text.",
    "frequent": "On dev, of the seed that did best there, as in the tables after this one. Beside each "
    "segment, how often it was made. Not in training: those that are nowhere in the training text.",
    "gates": "The update gate as in the paper: 1 takes the new state. Means over 200 lines of dev.",
    "attention": "Shares of the weight, and what an even spread would have, over 200 lines of dev.",
    "frequency": "The share of the reference's words that the translation of the same line has.",
}

Numbers = Mapping[str, float]


class Pair(NamedTuple):
    """One system against another."""

    system: str
    seeds: int  # of the system
    other: str
    bleu: Difference
    chrf: Difference


def sections(results: Sequence[SystemResult], pairs: Sequence[Pair]) -> list[Table]:
    """The tables of one table of the recipe that are not empty."""
    made = [
        differences_table(pairs),
        agreement_table(results),
        wide("noise", "BLEU with typos", ".1f", results, _noise),
        wide("noise, chrF2", "chrF2 with typos", ".1f", results, _noise_chrf),
        wide("beams", "BLEU by beam", ".2f", results, _beams),
        wide("beam times", "ms per sentence by beam", ".1f", results, _beam_times),
        wide("length", "BLEU by characters of the source", ".1f", results, _groups("by_length")),
        wide("rarity", "BLEU by rare words in the source", ".1f", results, _groups("by_rarity")),
        wide("frequency", "Words found, by occurrences in the training text", ".1%", results, _recalls),
        wide("errors", "Errors in translations, as shares", ".2%", results, _errors),
        *inside_tables(_inside(results)),
    ]
    return [table for table in made if table.rows]


def _inside(results: Sequence[SystemResult]) -> dict[str, Any]:
    """What was seen inside one model of each system: the one that did best on dev."""
    seen = {}
    for result in results:
        looked = [o for o in result.counted if "inside" in o.measured]
        if looked:
            best = max(looked, key=lambda outcome: (outcome.best or {}).get("bleu", 0.0))
            seen[result.system.title] = best.measured["inside"]
    return seen


def pairs_of(results: Sequence[SystemResult]) -> list[Pair]:
    """Every system of a table against each before it, where counts of lines were kept."""
    bleu, chrf = drawn_texts(results, [result.system.title for result in results])
    return [
        Pair(b, len(bleu[b]), a, difference(bleu[b], bleu[a]), difference(chrf[b], chrf[a]))
        for a, b in combinations(bleu, 2)
    ]


def pairs_table(pairs: Sequence[tuple[str, Pair]]) -> Table:
    """All pairs, each with the name of its table, as numbers."""
    columns = [Column(head) for head in ("table", "system", "other")]
    columns += [Column(f"{m} {n}", ".4f") for m in ("BLEU", "chrF2") for n in Difference._fields]
    rows: list[list[Cell]] = [[name, p.system, p.other, *p.bleu, *p.chrf] for name, p in pairs]
    return Table("pairs", "every pair", columns, rows)


def differences_table(pairs: Sequence[Pair]) -> Table:
    """Every system against the first one."""
    first = pairs[0].other if pairs else ""
    columns = [Column("system"), Column("seeds", "d")]
    for metric in ("BLEU", "chrF2"):
        columns += [Column(f"{metric} - {first}", "+.2f"), Column("95%"), Column("p", ".3f")]
    rows: list[list[Cell]] = []
    for pair in pairs:
        if pair.other == first:
            cells: list[Cell] = [pair.system, pair.seeds]
            for above in (pair.bleu, pair.chrf):
                cells += [above.mean, above.interval, above.p_value]
            rows.append(cells)
    return Table("differences", f"Against {first}", columns, rows)


def drawn_texts(
    results: Sequence[SystemResult], names: Sequence[str]
) -> tuple[dict[str, list[Replicates]], ...]:
    """BLEU and chrF2 of every training on the same drawn texts, by the names of their systems."""
    counts: list[UnitCounts] = []
    owners: list[str] = []
    for result, name in zip(results, names, strict=True):
        for outcome in result.counted:
            if (packed := outcome.measured.get("test", {}).get("units")) is not None:
                counts.append(_unpacked(outcome, lambda p: UnitCounts.unpacked(p["packed"]), packed))
                owners.append(name)
    drawn: tuple[dict[str, list[Replicates]], ...] = {}, {}
    for by_name, metric in zip(drawn, replicates(counts), strict=True):
        for name, scores in zip(owners, metric, strict=True):
            by_name.setdefault(name, []).append(scores)
    return drawn


def agreement_of(result: SystemResult) -> tuple[Spread, Spread] | None:
    """How well the cuts of its seeds agree, and by chance; None for one seed, or if no cuts were kept."""
    cuts = [
        _unpacked(outcome, KeptCuts.read, record)
        for outcome in result.counted
        if (record := outcome.measured.get("cuts", {}).get("cuts")) is not None
    ]
    pairs = [pair for a, b in combinations(cuts, 2) if (pair := a.agreement(b)) is not None]
    f1, chance = spread(pair[0] for pair in pairs), spread(pair[1] for pair in pairs)
    return (f1, chance) if f1 and chance else None


def agreement_table(results: Sequence[SystemResult]) -> Table:
    """Every system with more than one seed."""
    rows: list[list[Cell]] = []
    for result in results:
        if (agreement := agreement_of(result)) is not None:
            f1, chance = agreement
            rows.append([result.system.title, f1.count, f1.mean, chance.mean])
    columns = [Column("system"), Column("pairs of seeds", "d"), Column("F1", ".3f")]
    return Table("agreement", "Do seeds cut alike?", [*columns, Column("by chance", ".3f")], rows)


def _unpacked(outcome: Outcome, read: Callable[[Any], Any], record: Any) -> Any:
    try:
        return read(record)
    except (ValueError, KeyError, TypeError) as problem:
        where = outcome.kept or outcome.member.folder
        raise InputError(f"{where}: {problem}; restore the file, or remove it") from problem


def wide(
    key: str,
    title: str,
    form: str,
    results: Sequence[SystemResult],
    numbers: Callable[[Outcome], Numbers],
) -> Table:
    """One row per system and one column per name of its numbers, means over seeds."""
    by_title = {r.system.title: [some for o in r.counted if (some := numbers(o))] for r in results}
    names = list(dict.fromkeys(name for each in by_title.values() for some in each for name in some))
    rows: list[list[Cell]] = []
    for system, each in by_title.items():
        if each:
            values = ([some[name] for some in each if name in some] for name in names)
            rows.append([system, len(each), *(fmean(v) if v else None for v in values)])
    return Table(
        key, title, [Column("system"), Column("seeds", "d"), *(Column(n, form) for n in names)], rows
    )


def _noise(outcome: Outcome, metric: str = "bleu") -> Numbers:
    noise = outcome.measured.get("robust", {}).get("noise") or {}
    numbers: dict[str, float] = {}
    for kind, scores in noise.get(metric, {}).items():
        for rate, score in zip(noise["rates"], scores, strict=True):
            numbers[f"{kind} {rate:.0%}" if rate else "none"] = score
    return numbers


def _noise_chrf(outcome: Outcome) -> Numbers:
    return _noise(outcome, "chrf")


def _beams(outcome: Outcome) -> Numbers:
    return {str(b["beam"]): b["bleu"] for b in outcome.measured.get("robust", {}).get("beams", ())}


def _beam_times(outcome: Outcome) -> Numbers:
    beams = outcome.measured.get("robust", {}).get("beams", ())
    return {str(b["beam"]): 1000 * b["seconds"] for b in beams}


def _groups(key: str) -> Callable[[Outcome], Numbers]:
    return lambda outcome: {
        group["name"]: group["bleu"] for group in outcome.measured.get("test", {}).get(key) or ()
    }


def _recalls(outcome: Outcome) -> Numbers:
    groups = outcome.measured.get("test", {}).get("by_frequency") or ()
    return {g["name"]: g["matched"] / g["expected"] for g in groups if g["expected"]}


def _errors(outcome: Outcome) -> Numbers:
    shares = outcome.measured.get("test", {}).get("errors", {})
    return {name.replace("_", " "): share for name, share in shares.items()}
