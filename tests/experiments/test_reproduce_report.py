"""The report of a recipe's systems: of whose weights it is, when it is made, and what is told meanwhile."""

import json
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest
from cli.program import Done, caesura
from experiments.recipes import rows, run

from caesura import terminal
from caesura.experiments import report


def with_report(recipe: Path, *options: object) -> Done:
    return caesura("reproduce", recipe, "--data", recipe / "data", "--out", recipe.parent / "out", *options)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_the_report_is_of_the_best_seed_of_each_and_made_once(recipe: Path) -> None:
    done = with_report(recipe, "--parallel", 2)
    page = recipe.parent / "out" / "report" / "report.html"
    assert f"The report of all systems: {page}\n" in done.out
    made = json.loads((page.parent / "made_from.json").read_bytes())
    assert [re.sub(r"char-[12]", "char-", name) for name in made] == [
        "first-word-1",
        "first-char-",
        "second-act-1",
    ]
    models = json.loads((page.parent / "analysis.json").read_bytes())["models"]
    assert [model["name"] for model in models] == ["word", "characters", "act"]
    assert str(recipe.parent) not in page.read_text(encoding="utf-8")
    written = page.stat().st_mtime_ns
    assert f"The report of all systems: {page}\n" in with_report(recipe, "--parallel", 2).out
    assert page.stat().st_mtime_ns == written


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_the_report_is_of_the_seeds_whose_weights_are_there_and_says_what_it_is_without(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "word,char")
    dev = {row["seed"]: float(row["dev_bleu"]) for row in rows(recipe) if row["system"] == "char"}
    other, best = sorted(dev, key=lambda seed: (dev[seed], -int(seed)))
    shutil.rmtree(out / f"first-char-{best}")
    (out / "first-word-1" / "test.json").unlink()  # trained again, and not yet as far as what was kept
    kept = out / "metrics" / "first-word-1.jsonl"
    kept.write_text(kept.read_text().replace('"updates": 20', '"updates": 1000'))
    compared = mock.Mock(return_value="")
    monkeypatch.setattr(report, "_compare", compared)
    (out / "report").mkdir()
    done = with_report(recipe, "--only", "char")
    line = f"\nThe report without word, whose weights are not there: {out}/report/report.html\n"
    assert done.out.endswith(line)
    assert compared.call_args.args[0] == {"characters": out / f"first-char-{other}"}
    made = out / "report" / "made_from.json"
    facts = json.loads(made.read_bytes())
    (out / "report" / "report.html").touch()
    made.write_text(json.dumps({"first-word-1": {"name": "word", "weights": "0123"}} | facts))
    line = f"\nThe report of all systems: {out}/report/report.html\n"  # as it was when they were there
    assert with_report(recipe, "--only", "char").out.endswith(line)
    assert compared.call_count == 1
    made.write_text("{")
    assert "The report without word" in with_report(recipe, "--only", "char").out
    assert compared.call_count == 2
    shutil.rmtree(out / f"first-char-{other}")
    assert with_report(recipe, "--only", "char").out.endswith("\nno report: no system has weights\n")
    assert compared.call_count == 2


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_while_the_report_is_made_it_is_told_what_it_is_at(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal._Lines, "every", 0.0)
    done = with_report(recipe, "--only", "act")
    assert done.status == 0, done.err
    log = (recipe.parent / "out" / "report.log").read_text(encoding="utf-8").splitlines()
    steps = [f"translating with {recipe.parent}/out/second-act-1", "analysing act", "drawing"]
    assert [line for line in log if line in steps] == steps
    progress = [line for line in done.err.splitlines() if re.fullmatch(r"the report: .+ after \d+s", line)]
    training = [line for line in done.err.splitlines() if line.startswith("second-act-1: ")]
    assert training
    assert training + progress == done.err.splitlines()
    assert any(line.startswith("the report: drawing after ") for line in progress), progress
