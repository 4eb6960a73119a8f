"""Verdicts on the paper's claims: from intervals over drawn texts, with the depth that dev chooses."""

from pathlib import Path
from typing import Any

import pytest
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation.bootstrap import UnitCounts, contrast, difference, replicates
from caesura.experiments.claims import OPEN, claims_table
from caesura.experiments.outcome import Member, Outcome
from caesura.experiments.recipe import FILE, Claim, RecipeSystem, load_recipe
from caesura.experiments.results import SystemResult
from caesura.training.checkpoint import Progress

REFERENCES = [f"the cat number {i} sat on the mat and saw {i + 3} dogs" for i in range(60)]


def written(wrong: int) -> list[str]:
    """Every line has so many wrong words in its middle."""
    return [" ".join([*w[:3], *["x"] * wrong, *w[3 + wrong :]]) for w in (r.split() for r in REFERENCES)]


def result(
    name: str, wrong: int | None, dev: float = 20.0, length: float = 1.0, seeds: int = 2
) -> SystemResult:
    table, row = name.split("-", 1)
    member = Member(name, Path("x.yaml"), (), Path(name))
    way = {"verdict": "best", "bleu": dev, "segment_length": length, "longest_segment": 2, "seconds": 1.0}
    measured: dict[str, Any] = {}
    if wrong is not None:
        counts = UnitCounts.of(written(wrong), REFERENCES, "13a", False, unit=1)
        scores = {"bleu": counts.bleu, "chrf": counts.chrf, "chrf_bigram": 1.0}
        measured = {"test": {"scores": scores, "units": {"lines": 1, "packed": counts.packed()}}}
    outcome = Outcome(member, "finished", "done", Progress(seconds=1.0), 1, None, [way], measured)
    every = range(1, seeds + 1)
    system = RecipeSystem(table, row, row, None, dict.fromkeys(every, member))
    return SystemResult(system, dict.fromkeys(every, outcome))


def verdicts(claims: list[dict[str, Any]], *results: SystemResult) -> list[Any]:
    named = [Claim(claim="c", **claim) for claim in claims]
    return [row[-1] for row in claims_table(named, results).rows]


def test_a_claim_is_confirmed_contradicted_or_open() -> None:
    good, bad = result("t-good", 1), result("t-bad", 4)
    claims = [
        {"above": ["t-good"], "below": ["t-bad"]},
        {"above": ["t-bad"], "below": ["t-good"]},
        {"above": ["t-good"], "below": ["t-same"]},
        {"above": ["t-good"], "below": ["t-none"]},
        {"above": ["t-good"], "below": ["t-missing"]},
    ]
    given = verdicts(claims, good, bad, result("t-same", 1), result("t-none", None))
    assert given == ["confirmed", "contradicted", "not decided", OPEN, OPEN]


def test_a_verdict_for_one_seed_says_so() -> None:
    good, bad, alone = result("t-good", 1), result("t-bad", 4), result("t-alone", 4, length=1.2, seeds=1)
    claims = [
        {"above": ["t-good"], "below": ["t-alone"]},
        {"above": ["t-alone"], "below": ["t-good"]},
        {"above": ["t-bad"], "below": ["t-alone"]},
        {"above": ["t-good"], "below": ["t-bad"]},
        {"length_of": "t-alone", "at_most": 1.5},
        {"length_of": "t-alone", "at_least": 1.5},
    ]
    one = ", for one seed"
    expected = [f"confirmed{one}", f"contradicted{one}", "not decided", "confirmed"]
    expected += [f"confirmed{one}", f"not confirmed{one}"]
    assert verdicts(claims, good, bad, alone) == expected


def test_dev_chooses_among_rows_and_waits_for_all_of_them() -> None:
    rows = [result("t-one", 3, dev=20.0), result("t-deep", 1, dev=21.0), result("t-deeper", 4, dev=19.0)]
    claim = {"above": ["t-deep | t-deeper"], "below": ["t-one"]}
    assert verdicts([claim], *rows) == ["confirmed"]
    assert verdicts([claim], *rows[:2]) == [OPEN]
    [row] = claims_table([Claim(claim="c", **claim)], rows).rows
    assert " deep against " in str(row[2])


def test_gains_are_compared_by_sums() -> None:
    char, limited = result("t-char", 1), result("t-limited", 4)
    bpe, same = result("t-bpe", 2), result("t-same", 2)
    claim = {"above": ["t-char", "t-same"], "below": ["t-bpe", "t-limited"]}
    assert verdicts([claim], char, limited, bpe, same) == ["confirmed"]
    counts = [UnitCounts.of(written(n), REFERENCES, "13a", False, unit=1) for n in (1, 4, 2)]
    a, b, c = replicates(counts)[0]
    assert contrast([[a]], [[b]]) == difference([a], [b])
    assert contrast([[a], [c]], [[b], [c]]).mean == pytest.approx(difference([a], [b]).mean)


def test_the_length_of_segments_lies_within_bounds() -> None:
    claims = [{"length_of": "t-act", "at_most": 1.05}, {"length_of": "t-act", "at_least": 1.5}]
    assert verdicts(claims, result("t-act", 1, length=1.01)) == ["confirmed", "not confirmed"]
    assert verdicts(claims[:1]) == [OPEN]


@pytest.mark.parametrize(
    ("claim", "part"),
    [
        ("{claim: c, above: [t-a], below: [t-b | t-x]}", "t-x"),
        ("{claim: c, above: [t-a], below: [u-a]}", "texts"),
        ("{claim: c, above: [t-a]}", "length_of"),
        ("{claim: c, above: [t-a], below: [t-b], length_of: t-a}", "length_of"),
    ],
)
def test_a_claim_that_cannot_be_decided_is_refused(tmp_path: Path, claim: str, part: str) -> None:
    (tmp_path / FILE).write_text(
        f"title: T\nclaims:\n  - {claim}\ntables:\n"
        "  t: {title: T, text: one, rows: {a: {config: x}, b: {config: x}}}\n"
        "  u: {title: U, text: two, rows: {a: {config: x}}}\n",
        encoding="utf-8",
    )
    with refuses(InputError, tmp_path / FILE, "claims", part):
        load_recipe(tmp_path / FILE)
