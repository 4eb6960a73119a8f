"""Tables of a recipe's results, the paper's rows beneath ours, and their notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from caesura.analysis.tables import Cell, Column, Table
from caesura.evaluation.rates import off_rate
from caesura.experiments.outcome import Outcome
from caesura.experiments.recipe import Paper
from caesura.experiments.results import FIGURES, SystemResult
from caesura.terminal import duration

SCORES = ("bleu", "chrf", "chrf_bigram")
REASON = 160  # characters of a failure that a table shows
FALLEN = 0.9  # of the best BLEU on dev: a training that ends below it gets a note
UNSEEN = "BLEU, unseen (lines)"
ASKED, FIDELITY, FLIP, BOUNDARIES = "asked", "fidelity", "best flip", "word F1 / random"
GOLD, SURPRISAL = "gold F1 / random", "surprisal"
PACE, DECODING, BUDGET = "ms per update", "ms per sentence", "budget"
# Columns that not every table has, and their explanations.
OPTIONAL = {
    UNSEEN: "Unseen: the test lines whose source and reference are both not lines of the training text.",
    ASKED: "Asked: the characters per segment that the rate asks for; beside it, what came out.",
    FIDELITY: "Fidelity: the cosine between the gradient that training gives the cutter's scores and the "
    "true one, which is measured by cutting the text anew; on dev, ± its standard error.",
    FLIP: "Best flip: what the best single cut, added or removed, would gain, in nats per target symbol; "
    "mean over sentences of dev.",
    BOUNDARIES: "Word F1: cuts against white space on dev; after the slash, as many cuts at random places.",
    GOLD: "Gold F1: cuts against the gold segments that were given, in their own text where they have one.",
    SURPRISAL: "Surprisal: that of the character after a cut, divided by that of all characters, by n-grams "
    "of the training text; on dev.",
    PACE: "ms per update: the median, validations left out.",
    DECODING: "ms per sentence: to translate the test set, with the beam of the test.",
    BUDGET: "",
}

Ours = Callable[[SystemResult], Cell]
Papers = Callable[[Paper], Cell]


def comparison_table(name: str, title: str, results: Sequence[SystemResult]) -> Table:
    """Ours, one row per system, with the paper's row beneath each that it has.

    Optional columns are left out where they would be empty.
    """
    kept = _columns(results)
    rows: list[list[Cell]] = []
    for result in results:
        rows.append([ours(result) for _, ours, _ in kept])
        if (paper := result.system.paper) is not None:
            rows.append([papers(paper) for _, _, papers in kept])
    return Table(name, title, [column for column, *_ in kept], rows)


def _columns(results: Sequence[SystemResult]) -> list[tuple[Column, Ours, Papers]]:
    """The columns of a table, each with its cell in our rows and in the paper's."""
    columns: list[tuple[Column, Ours, Papers]] = [
        (Column("system"), lambda r: r.system.title, lambda p: f"the paper's {p.system or ''}".strip()),
        (Column("seeds", "d"), _seeds, _blank),
        (Column("BLEU", "s"), _mean("bleu", ".2f"), lambda p: _formatted(p.bleu, ".2f")),
        (Column("chrF2", "s"), _mean("chrf", ".2f"), lambda p: _formatted(p.chrf and 100 * p.chrf, ".0f")),
        (Column(UNSEEN, "s"), _unseen, _blank),
        (Column("BLEU, dev", "s"), _mean("dev_bleu", ".2f"), _blank),
        (
            Column("parameters", "s"),
            _alone("parameters", _millions),
            lambda p: p.parameters and _millions(p.parameters),
        ),
        (Column("pairs", "s"), lambda r: _mean("pairs", ",.0f")(r).partition(" ± 0")[0], _blank),
        (Column(ASKED, "s"), lambda r: _mean("target_length", "g")(r).partition(" ± 0")[0], _blank),
        (Column("segments (longest)", "s"), _lengths, _papers_lengths),
        (Column(FIDELITY, "s"), _pair("fidelity", "±", "fidelity_error", ".2f"), _blank),
        (Column(FLIP, "s"), _mean("flip_gain", ".4f"), _blank),
        (Column(BOUNDARIES, "s"), _pair("boundary_f1", "/", "boundary_chance", ".3f"), _blank),
        (Column(GOLD, "s"), _pair("gold_f1", "/", "gold_chance", ".3f"), _blank),
        (Column(SURPRISAL, "s"), _mean("surprisal", ".2f"), _blank),
        (Column(PACE, "s"), _alone("milliseconds", "{:.1f}".format, timed=True), _blank),
        (Column(DECODING, "s"), _alone("decoding", lambda s: f"{1000 * s:.1f}", timed=True), _blank),
        (Column("to best", "s"), lambda r: time_shown(r, "seconds_to_best"), _blank),
        (Column("trained", "s"), lambda r: time_shown(r, "seconds"), lambda p: p.training_time),
        (Column("ended by"), endings, _blank),
        (Column(BUDGET), lambda r: ", ".join(map(duration, budgets([r]))), _blank),
    ]
    shown = {
        head for head in OPTIONAL if any(ours(r) for c, ours, _ in columns if c.name == head for r in results)
    }
    if len(budgets(results)) < 2:
        shown -= {BUDGET}
    return [entry for entry in columns if entry[0].name not in OPTIONAL or entry[0].name in shown]


