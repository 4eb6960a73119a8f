"""`analyze --only robust | inside` and `evaluate --details`, for people and as `reproduce` calls them."""

import json
from pathlib import Path

import pytest
from cli.program import caesura, refusal
from wording import wording

from caesura.evaluation.bootstrap import UnitCounts
from caesura.experiments.outcome import DETAILED, INSIDE, ROBUST, Member


@pytest.fixture
def member(models: dict[str, Path], corpus: Path, write) -> Member:
    settings = tuple(f"data.test.{side}={corpus}/dev.{lang}" for side, lang in (("src", "de"), ("trg", "en")))
    return Member("word", corpus / "word.yaml", settings, models["word"])


def test_noise_and_beams_are_printed(models: dict[str, Path], corpus: Path) -> None:
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    done = caesura("analyze", models["word"], "--only", "robust", "--sample", 5, *text)
    assert (done.status, done.err) == (0, "")
    assert [line.split()[0] for line in done.lines if line.startswith(("drop", "case"))] == ["drop", "case"]
    assert "beam" in done.out
    done = caesura("analyze", models["word"], "--only", "inside", "--sample", 5, *text)
    assert (done.status, done.err) == (0, "")
    assert "backward" in done.out
    call = ("analyze", models["word"], "--only", "robust")
    assert "--gold" in wording(refusal(caesura(*call, "--gold", corpus / "dev.en")))
    assert "data.test" in refusal(caesura(*call))
    assert "--details" in wording(refusal(caesura("evaluate", models["word"], *text, "--details")))


def test_reproduce_calls_them_as_they_are(member: Member, corpus: Path) -> None:
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    results = {}
    for measure in (DETAILED, ROBUST, INSIDE):
        words = measure.command(member)
        assert words is not None
        done = caesura(*words[1:], *text)
        assert (done.status, len(done.lines)) == (0, 1), done.err
        results[measure.name] = json.loads(done.out, parse_constant=pytest.fail)
    test, robust, inside = results["test"], results["robust"], results["inside"]
    assert (inside["sentences"], len(inside["gates"]), len(inside["examples"])) == (12, 4, 4)
    assert UnitCounts.unpacked(test["units"]["packed"]).bleu == pytest.approx(test["scores"]["bleu"])
    assert {"seconds", "by_length", "by_rarity", "by_frequency", "errors", "unseen"} <= {*test}
    assert robust["sentences"] == 12
    assert robust["noise"]["rates"] == [0.0, 0.05, 0.1, 0.2]
    assert [beam["beam"] for beam in robust["beams"]] == [1, 2, 5, 10, 20, 50]
    assert ROBUST.command(Member("word", corpus / "word.yaml", (), member.folder)) is None
