"""`caesura analyze --only cuts`, and what `analyze` needs without it."""

import json
from pathlib import Path

import pytest
from cli.program import caesura, refusal

from caesura.experiments.outcome import CUTS, Member


def test_cuts_alone_are_measured_on_the_dev_set(models: dict[str, Path], corpus: Path) -> None:
    done = caesura("analyze", models["act"], "--only", "cuts", "--json", "--moved", 3)
    assert done.status == 0
    assert done.err == f"dev set named by the folder's config: {corpus / 'dev.de'} and {corpus / 'dev.en'}\n"
    report = json.loads(done.out, parse_constant=pytest.fail)
    names = ["model", "text", "sentences", "fidelity", "flips", "boundaries", "surprisal", "cuts"]
    assert [*report] == names
    assert (report["model"], report["text"], report["sentences"]) == (str(models["act"]), "dev.de", 3)
    assert {"cosine", "cosine_error", "true_sum", "bins"} <= {*report["fidelity"]}
    assert {"best", "greedy", "hardening", "agreeing"} <= {*report["flips"]}
    assert {*report["boundaries"]["white space"]} == {"f1", "precision", "recall", "chance"}
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    again = caesura("analyze", models["act"], "--only", "cuts", "--json", "--moved", 3, *text)
    assert (again.err, json.loads(again.out)) == ("", report)


def test_cuts_alone_are_printed_as_a_table(models: dict[str, Path], corpus: Path) -> None:
    call = ("analyze", "--only", "cuts", "--moved", 2, "--src", corpus / "dev.de")
    done = caesura(*call, models["act"], "--trg", corpus / "dev.en")
    assert (done.status, done.err) == (0, "")
    for name in ("boundary F1", "F1 by chance", "best flip", "hardening"):
        assert f"│ {name}" in done.out
    assert "cuts were moved in 2 sentences" in done.out
    bare = caesura(*call, models["act"])
    assert bare.status == 0
    assert "best flip" not in bare.out
    report = json.loads(caesura(*call, models["char"], "--json").out)
    assert (report["sentences"], report["fidelity"], report["flips"]) == (0, None, None)


def test_options_that_do_not_go_together_are_refused(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    src, out = ("--src", corpus / "dev.de"), ("--out", tmp_path / "out")
    call = ("analyze", models["char"])
    assert "--src" in refusal(caesura(*call, *out))
    assert "--out" in refusal(caesura(*call, *src))
    assert "--json" in refusal(caesura(*call, *src, *out, "--json"))
    assert "--out" in refusal(caesura(*call, "--only", "cuts", *out))
    assert "--lines" in refusal(caesura(*call, "--only", "cuts", "--lines", "3"))
    assert "data.dev" in refusal(caesura(*call, "--only", "cuts", "--trg", corpus / "dev.en"))
    assert "no/file" in refusal(caesura(*call, "--only", "cuts", "--src", "no/file"))
    assert caesura(*call, "--only", "gates").status == 2
    assert caesura(*call, *src, *out, "--moved", -1).status == 2
    assert not (tmp_path / "out").exists()


def test_reproduce_calls_it_as_it_is(models: dict[str, Path], corpus: Path) -> None:
    words = CUTS.command(Member("act", corpus / "act.yaml", (), models["act"]))
    assert words is not None
    done = caesura(*words[1:])
    assert done.status == 0
    assert json.loads(done.out)["sentences"] == 12