def budgets(results: Sequence[SystemResult]) -> list[float]:
    """The budgets that were given, each once, the smallest first."""
    seconds = {outcome.budget for result in results for outcome in result.outcomes.values()}
    return sorted(budget for budget in seconds if budget is not None)


def _blank(_: Paper) -> None:
    """A cell that the paper does not have."""


def _formatted(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _mean(name: str, form: str) -> Callable[[SystemResult], str]:
    def shown(result: SystemResult) -> str:
        spread = result.figure(name)
        return "" if spread is None else spread.show(form)

    return shown


def _seeds(result: SystemResult) -> int:
    tested = result.figure("bleu")
    return tested.count if tested else sum(outcome.best is not None for outcome in result.counted)


def _unseen(result: SystemResult) -> str:
    lines = result.figure("unseen")
    return "" if lines is None else f"{_mean('unseen_bleu', '.2f')(result)} ({lines.mean:,.0f})"


def _lengths(result: SystemResult) -> str:
    longest = max((o.best["longest_segment"] for o in result.counted if o.best), default=None)
    return "" if longest is None else _segments(_mean("segment_length", ".2f")(result), longest)


def _papers_lengths(paper: Paper) -> str | None:
    if paper.segment_length is None:
        return None
    mean = f"{paper.segment_length:.2f}"
    if float(mean) != paper.segment_length:
        mean = str(paper.segment_length)  # such as 1.0007
    return _segments(mean, paper.longest_segment)


def _alone(name: str, show: Callable[[float], str], timed: bool = False) -> Ours:
    """The mean of a figure without its deviation; a star marks times of runs side by side."""

    def shown(result: SystemResult) -> str:
        spread = result.figure(name)
        return "" if spread is None else show(spread.mean) + "*" * (timed and result.together > 1)

    return shown


def _pair(name: str, mark: str, beside: str, form: str) -> Ours:
    """The means of two figures, such as a measurement and its error (not the deviation over seeds)."""

    def shown(result: SystemResult) -> str:
        first, second = result.figure(name), result.figure(beside)
        other = f" {mark} {format(second.mean, form)}" if second else ""
        return "" if first is None else format(first.mean, form) + other

    return shown


def _segments(mean: str, longest: int | None) -> str:
    return mean if longest is None else f"{mean} ({longest})"


def _millions(parameters: float) -> str:
    return f"{parameters / 1e6:.1f}M" if parameters >= 1e5 else f"{parameters:,.0f}"


def time_shown(result: SystemResult, name: str) -> str:
    """The mean over seeds, with a star where none had the machine to itself."""
    return str(_alone(name, duration, timed=True)(result))


def timing(results: Sequence[SystemResult]) -> list[str]:
    """Notes on times: their seeds, if not all, and the meaning of the star, if there is one."""
    groups: dict[str, list[SystemResult]] = {}
    for result in results:
        if result.timed and result.together == 1 < max(o.side_by_side for o in result.counted):
            seeds = [str(seed) for seed, outcome in result.outcomes.items() if outcome in result.timed]
            groups.setdefault(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}", []).append(result)
    listed = [f"{', '.join(r.system.title for r in members)}: {seeds}" for seeds, members in groups.items()]
    if [*groups.values()] == [[*results]]:
        listed = [*groups]
    notes = [f"Times are of the seeds that ran alone ({'; '.join(listed)})."] if listed else []
    if (together := max(result.together for result in results)) > 1:
        notes.append(f"* up to {together} processes ran side by side, which makes each slower.")
    return notes


def endings(result: SystemResult) -> str:
    """The ending of each seed's training, equal ones together."""
    seeds_by_ending: dict[str, list[int]] = {}
    for seed, outcome in result.outcomes.items():
        seeds_by_ending.setdefault(ending(outcome), []).append(seed)
    if len(seeds_by_ending) == 1:
        return next(iter(seeds_by_ending))
    return "; ".join(f"seed {', '.join(map(str, seeds))}: {text}" for text, seeds in seeds_by_ending.items())


def ending(outcome: Outcome) -> str:
    """What ended a training, in a few words."""
    if outcome.status == "failed":
        reason = outcome.reason
        return "failed: " + (reason if len(reason) <= REASON else reason[: REASON - 3] + "...")
    named = {"budget": "its budget", "stopped": "not done yet", "finished": outcome.reason}
    text = named.get(outcome.status, outcome.status)
    return text if outcome.best or outcome.status == "not run" else f"{text}, before a validation"


def fallen(results: Sequence[SystemResult]) -> list[str]:
    """Notes on trainings that ended well below their best, which the table does not show."""
    notes = []
    for result in results:
        for seed, outcome in result.outcomes.items():
            best, last = outcome.best, outcome.validations[-1] if outcome.validations else None
            if best and last and last["bleu"] < FALLEN * best["bleu"]:
                ends = f"{last['bleu']:.2f} BLEU on dev and segments of {last['segment_length']:.2f}"
                was = f"{best['bleu']:.2f} and {best['segment_length']:.2f} at its best, which is shown"
                notes.append(f"{result.system.title}, seed {seed}, ended at {ends}; {was}.")
    return notes


def explained(table: Table) -> list[str]:
    """Explanations of the optional columns of a table."""
    return [text for column in table.columns if (text := OPTIONAL.get(column.name))]


def off_rates(results: Sequence[SystemResult]) -> list[str]:
    """Notes on seeds whose best model misses the segment length that its rate asks for."""
    notes = []
    for result in results:
        for seed, outcome in result.outcomes.items():
            best = outcome.best or {}
            if remark := off_rate(best.get("segment_length", 0.0), best.get("target_length")):
                notes.append(f"{result.system.title}, seed {seed}, is off its rate: {remark}.")
    return notes


def signatures(results: Sequence[SystemResult]) -> list[str]:
    """The signatures of all test scores, each once."""
    scores = [
        o.measured["test"]["scores"] for r in results for o in r.outcomes.values() if "test" in o.measured
    ]
    return list(dict.fromkeys(s["signatures"][metric] for metric in SCORES for s in scores))


def seeds_table(results: Sequence[SystemResult]) -> Table:
    """Every training, and the paper's rows, as numbers: the CSV."""
    columns = [Column(head) for head in ("table", "system", "by", "seed", "status", "reason")]
    columns += [Column(name, "g") for name in FIGURES]
    columns += [Column("side_by_side", "d"), Column("training_time")]
    rows: list[list[Cell]] = []
    for result in results:
        system = result.system
        for seed, outcome in result.outcomes.items():
            figures = [figure(outcome) for figure in FIGURES.values()]
            about: list[Cell] = [system.table, system.row, "ours", seed, outcome.status, outcome.reason]
            rows.append([*about, *figures, outcome.side_by_side, None])
        if (paper := system.paper) is not None:
            printed = paper.model_dump()
            printed["chrf"] = None if paper.chrf is None else round(100 * paper.chrf, 1)
            figures = [printed.get(name) for name in FIGURES]
            rows.append(
                [system.table, system.row, "paper", None, None, None, *figures, None, paper.training_time]
            )
    return Table("seeds", "every training", columns, rows)
