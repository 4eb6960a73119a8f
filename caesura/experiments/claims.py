"""The paper's claims and ours beside our rows, each with a verdict: claims.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from caesura.analysis.tables import Cell, Column, Table
from caesura.evaluation.bootstrap import Difference, Replicates, contrast
from caesura.experiments.appendix import drawn_texts
from caesura.experiments.recipe import Claim, choices
from caesura.experiments.results import Spread, SystemResult

CLAIMS = "claims.md"
OPEN, UNDECIDED = "not measured yet", "not decided"
NOTE = (
    "BLEU on the test set: mean ± standard deviation over seeds, and their number. *Confirmed*: the 95% "
    "interval of the difference, by the appendix's bootstrap, is above 0. *Contradicted*: it is below 0. "
    "Where there are several rows to choose from, dev chooses. A verdict for one seed says nothing about "
    "other seeds; with two or three, the interval is still somewhat too narrow. Many claims are tested at "
    "once: an interval that hardly leaves out 0 decides little. A claim with nothing under *the paper* is "
    "ours."
)
Drawn = Mapping[str, Sequence[Replicates]]


def claims_table(claims: Sequence[Claim], results: Sequence[SystemResult]) -> Table:
    """One row per claim."""
    by_name = {result.system.name: result for result in results}
    texts = dict.fromkeys(result.system.text for result in results)
    drawn: dict[str, Sequence[Replicates]] = {}
    for text in texts:  # scores of one text alone can be compared
        listed = [result for result in results if result.system.text == text]
        drawn |= drawn_texts(listed, [result.system.name for result in listed])[0]
    rows: list[list[Cell]] = []
    for claim in claims:
        about = _about_length if claim.length_of else _about_scores
        rows.append([claim.claim, claim.paper, *about(claim, by_name, drawn)])
    columns = ("claim", "the paper", "ours", "difference (95%)", "verdict")
    return Table("claims", "Claims", [Column(name) for name in columns], rows)


def _about_length(claim: Claim, results: Mapping[str, SystemResult], _: Drawn) -> list[Cell]:
    result = results.get(claim.length_of or "")
    length = result and result.figure("segment_length")
    if not length:
        return ["", "", OPEN]
    within = claim.at_least <= length.mean and (claim.at_most is None or length.mean <= claim.at_most)
    verdict = _for_seeds("confirmed" if within else "not confirmed", length.count)
    return [f"{_shown(length, '.4f')} characters", "", verdict]


def _about_scores(claim: Claim, results: Mapping[str, SystemResult], drawn: Drawn) -> list[Cell]:
    sides = [[_chosen(names, results, drawn) for names in side] for side in (claim.above, claim.below)]
    above, below = ([result for result in side if result is not None] for side in sides)
    ours = " against ".join(" + ".join(map(_score, side)) for side in (above, below) if side)
    if len(above) < len(claim.above) or len(below) < len(claim.below):
        return [ours, "", OPEN]
    more, less = ([drawn[result.system.name] for result in side] for side in (above, below))
    difference = contrast(more, less)
    return [ours, str(difference), _for_seeds(_verdict(difference), min(map(len, [*more, *less])))]


def _chosen(names: str, results: Mapping[str, SystemResult], drawn: Drawn) -> SystemResult | None:
    """The row that is best on dev; None as long as one of them has not been tested."""
    rows = [results[name] for name in choices(names) if name in results and name in drawn]
    if len(rows) < len(choices(names)):
        return None
    return max(rows, key=lambda row: spread.mean if (spread := row.figure("dev_bleu")) else 0.0)


def _verdict(difference: Difference) -> str:
    if difference.low > 0:
        return "confirmed"
    return "contradicted" if difference.high < 0 else UNDECIDED


def _for_seeds(verdict: str, seeds: int) -> str:
    return f"{verdict}, for one seed" if seeds == 1 and verdict != UNDECIDED else verdict


def _score(result: SystemResult) -> str:
    spread = result.figure("bleu")
    return "" if spread is None else f"{_shown(spread, '.2f')} {result.system.title}"


def _shown(spread: Spread, form: str) -> str:
    return f"{spread.show(form)} ({spread.count})"
